"""The commit loop, call by call: its writes, its round trips, and the objects that it leaves."""

from dataclasses import replace

import pytest

from polaris_persistence.backends.base import COPIED_BYTES, RECENT_HEADS
from polaris_persistence.commits.commits import Changed, CommitAttempt, Committed
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.errors import (
    BackendUnavailable,
    CommitContended,
    CommitUnknown,
    CorruptObject,
    ReferenceNotFound,
)
from polaris_persistence.objects.objects import ObjectRef
from tests.persistence.builders import (
    Entity,
    Head,
    add,
    put,
)
from tests.persistence.commits.commit_world import DOWN, LOST, RETRY, UNCONTENDED, CommitWorld, Refusal, times

LARGE = "a" * COPIED_BYTES
"""A name that makes a head too large to be copied into its reference."""


def test_commits_to_a_missing_reference_raise(world: CommitWorld) -> None:
    other = Committer(world.store, "other", Head)
    with pytest.raises(ReferenceNotFound, match="other"):
        other.commit(put("a", 1))
    assert world.backend.stored_ids("head") == set()


def test_simple_case(world: CommitWorld) -> None:
    first = world.committer.commit(put("a", 1), operation="one")
    second = world.committer.commit(put("b", 2), operation="two")
    assert world.numbers() == {"a": 1, "b": 2}
    reference = world.store.current_reference("main")
    assert reference.heads == (second.commit_id, first.commit_id)
    log = list(world.committer.log())
    assert [(one.key.id, one.value.seq, one.value.operations) for one in log] == [
        (second.commit_id, 2, ("two",)),
        (first.commit_id, 1, ("one",)),
    ]


def test_simple_immediately_successful_commit_takes_two_round_trips(world: CommitWorld) -> None:
    world.committer.commit(add("a"))
    world.calls()
    for _ in range(5):
        world.committer.commit(add("a"))
        assert world.calls() == UNCONTENDED


def test_a_head_known_for_longer_than_20_ms_is_checked_first(world: CommitWorld) -> None:
    world.committer.commit(add("a"))
    world.process()[1].commit(put("b", 1))
    world.clock.advance(0.03)
    rows = world.backend.rows
    world.calls()
    world.committer.commit(add("a"))
    assert world.calls() == ["read_reference", *UNCONTENDED]
    assert world.backend.rows == rows + 2


@pytest.mark.parametrize(
    ("name", "reading", "retry"), [("a", [], UNCONTENDED), (LARGE, ["fetch_many"], RETRY)], ids=["small", "large"]
)
def test_a_head_that_is_not_copied_into_its_reference_is_read_by_a_cold_process_and_after_a_lost_attempt(
    world: CommitWorld, name: str, reading: list[str], retry: list[str]
) -> None:
    """The refused swap returns the new head's id, so the reference is not read again."""
    world.committer.commit(put(name, 1))
    world.calls()
    world.process()[1].commit(put("b", 2))
    assert world.calls() == ["read_reference", *reading, *UNCONTENDED]
    world.committer.commit(put("c", 3))
    assert world.calls() == [*UNCONTENDED, *retry, "delete_many"]
    assert world.numbers() == {name: 1, "b": 2, "c": 3}


def test_write_successful_commit_after_four_retries(world: CommitWorld) -> None:
    world.committer.commit(put("a", 1))
    times(world, 4)
    done = world.committer.commit(put("a", 2))
    assert world.numbers()["a"] == 2
    assert len(world.clock.slept) == 4
    # The objects of lost attempts are deleted; entities that the head names or named before are kept.
    assert len(world.backend.stored_ids("entity")) == 1 + 4 + 1
    assert len(world.backend.stored_ids("head")) == 1 + 4 + 1
    assert done.commit_id in world.backend.stored_ids("head")


def test_write_once_successful_commit_after_four_retries_writes_the_entity_once(world: CommitWorld) -> None:
    world.committer.commit(put("a", 1))
    made: list[int] = []

    def change(attempt: CommitAttempt[Head]) -> Changed[Head, ObjectRef]:
        assert attempt.head is not None
        source = attempt.head.entities["a"]

        def make() -> Entity:
            made.append(source.id)
            return Entity(name="a", number=2)

        ref = attempt.write_once("a", source, make)
        return Changed(attempt.head.model_copy(update={"entities": {**attempt.head.entities, "a": ref}}), ref)

    times(world, 4)
    rows = world.backend.rows
    done = world.committer.commit(change)
    assert len(made) == 1
    # The entity once and five heads; an entity and a head for each of four rivals; four lost heads deleted.
    assert world.backend.rows - rows == 6 + 8 + 4
    assert world.numbers()["a"] == 2
    assert done.result.id in world.reachable()


def test_exhausted_retries_leave_no_objects(world: CommitWorld) -> None:
    world.committer.commit(put("a", 1))
    times(world, 100)
    with pytest.raises(CommitContended, match="main"):
        world.committer.commit(put("a", 2), operation="never")
    world.backend.meanwhile.clear()
    assert world.numbers()["a"] == 1
    log = list(world.committer.log())
    assert {one.key.id for one in log} == world.backend.stored_ids("head")
    assert not any(one.value.operations for one in log)


def test_waits_between_retries_grow_to_their_maximum_and_are_random() -> None:
    policy = CommitRetries(first_wait=0.01, max_wait=0.1)
    assert [policy.wait(attempt, 1.0) for attempt in range(6)] == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.1, 0.1])
    assert policy.wait(3, 0.25) == pytest.approx(0.02)
    assert policy.wait(2_000 - 1_000, 0.0) == 0


def test_failing_commit_must_delete_all_objs(world: CommitWorld) -> None:
    world.committer.commit(put("a", 1))
    before = world.backend.stored_ids("entity")
    rival = world.process()[1]
    rival.commit(put("b", 1))

    def change(attempt: CommitAttempt[Head]) -> Changed[Head, None]:
        assert attempt.head is not None
        if "b" in attempt.head.entities:
            attempt.write(Entity(name="never"))
            raise Refusal("b is there")
        attempt.write_once("x", None, lambda: Entity(name="x"))
        attempt.write(Entity(name="y"))
        return Changed(attempt.head, None)

    with pytest.raises(Refusal):
        world.committer.commit(change)
    assert world.backend.stored_ids("entity") == before | world.reachable()
    assert len(world.backend.stored_ids("head")) == 2


def test_same_ref_pointer_must_not_write_objs(world: CommitWorld) -> None:
    """A change that leaves the head alone writes nothing and moves nothing."""
    world.committer.commit(put("a", 1))
    before = world.store.current_reference("main")
    world.calls()

    def change(attempt: CommitAttempt[Head]) -> Changed[Head, str]:
        attempt.write(Entity(name="dropped"))
        return Changed(None, "as it is")

    assert world.committer.commit(change) == Committed("as it is", None)
    assert world.calls() == ["read_reference"]
    assert world.store.current_reference("main") == before
    assert len(world.backend.stored_ids("entity")) == 1


def test_a_refusal_on_an_old_head_is_retried_on_the_current_one(world: CommitWorld) -> None:
    world.committer.commit(put("a", 1))
    world.process()[1].commit(put("b", 1))

    def needs_b(attempt: CommitAttempt[Head]) -> Changed[Head, str]:
        if attempt.head is None or "b" not in attempt.head.entities:
            raise Refusal("no b")
        return Changed(None, "found")

    assert world.committer.commit(needs_b).result == "found"


def test_multi_entity_commits_are_atomic(world: CommitWorld) -> None:
    """If the store fails after half of the objects, the head names none of them and none remains."""

    def both(attempt: CommitAttempt[Head]) -> Changed[Head, None]:
        entities = {name: attempt.write(Entity(name=name, number=1)) for name in ("a", "b", "c")}
        return Changed((attempt.head or Head()).model_copy(update={"entities": entities}), None)

    world.committer.commit(put("z", 0))
    rows = iter([None, None, DOWN])
    plain = world.backend.before

    def before(operation: str) -> None:
        plain(operation)
        if operation == "put_row" and (fault := next(rows, None)):
            raise fault

    world.backend.before = before
    with pytest.raises(BackendUnavailable):
        world.committer.commit(both)
    assert world.numbers() == {"z": 0}
    assert world.backend.stored_ids("entity") == world.reachable()
    world.committer.commit(both)
    assert world.numbers() == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("fault", [LOST, ValueError("the answer has no body")])
@pytest.mark.parametrize("applied", [True, False])
def test_unknown_outcome_of_the_swap_is_reconciled(world: CommitWorld, applied: bool, fault: Exception) -> None:
    world.committer.commit(add("a"))
    world.calls()
    faults = world.backend.fail_after if applied else world.backend.fail_before
    faults["replace_reference"] = [fault]
    done = world.committer.commit(add("a"), operation="op")
    again = [] if applied else ["replace_reference"]
    assert world.calls() == [*UNCONTENDED, "read_reference", *again]
    assert world.numbers() == {"a": 2}
    log = list(world.committer.log())
    assert [one.key.id for one in log if "op" in one.value.operations] == [done.commit_id]


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("rivals", [1, RECENT_HEADS - 1, RECENT_HEADS, RECENT_HEADS + 30])
def test_unknown_outcome_is_reconciled_after_later_commits(world: CommitWorld, applied: bool, rivals: int) -> None:
    """The commit is among the recent heads, or further back in the log."""
    world.committer.commit(add("a"))
    rival = world.process()[1]

    def others() -> None:
        for number in range(rivals):
            rival.commit(put(f"r{number}", 0))

    world.backend.meanwhile["read_reference"] = [lambda: None, others]
    (world.backend.fail_after if applied else world.backend.fail_before)["replace_reference"] = [LOST]
    # A separate reader, so that the next read is that of the swap.
    world.committer.head()
    done = world.committer.commit(add("a"), operation="op")
    assert done.result == 2
    assert world.numbers()["a"] == 2
    assert [one.key.id for one in world.committer.log() if "op" in one.value.operations] == [done.commit_id]


@pytest.mark.parametrize("applied", [True, False])
def test_unknown_and_unreadable_outcome_raises_commit_unknown_and_deletes_nothing(
    world: CommitWorld, applied: bool
) -> None:
    world.committer.commit(add("a"))
    world.calls()
    world.backend.fail_before["replace_reference"] = [None if applied else LOST, *[DOWN] * 100]
    world.backend.fail_after["replace_reference"] = [LOST]
    world.backend.fail_before["read_reference"] = [DOWN] * 100
    with pytest.raises(CommitUnknown) as caught:
        world.committer.commit(add("a"))
    world.backend.fail_before.clear()
    world.backend.fail_after.clear()
    assert "delete_many" not in world.calls()
    assert caught.value.commit_id in world.backend.stored_ids("head")
    assert any(one.key.id == caught.value.commit_id for one in world.committer.log()) == applied
    assert world.committer.commit(add("a")).result == (3 if applied else 2)


def test_a_swap_that_arrives_late_never_wins_after_another(world: CommitWorld) -> None:
    """The first swap arrives after the repeated one has made the commit."""
    world.committer.commit(add("a"))
    known = world.store.current_reference("main")
    world.backend.fail_before["replace_reference"] = [LOST]
    done = world.committer.commit(add("a"))
    assert done.commit_id
    late = world.backend.replace_reference(known.moved_to(done.commit_id), expected=known)
    assert late is not None
    assert world.numbers() == {"a": 2}


def test_a_deletion_that_fails_does_not_fail_the_commit(world: CommitWorld) -> None:
    world.committer.commit(add("a"))
    world.process()[1].commit(put("b", 1))
    world.backend.fail_before["delete_many"] = [DOWN]
    assert world.committer.commit(add("a")).result == 2


def test_a_missing_head_raises_corrupt_object(world: CommitWorld) -> None:
    done = world.committer.commit(put(LARGE, 1))
    world.store.delete([ObjectRef("head", done.commit_id or 0)])
    fresh = world.process()[1]
    with pytest.raises(CorruptObject, match=str(done.commit_id)):
        fresh.commit(put("b", 1))
    with pytest.raises(CorruptObject):
        fresh.head()


def test_an_old_head_that_was_swept_does_not_fail_the_commit(world: CommitWorld) -> None:
    old = world.committer.commit(put("a", 1))
    world.process()[1].commit(put("b", 1))
    world.store.delete([ObjectRef("head", old.commit_id or 0)])
    world.committer.commit(put("c", 1))
    assert world.numbers() == {"a": 1, "b": 1, "c": 1}


def test_commit_times_never_go_back(world: CommitWorld) -> None:
    world.committer.commit(put("a", 1))
    world.clock.advance(-100)
    world.committer.commit(put("a", 2))
    times_ = [one.value.created_at for one in world.committer.log()]
    assert times_[0] == times_[1]


def test_a_reference_deleted_during_a_commit_raises(world: CommitWorld) -> None:
    world.committer.commit(put("a", 1))
    world.backend.delete_reference(world.store.reference_key("main"))
    with pytest.raises(ReferenceNotFound):
        world.committer.commit(put("a", 2))
    assert len(world.backend.stored_ids("head")) == 1


def test_a_reference_created_again_is_another_one(world: CommitWorld) -> None:
    """A commit whose outcome is unknown is not found in a reference that was deleted and created since."""
    world.committer.commit(put("a", 1))
    reference = world.store.current_reference("main")

    def create_again() -> None:
        world.backend.delete_reference(reference.key)
        world.backend.create_reference(replace(reference, heads=(), version=0, created_at=5))

    world.backend.fail_after["replace_reference"] = [LOST]
    world.backend.meanwhile["read_reference"] = [create_again]
    done = world.committer.commit(put("a", 2))
    assert world.store.current_reference("main").heads == (done.commit_id,)
