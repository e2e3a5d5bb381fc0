"""Exemptions of unreadable tables, in orders of events: what ends one, and what it outlives."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from delegation.identifiers import TableIdentifier
from delegation.references.blocking import Subject
from delegation.references.store import blocking_of
from delegation.removal.errors import NeighbourChanged
from delegation.removal.purge.indexed import held_by
from delegation.tasks.life.model import Status, Task
from tests.kit.lakes.lake import busy_table, filled, rows
from tests.kit.tasks.builders import submitted
from tests.kit.worlds.indexed import IndexedWorld
from tests.unit.removal.purge.behavior.test_unreadable_tables import (
    FORBIDDEN,
    UNAVAILABLE,
    continued,
    decided,
    exempt_all,
    own_manifests,
    refresh,
    waits,
)


@pytest.fixture
def world() -> IndexedWorld:
    """A catalog with a table that lost one of its two manifests before any pass, far from the purged tables."""
    world = filled(IndexedWorld(), "t")
    world.other.create("torn", location="s3://elsewhere/torn").append(rows(10))
    world.other.table("torn").append(rows(20))
    lose_manifest(world)
    return world


def lose_manifest(world: IndexedWorld, name: str = "torn") -> str:
    """Delete one of the manifests that a table of the other namespace has; return its path."""
    lost = next(one for one in own_manifests(world, name) if world.other.io.new_input(one).exists())
    world.other.io.delete(lost)
    return lost


def purged(world: IndexedWorld, name: str) -> Task:
    """Purge a new table of the purged namespace."""
    busy_table(world.lake, name)
    return world.purge(name)


def exempted(world: IndexedWorld) -> None:
    """Have a purge wait for the torn table, and exempt it."""
    assert waits(purged(world, "first"))
    decided(world)
    assert purged(world, "second").status is Status.SUCCESS


def recommitted(world: IndexedWorld, changes: dict[str, Any]) -> None:
    """Give the torn table another metadata file, with changes that pyiceberg would not write."""
    metadata = json.dumps({**world.other.metadata("torn"), **changes}).encode()
    path = f"s3://elsewhere/torn/metadata/{len(world.lake.objects)}.metadata.json"
    world.other.pointers["torn"] = world.lake.write(path, metadata)


def test_an_exemption_outlives_commits_while_all_that_they_add_is_read(world: IndexedWorld) -> None:
    exempted(world)
    for number in range(3):
        world.other.table("torn").append(rows(5))
        refresh(world)
        task = purged(world, f"after{number}")
        assert task.status is Status.SUCCESS, task.result_summary
    (found,) = world.receipt(task)["references"]
    assert [one["what"] for one in found["exempted"]] == ["cat.other.torn"]


def test_a_second_manifest_that_a_commit_adds_and_that_cannot_be_read_ends_it(world: IndexedWorld) -> None:
    exempted(world)
    before = set(own_manifests(world, "torn"))
    world.other.table("torn").append(rows(5))
    for fresh in set(own_manifests(world, "torn")) - before:
        world.other.io.delete(fresh)
    refresh(world)
    task = purged(world, "after")
    assert waits(task)
    assert decided(world, task).status is Status.SUCCESS


def test_an_unreadable_metadata_file_is_exempted_until_the_next_commit(world: IndexedWorld) -> None:
    exempted(world)
    world.other.rewrite_metadata("torn", {"snapshots": "not a list"})
    refresh(world)
    assert waits(purged(world, "third")), "more cannot be read than what was exempted"
    decided(world)
    assert purged(world, "fourth").status is Status.SUCCESS
    recommitted(world, {"snapshots": "no list either"})
    refresh(world)
    assert waits(purged(world, "fifth"))


@pytest.mark.parametrize("event", ["created again", "credentials refused", "thirty days of commits"])
def test_an_exemption_of_single_files_ends(world: IndexedWorld, event: str) -> None:
    """Of a table that loads without credentials no manifest can be read."""
    exempted(world)
    if event == "created again":
        del world.other.pointers["torn"]
        world.other.create("torn", location="s3://elsewhere/again").append(rows(10))
        lose_manifest(world)
    elif event == "credentials refused":
        world.listing.not_vended = {"torn"}
    else:
        world.other.table("torn").append(rows(5))
        world.clock.advance(timedelta(days=30))
    refresh(world)
    assert waits(purged(world, "after"))


def test_an_exemption_ends_when_all_can_be_read_and_what_is_lost_later_is_another_decision(world: IndexedWorld) -> None:
    exempted(world)
    emptied: dict[str, Any] = {"snapshots": [], "refs": {}, "snapshot-log": [], "current-snapshot-id": -1}
    whole = {name: world.other.metadata("torn")[name] for name in emptied}
    recommitted(world, emptied)
    refresh(world)
    assert world.index.exemptions("cat") == []
    recommitted(world, whole)
    refresh(world)
    assert waits(purged(world, "after"))


TROUBLES = pytest.mark.parametrize("trouble", [FORBIDDEN, UNAVAILABLE], ids=["forbidden", "unavailable"])


@TROUBLES
def test_a_table_that_was_never_read_is_passed_by_in_no_way(world: IndexedWorld, trouble: Exception) -> None:
    exempted(world)
    world.other.create("new", location="s3://elsewhere/new")
    world.listing.broken["new"] = trouble
    world.clock.advance(timedelta(hours=1))
    task = purged(world, "after")
    assert waits(task)
    assert waits(decided(world, task))
    world.listing.broken.clear()
    refresh(world)
    assert continued(world, task).status is Status.SUCCESS


def clone_known_whole(world: IndexedWorld) -> set[str]:
    """Have a clone of `t` with a commit of its own be read to its end by a pass; return what it needs."""
    world.other.pointers["clone"] = world.lake.pointers["t"]
    world.other.table("clone").append(rows(50))
    exempted(world)
    return set(world.reached("clone"))


def test_what_is_lost_after_a_pass_has_read_it_holds_only_work_that_it_can_concern(world: IndexedWorld) -> None:
    """The pass reads no manifest twice; the purge that needs it finds the loss, and a person can exempt it."""
    needed = clone_known_whole(world)
    lost = lose_manifest(world, "clone")
    world.clock.advance(timedelta(hours=2))
    task = world.purge("t")
    assert waits(task), task.result_summary
    assert [str(one.subject) for one in blocking_of(world.index, "cat") if one.narrow] == ["cat.other.clone"]
    assert purged(world, "elsewhere").status is Status.SUCCESS
    assert world.index.held("cat") != [], "nothing was mended, so the purge is not let run"
    refresh(world)
    assert waits(continued(world, task))
    task = decided(world, task)
    assert task.status is Status.SUCCESS, task.result_summary
    assert needed - {lost} <= set(world.lake.uris()), "what can be read of it protects"


def test_a_second_manifest_that_is_lost_without_a_commit_ends_an_exemption(world: IndexedWorld) -> None:
    clone_known_whole(world)
    world.other.table("clone").append(rows(60))
    refresh(world)
    lose_manifest(world, "clone")
    world.clock.advance(timedelta(hours=2))
    assert waits(world.purge("t"))
    refresh(world)
    exempt_all(world)
    lose_manifest(world, "clone")
    before = world.lake.below("s3://lake/wh/t/")
    task = world.purge("t")
    assert task.status is not Status.SUCCESS
    refresh(world)
    assert waits(continued(world, task))
    assert world.lake.below("s3://lake/wh/t/") == before
    assert decided(world, task).status is Status.SUCCESS


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_manifest_that_an_executor_misses_is_read_by_the_next_attempt(world: IndexedWorld, is_lost: bool) -> None:
    """The executor cannot tell a lost manifest from one that an expiry removed; another job would miss it again."""
    clone_known_whole(world)
    gone = lose_manifest(world, "clone") if is_lost else own_manifests(world, "clone")[0]
    world.clock.advance(timedelta(hours=2))
    clone = TableIdentifier("cat", ("other",), "clone")
    error = NeighbourChanged(str(clone), gone, Subject.of(clone))
    assert held_by(submitted(), error, world.index, world.clock()) is not None
    task = world.purge("t")
    assert waits(task) is is_lost, task.result_summary
    assert (Subject.of(clone) in {one.subject for one in blocking_of(world.index, "cat")}) is is_lost


def outside_passes(world: IndexedWorld, act: Callable[[], object], *, after: int = 0) -> None:
    """Do something before each load of a table after a pass, as the comparison of a purge makes them."""

    def each_load() -> None:
        now = world.index.pass_of("cat")
        if now.owner is None and now.complete > after:
            act()

    world.listing.each_load = each_load


def wide_table(world: IndexedWorld) -> set[str]:
    """Exempt a table around `t` that needs its files and lost a manifest of its own; return what is left of it."""
    metadata = {**world.lake.metadata("t"), "location": "s3://lake/wh", "table-uuid": str(uuid4())}
    path = "s3://lake/wh/metadata/00000-wide.metadata.json"
    world.other.pointers["wide"] = world.lake.write(path, json.dumps(metadata).encode())
    world.other.table("wide").append(rows(50))
    (torn,) = own_manifests(world, "wide")
    world.lake.write(torn, b"x" * len(world.lake.read(torn)))
    exempted(world)
    return world.lake.needed("t") - {world.lake.pointers["t"]}


@TROUBLES
def test_a_table_exempt_for_single_files_that_does_not_load_after_the_pass_holds_the_purge(
    world: IndexedWorld, trouble: Exception
) -> None:
    needed = wide_table(world)
    world.clock.advance(timedelta(hours=2))
    known = world.index.pass_of("cat").complete
    outside_passes(world, lambda: world.listing.broken.update(wide=trouble), after=known)
    task = world.purge("t")
    assert needed <= set(world.lake.uris())
    assert waits(task), (task.status, task.error_code, task.result_summary)


def test_commits_to_an_exempt_table_during_each_comparison_hold_no_purge(world: IndexedWorld) -> None:
    needed = clone_known_whole(world)
    world.other.table("clone").append(rows(60))
    lost = lose_manifest(world, "clone")
    world.clock.advance(timedelta(hours=2))
    task = world.purge("t")
    assert waits(task)
    refresh(world)
    decided(world)
    commits = iter(range(60))

    def commit() -> None:
        if next(commits, None) is not None:
            world.other.table("clone").append(rows(70))

    outside_passes(world, commit)
    task = continued(world, task)
    assert next(commits, None) is not None, "the purge waited until nobody commits"
    assert task.status is Status.SUCCESS, task.result_summary
    assert needed - {lost} <= set(world.lake.uris())


def test_a_file_of_an_exemption_that_was_mended_and_is_lost_again_is_another_decision(world: IndexedWorld) -> None:
    clone_known_whole(world)
    world.other.table("clone").append(rows(60))
    refresh(world)
    whole = world.lake.copy()
    mended, _ = lose_manifest(world, "clone"), lose_manifest(world, "clone")
    world.clock.advance(timedelta(hours=2))
    task = world.purge("t")
    assert waits(task)
    refresh(world)
    exempt_all(world)
    world.lake.write(mended, whole.read(mended))
    refresh(world)
    world.other.io.delete(mended)
    before = world.lake.below("s3://lake/wh/t/")
    task = continued(world, task)
    assert waits(task), task.result_summary
    assert world.lake.below("s3://lake/wh/t/") == before
