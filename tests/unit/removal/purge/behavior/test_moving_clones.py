"""Clones change names at any moment of a purge: what one of them alone took from the purged table stays.

Clones have one uuid, so a name whose table changed places with its clone shows the same table as before.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.tasks.life.model import Status
from tests.effort import apart
from tests.kit.lakes.lake import Lake, filled
from tests.kit.worlds.indexed import IndexedWorld

LOADS = 8
Event = Callable[[dict[str, str]], None]


@functools.cache
def written() -> tuple[Lake, Lake, str]:
    """Return both namespaces of a world whose table `t` lent a file to `m`, and `m`'s metadata file before that."""
    world = filled(IndexedWorld(), "t")
    for name in "agmy":
        world.far_table(name)
    former = world.other.pointers["m"]
    world.take("m")
    return world.lake, world.other, former


def lending(known: str) -> IndexedWorld:
    """Return a world whose table `t` lent a file to `m` alone, of which `c` is a clone, among other tables.

    A pass has seen what is `known`.
    """
    lake, other, former = written()
    world = IndexedWorld()
    world.lake.objects.update(lake.objects)
    world.lake.pointers.update(lake.pointers)
    pointers = world.other.pointers
    pointers.update(other.pointers, m=former)
    if known != "the table that took a file":
        pointers["c"] = former
    look(world)
    pointers["m"] = other.pointers["m"]
    if known != "both before":
        look(world)
    pointers["c"] = former
    return world


def look(world: IndexedWorld) -> None:
    """Make a pass over the catalog."""
    refresher = world.behavior.refresher(world.index, "recurring", lambda: None)
    replace(refresher, eager=True).ensure_fresh("cat", timedelta(0))


def swap(pointers: dict[str, str]) -> None:
    pointers["c"], pointers["m"] = pointers["m"], pointers["c"]


def step_aside(pointers: dict[str, str]) -> None:
    """Let the clone take the name of the table, which takes that of another, which is dropped."""
    pointers["a"] = pointers.pop("m")
    pointers["m"] = pointers.pop("c")


def leave(pointers: dict[str, str]) -> None:
    """Rename the table to a name that no table had."""
    pointers["b"] = pointers.pop("m")


def make_trace(pointers: dict[str, str]) -> None:
    """Let two other tables change names, so that a pass loads all names once more."""
    pointers["g"], pointers["y"] = pointers["y"], pointers["g"]


def purged(events: dict[int, Event], known: str) -> int:
    """Purge `t` while events happen just before loads of tables, by their number; return how many loads there were."""
    world = lending(known)
    borrowing, pointers, loads = world.other.pointers["m"], world.other.pointers, 0

    def happen() -> None:
        nonlocal loads
        loads += 1
        events.get(loads, lambda _pointers: None)(pointers)

    world.listing.each_load = happen
    task = world.purge("t")
    assert task.status is Status.SUCCESS, events
    (name,) = [name for name, pointer in pointers.items() if pointer == borrowing]
    assert world.readable(name), events
    return loads


@pytest.mark.parametrize(
    ("known", "traced"), [("both before", False), ("both", True), ("the table that took a file", False)]
)
@pytest.mark.parametrize("event", [swap, step_aside, leave])
def test_what_a_clone_took_stays_whenever_it_changes_names(event, known, traced):
    trace = {2: make_trace} if traced else {}
    for number in itertools.count(1, apart(3)):
        if purged({**trace, number: event}, known) < number:
            break
    assert number > LOADS
