"""What cannot be decoded in the queue of waiting changes stops nobody but its own writer, who learns of it."""

import logging
from dataclasses import replace

import pytest

from polaris_persistence.backends.base import Reference
from polaris_persistence.commits.turns import ABANDONED_MS
from polaris_persistence.commits.waiting import OUTCOMES_TYPE, WAITING_TYPE, WaitingChange, WaitingQueue
from polaris_persistence.errors import CommitUnknown, CorruptObject
from polaris_persistence.objects.objects import ObjectRef
from tests.persistence.builders import Entity, Head, add, put
from tests.persistence.waiting.waiting_world import Waiting, operations

POISONS = [b"", b"\x81" * 5_000, b"\xa1\x69reference\x01"]


def spoil(world: Waiting, type_: str, poison: bytes, *, but: int | None = None) -> None:
    """Replace the values of all objects of a type, as a fault of the store or another release would."""
    for key, one in list(world.backend._objects.items()):
        if key.type == type_ and key.id != but:
            world.backend._objects[key] = replace(one, value=poison)


def poisoned(world: Waiting, poison: bytes) -> Reference:
    store = world.process()[0]
    queue = WaitingQueue(store, "main", Head)
    [_], known = queue.add([WaitingChange(reference="main", kind="add", data="n")], store.current_reference("main"))
    spoil(world, WAITING_TYPE.name, poison)
    return known


@pytest.mark.parametrize("poison", POISONS, ids=["nothing", "too deep", "of another model"])
def test_a_change_that_cannot_be_decoded_stops_no_commit(
    world: Waiting, poison: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 32, line 4: it stopped every commit of the catalog."""
    known = poisoned(world, poison)
    _, winner = world.process()
    with caplog.at_level(logging.WARNING, "polaris_persistence"):
        winner.commit(put("a", 1), operation="function")
        winner.commit_data("add", "n", operation="data")
    assert [name for name in operations(world) if name] == ["data", "function"]
    assert world.numbers() == {"n": 2, "a": 1}
    # Unknown for now: its process may commit it itself.
    assert world.waiting() == known.waiting
    assert len(caplog.records) == 1
    assert str(known.waiting[0]) in caplog.text


@pytest.mark.parametrize("poison", POISONS, ids=["nothing", "too deep", "of another model"])
def test_it_is_abandoned_like_one_of_an_unknown_kind(world: Waiting, poison: bytes) -> None:
    poisoned(world, poison)
    world.clock.advance(ABANDONED_MS / 1_000 + 1)
    world.process()[1].commit(put("a", 1))
    assert world.waiting() == ()
    assert world.numbers() == {"n": 1, "a": 1}


@pytest.mark.parametrize("poison", POISONS, ids=["nothing", "too deep", "of another model"])
def test_those_beside_it_are_combined_and_its_writer_commits_it_itself(world: Waiting, poison: bytes) -> None:
    winner = world.process()[1]

    def beside() -> None:
        [waiting] = world.waiting()
        queue = WaitingQueue(world.process()[0], "main", Head)
        queue.add([WaitingChange(reference="main", kind="add")], world.store.current_reference("main"))
        spoil(world, WAITING_TYPE.name, poison, but=waiting)
        winner.commit(add("n", 10))

    world.contend(then=beside)
    assert world.committer.commit_data("add", "n", operation="beside").result == 2
    assert world.numbers()["n"] == 12

    def spoilt() -> None:
        spoil(world, WAITING_TYPE.name, poison)
        winner.commit(add("n", 100))

    world.contend(then=spoilt)
    assert world.committer.commit_data("add", "n", operation="own").result == 113
    assert operations(world).count("own") == operations(world).count("beside") == 1


def test_a_writer_whose_outcome_cannot_be_decoded_learns_that_it_is_unknown(world: Waiting) -> None:
    winner = world.process()[1]

    def combine() -> None:
        winner.commit(add("n", 10))
        spoil(world, OUTCOMES_TYPE.name, b"")

    world.contend(then=combine)
    with pytest.raises(CommitUnknown):
        world.committer.commit_data("add", "n", operation="once")
    assert operations(world).count("once") == 1
    assert world.numbers()["n"] == 12


def test_what_cannot_be_decoded_is_read_apart_and_not_cached(world: Waiting) -> None:
    good, bad = world.store.write([Entity(name="good"), Entity(name="bad")])
    absent = ObjectRef("entity", 77)
    key = world.store.key(bad)
    intact = world.backend._objects[key]
    world.backend._objects[key] = replace(intact, value=b"\xff")
    store = world.process()[0]
    [first, second, third] = store.fetch_readable([bad, good, absent])
    assert isinstance(first, CorruptObject)
    assert not isinstance(second, CorruptObject | None)
    assert second.value == Entity(name="good")
    assert third is None
    with pytest.raises(CorruptObject):
        store.fetch_many([good, bad])
    world.backend._objects[key] = intact
    assert store.fetch(bad, Entity)
