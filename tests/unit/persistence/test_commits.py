"""The commit loop, call by call: what it writes, how often it goes to the store, and what it leaves behind."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from delegation.persistence.backend import RECENT_HEADS
from delegation.persistence.commits import TAIL, Attempt, Changed, Committed
from delegation.persistence.committer import Committer, RetryPolicy
from delegation.persistence.errors import (
    BackendUnavailable,
    CommitContended,
    CommitUnknown,
    CorruptObject,
    OutcomeUnknown,
    ReferenceNotFound,
)
from delegation.persistence.log import in_log, read_log
from delegation.persistence.objects import ObjectRef
from delegation.persistence.store import CatalogStore
from tests.unit.persistence.builders import (
    CountingBackend,
    Entity,
    FakeClock,
    Head,
    add,
    committer_on,
    put,
    store_on,
)

LOST = OutcomeUnknown("cut off")
DOWN = BackendUnavailable("down")
UNCONTENDED = ["put_many", "replace_reference"]
RETRY = ["fetch_many", "put_many", "replace_reference"]


class Refusal(Exception):
    """A requirement that was not met."""


class World:
    """One store, and processes that each have a cache and a committer of their own."""

    def __init__(self) -> None:
        self.backend = CountingBackend()
        self.clock = FakeClock()
        self._ids = itertools.count(1)
        self.first = self.process()
        self.store, self.committer = self.first
        self.store.create_reference("main")

    def process(self, **more: object) -> tuple[CatalogStore, Committer[Head]]:
        store = store_on(self.backend, self.clock, ids=self._ids.__next__)
        return store, committer_on(store, self.clock, **more)

    def calls(self) -> list[str]:
        made = list(self.backend.calls)
        self.backend.calls.clear()
        return made

    def numbers(self) -> dict[str, int]:
        """Name and number of every entity of the current head, read as a new process would."""
        store, committer = self.process()
        head = committer.head()
        assert head is not None
        found = {name: store.fetch(ref, Entity) for name, ref in head.value.entities.items()}
        return {name: one.value.number for name, one in found.items() if one}

    def reachable(self) -> set[int]:
        head = self.process()[1].head()
        return {ref.id for ref in head.value.entities.values()} if head else set()


@pytest.fixture
def world() -> World:
    return World()


def times(world: World, count: int) -> None:
    """Another process commits before each of the next `count` swaps."""
    rival = world.process()[1]
    numbers = itertools.count()

    def meanwhile() -> None:
        queue = world.backend.meanwhile.pop("replace_reference", [])
        rival.commit(put(f"rival{next(numbers)}", 0))
        world.backend.meanwhile["replace_reference"] = queue

    world.backend.meanwhile["replace_reference"] = [meanwhile] * count


def test_non_existing_reference_throws(world: World) -> None:
    other = Committer(world.store, "other", Head)
    with pytest.raises(ReferenceNotFound, match="other"):
        other.commit(put("a", 1))
    assert world.backend.stored_ids("head") == set()


def test_simple_case(world: World) -> None:
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


def test_simple_immediately_successful_commit_takes_two_round_trips(world: World) -> None:
    world.committer.commit(add("a"))
    world.calls()
    for _ in range(5):
        world.committer.commit(add("a"))
        assert world.calls() == UNCONTENDED


def test_a_cold_process_adds_two_reads(world: World) -> None:
    world.committer.commit(put("a", 1))
    cold = world.process()[1]
    world.calls()
    cold.commit(put("b", 2))
    assert world.calls() == ["read_reference", "fetch_many", *UNCONTENDED]


def test_each_lost_attempt_costs_three_round_trips(world: World) -> None:
    """The refused swap tells the new head, so the reference is not read again."""
    world.committer.commit(put("a", 1))
    rival = world.process()[1]
    rival.commit(put("b", 2))
    world.calls()
    world.committer.commit(put("c", 3))
    assert world.calls() == [*UNCONTENDED, *RETRY, "delete_many"]
    assert world.numbers() == {"a": 1, "b": 2, "c": 3}


def test_write_successful_commit_after_four_retries(world: World) -> None:
    world.committer.commit(put("a", 1))
    times(world, 4)
    done = world.committer.commit(put("a", 2))
    assert world.numbers()["a"] == 2
    assert len(world.clock.slept) == 4
    # What the lost attempts wrote is gone: entities that the head names and those it named before are left.
    assert len(world.backend.stored_ids("entity")) == 1 + 4 + 1
    assert len(world.backend.stored_ids("head")) == 1 + 4 + 1
    assert done.commit_id in world.backend.stored_ids("head")


def test_write_once_successful_commit_after_four_retries_writes_the_entity_once(world: World) -> None:
    world.committer.commit(put("a", 1))
    made: list[int] = []

    def change(attempt: Attempt[Head]) -> Changed[Head, ObjectRef]:
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


def test_memoized_results_are_not_reused_when_the_entity_changed(world: World) -> None:
    world.committer.commit(add("a"))
    rival = world.process()[1]
    rival.commit(add("a", 10))
    done = world.committer.commit(add("a"))
    assert done.result == 12
    assert world.numbers() == {"a": 12}
    assert len(world.backend.stored_ids("entity")) == 3


def test_retries_end_and_leave_nothing(world: World) -> None:
    world.committer.commit(put("a", 1))
    times(world, 100)
    with pytest.raises(CommitContended, match="main"):
        world.committer.commit(put("a", 2), operation="never")
    world.backend.meanwhile.clear()
    assert world.numbers()["a"] == 1
    log = list(world.committer.log())
    assert {one.key.id for one in log} == world.backend.stored_ids("head")
    assert not any(one.value.operations for one in log)


def test_retries_end_with_their_time(world: World) -> None:
    world.committer.commit(put("a", 1))
    slow = world.process(retry=RetryPolicy(tries=1_000, seconds=3.0, first_wait=1.0, max_wait=1.0))[1]
    times(world, 1_000)
    with pytest.raises(CommitContended):
        slow.commit(put("a", 2))
    assert len(world.clock.slept) <= 7


def test_waits_between_retries_grow_to_their_maximum_and_are_drawn() -> None:
    policy = RetryPolicy(first_wait=0.01, max_wait=0.1)
    assert [policy.wait(attempt, 1.0) for attempt in range(6)] == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.1, 0.1])
    assert policy.wait(3, 0.25) == pytest.approx(0.02)
    assert policy.wait(2_000 - 1_000, 0.0) == 0


def test_failing_commit_must_delete_all_objs(world: World) -> None:
    world.committer.commit(put("a", 1))
    before = world.backend.stored_ids("entity")
    rival = world.process()[1]
    rival.commit(put("b", 1))

    def change(attempt: Attempt[Head]) -> Changed[Head, None]:
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


def test_same_ref_pointer_must_not_write_objs(world: World) -> None:
    """A change that leaves the head alone writes nothing and moves nothing."""
    world.committer.commit(put("a", 1))
    before = world.store.current_reference("main")
    world.calls()

    def change(attempt: Attempt[Head]) -> Changed[Head, str]:
        attempt.write(Entity(name="dropped"))
        return Changed(None, "as it is")

    assert world.committer.commit(change) == Committed("as it is", None)
    assert world.calls() == ["read_reference"]
    assert world.store.current_reference("main") == before
    assert len(world.backend.stored_ids("entity")) == 1


def test_a_refusal_on_an_old_head_is_no_refusal(world: World) -> None:
    world.committer.commit(put("a", 1))
    world.process()[1].commit(put("b", 1))

    def needs_b(attempt: Attempt[Head]) -> Changed[Head, str]:
        if attempt.head is None or "b" not in attempt.head.entities:
            raise Refusal("no b")
        return Changed(None, "found")

    assert world.committer.commit(needs_b).result == "found"


def test_multi_entity_commits_are_atomic(world: World) -> None:
    """Half of the objects are stored when the store fails: the head shows none of them, and none is left."""

    def both(attempt: Attempt[Head]) -> Changed[Head, None]:
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


@pytest.mark.parametrize("applied", [True, False])
def test_unknown_outcome_of_the_swap_is_resolved_by_reading(world: World, applied: bool) -> None:
    world.committer.commit(add("a"))
    world.calls()
    faults = world.backend.fail_after if applied else world.backend.fail_before
    faults["replace_reference"] = [LOST]
    done = world.committer.commit(add("a"), operation="op")
    again = [] if applied else ["replace_reference"]
    assert world.calls() == [*UNCONTENDED, "read_reference", *again]
    assert world.numbers() == {"a": 2}
    log = list(world.committer.log())
    assert [one.key.id for one in log if "op" in one.value.operations] == [done.commit_id]


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("rivals", [1, RECENT_HEADS - 1, RECENT_HEADS, RECENT_HEADS + 30])
def test_unknown_outcome_is_resolved_when_others_committed_since(world: World, applied: bool, rivals: int) -> None:
    """Among the recent heads, or further back in the log."""
    world.committer.commit(add("a"))
    rival = world.process()[1]

    def others() -> None:
        for number in range(rivals):
            rival.commit(put(f"r{number}", 0))

    world.backend.meanwhile["read_reference"] = [lambda: None, others]
    (world.backend.fail_after if applied else world.backend.fail_before)["replace_reference"] = [LOST]
    # A reader of its own, so that the next reading is the one of the swap.
    world.committer.head()
    done = world.committer.commit(add("a"), operation="op")
    assert done.result == 2
    assert world.numbers()["a"] == 2
    assert [one.key.id for one in world.committer.log() if "op" in one.value.operations] == [done.commit_id]


@pytest.mark.parametrize("applied", [True, False])
def test_unknown_and_unreadable_outcome_is_told_and_nothing_is_deleted(world: World, applied: bool) -> None:
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


def test_a_swap_that_arrives_late_never_wins_after_another(world: World) -> None:
    """The first swap is on its way when the commit is made by the second one; it arrives last."""
    world.committer.commit(add("a"))
    known = world.store.current_reference("main")
    world.backend.fail_before["replace_reference"] = [LOST]
    done = world.committer.commit(add("a"))
    assert done.commit_id
    late = world.backend.replace_reference(known.moved_to(done.commit_id), expected=known)
    assert late is not None
    assert world.numbers() == {"a": 2}


def test_a_deletion_that_fails_does_not_fail_the_commit(world: World) -> None:
    world.committer.commit(add("a"))
    world.process()[1].commit(put("b", 1))
    world.backend.fail_before["delete_many"] = [DOWN]
    assert world.committer.commit(add("a")).result == 2


def test_a_head_that_does_not_exist_is_told(world: World) -> None:
    done = world.committer.commit(put("a", 1))
    world.store.delete([ObjectRef("head", done.commit_id or 0)])
    fresh = world.process()[1]
    with pytest.raises(CorruptObject, match=str(done.commit_id)):
        fresh.commit(put("b", 1))
    with pytest.raises(CorruptObject):
        fresh.head()


def test_an_old_head_that_was_swept_is_not_missed(world: World) -> None:
    old = world.committer.commit(put("a", 1))
    world.process()[1].commit(put("b", 1))
    world.store.delete([ObjectRef("head", old.commit_id or 0)])
    world.committer.commit(put("c", 1))
    assert world.numbers() == {"a": 1, "b": 1, "c": 1}


def test_commit_logs_and_offsets(world: World) -> None:
    ids = [world.committer.commit(put("a", number)).commit_id for number in range(3 * TAIL + 5)]
    store, cold = world.process()
    world.calls()
    assert [one.key.id for one in cold.log()] == ids[::-1]
    assert world.calls() == ["read_reference", *["fetch_many"] * 5]
    middle = ids[TAIL + 3]
    assert [one.key.id for one in read_log(store, middle, Head)] == ids[TAIL + 3 :: -1]
    assert list(read_log(store, None, Head)) == []


def test_commit_log_short_tail(world: World) -> None:
    """Heads that name fewer ancestors than usual, as another release may write them."""
    store = world.store
    ids: list[int] = []
    for seq in range(1, 12):
        [ref] = store.write([Head(seq=seq, tail=tuple(ids[::-1][: 1 + seq % 3]))])
        ids.append(ref.id)
    cold = world.process()[0]
    assert [one.key.id for one in read_log(cold, ids[-1], Head)] == ids[::-1]


def test_commit_log_ends_where_maintenance_removed_the_rest(world: World) -> None:
    ids = [world.committer.commit(put("a", number)).commit_id or 0 for number in range(10)]
    world.store.delete([ObjectRef("head", id_) for id_ in ids[:4]])
    store, cold = world.process()
    assert [one.key.id for one in cold.log()] == ids[:3:-1]
    assert in_log(store, ids[-1], ids[5], 6, Head) is True
    assert in_log(store, ids[-1], ids[4], 6, Head) is False
    assert in_log(store, ids[-1], ids[1], 2, Head) is None


class Gate:
    """Holds the first swap until as many commits as wanted wait behind it."""

    def __init__(self, world: World) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        world.backend.meanwhile["replace_reference"] = [self._hold]

    def _hold(self) -> None:
        self.reached.set()
        assert self.opened.wait(30)


def queued(committer: Committer[Head], count: int) -> None:
    """Return once `count` commits wait for their turn."""
    while len(committer._queue) < count:
        threading.Event().wait(0.001)


def test_synchronizing_locally_groups_concurrent_commits_into_one_swap(world: World) -> None:
    world.committer.commit(put("start", 0))
    world.calls()
    gate = Gate(world)
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(world.committer.commit, add("n"), operation="0")
        assert gate.reached.wait(30)
        rest = [pool.submit(world.committer.commit, add("n"), operation=str(number)) for number in range(1, 20)]
        queued(world.committer, 19)
        gate.opened.set()
        results = [done.result() for done in [first, *rest]]
    assert sorted(done.result for done in results) == list(range(1, 21))
    assert world.calls() == [*UNCONTENDED, *UNCONTENDED]
    assert len({done.commit_id for done in results}) == 2
    log = list(world.committer.log())
    assert sorted(int(name) for one in log for name in one.value.operations) == list(range(20))
    assert world.numbers() == {"start": 0, "n": 20}


def test_each_commit_of_a_group_has_its_own_outcome(world: World) -> None:
    world.committer.commit(put("start", 0))

    def refuse(attempt: Attempt[Head]) -> Changed[Head, int]:
        attempt.write(Entity(name="never"))
        raise Refusal("no")

    def bug(attempt: Attempt[Head]) -> Changed[Head, int]:
        raise ZeroDivisionError

    def look(attempt: Attempt[Head]) -> Changed[Head, int]:
        assert attempt.head is not None
        found = attempt.fetch(attempt.head.entities["n"], Entity)
        assert found
        return Changed(None, found.value.number)

    gate = Gate(world)
    with ThreadPoolExecutor(8) as pool:
        holding = pool.submit(world.committer.commit, add("n"))
        assert gate.reached.wait(30)
        done = []
        for number, change in enumerate([add("n"), refuse, bug, add("n"), look], 1):
            done.append(pool.submit(world.committer.commit, change))
            queued(world.committer, number)
        gate.opened.set()
        assert holding.result().result == 1
        assert done[0].result().result == 2
        with pytest.raises(Refusal):
            done[1].result()
        with pytest.raises(ZeroDivisionError):
            done[2].result()
        assert done[3].result().result == 3
        # It saw what was not stored yet when it looked, and was told only when it was.
        assert done[4].result() == Committed(3, None)
    # One entity for the start, one for the first commit, two for the group; the refused one wrote nothing.
    assert len(world.backend.stored_ids("entity")) == 4


def test_a_group_that_loses_is_decided_again_on_the_new_head(world: World) -> None:
    world.committer.commit(put("start", 0))

    def only_without_rival(attempt: Attempt[Head]) -> Changed[Head, str]:
        if attempt.head and "rival" in attempt.head.entities:
            raise Refusal("rival is there")
        return Changed(put("mine", 1)(attempt).head, "alone")

    rival = world.process()[1]
    gate = Gate(world)
    with ThreadPoolExecutor(8) as pool:
        holding = pool.submit(world.committer.commit, add("n"))
        assert gate.reached.wait(30)
        done = [pool.submit(world.committer.commit, change) for change in (add("n"), only_without_rival)]
        queued(world.committer, 2)
        rival.commit(put("rival", 7))
        gate.opened.set()
        assert holding.result().result == 1
        assert done[0].result().result == 2
        with pytest.raises(Refusal):
            done[1].result()
    assert world.numbers() == {"start": 0, "rival": 7, "n": 2}
    assert world.backend.stored_ids("entity") >= world.reachable()


def test_a_store_failure_fails_the_whole_group_and_the_next_one_goes_on(world: World) -> None:
    world.committer.commit(put("start", 0))
    gate = Gate(world)
    world.backend.fail_before["replace_reference"] = [None, DOWN]
    with ThreadPoolExecutor(8) as pool:
        holding = pool.submit(world.committer.commit, add("n"))
        assert gate.reached.wait(30)
        done = [pool.submit(world.committer.commit, add("n")) for _ in range(3)]
        queued(world.committer, 3)
        gate.opened.set()
        assert holding.result().result == 1
        for one in done:
            with pytest.raises(BackendUnavailable):
                one.result()
    assert world.committer.commit(add("n")).result == 2
    assert world.backend.stored_ids("entity") >= world.reachable()


def test_groups_hold_at_most_their_size() -> None:
    world = World()
    committer = world.process(group_size=3)[1]
    committer.commit(put("start", 0))
    world.calls()
    gate = Gate(world)
    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(committer.commit, add("n"))]
        assert gate.reached.wait(30)
        done += [pool.submit(committer.commit, add("n")) for _ in range(7)]
        queued(committer, 7)
        gate.opened.set()
        assert sorted(one.result().result for one in done) == list(range(1, 9))
    assert world.calls() == UNCONTENDED * 4


def test_without_grouping_threads_race_and_all_succeed() -> None:
    world = World()
    committer = world.process(group_size=1, retry=RetryPolicy(tries=500, seconds=1e9))[1]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: committer.commit(add("n")), range(60)))
    assert world.numbers() == {"n": 60}
    assert len(list(committer.log())) == 60


def test_the_head_is_sealed_once_for_a_group(world: World) -> None:
    sealed: list[int] = []

    def seal(head: Head, attempt: Attempt[Head]) -> Head:
        sealed.append(len(head.entities))
        ref = attempt.write(Entity(name="stripe", number=len(head.entities)))
        return head.model_copy(update={"entities": {**head.entities, "stripe": ref}})

    committer = world.process(seal=seal)[1]
    committer.commit(put("a", 1))
    committer.commit(put("b", 1))
    assert sealed == [1, 3]
    assert world.numbers() == {"a": 1, "b": 1, "stripe": 3}


def test_commit_times_never_go_back(world: World) -> None:
    world.committer.commit(put("a", 1))
    world.clock.advance(-100)
    world.committer.commit(put("a", 2))
    times_ = [one.value.created_at for one in world.committer.log()]
    assert times_[0] == times_[1]


def test_a_reference_deleted_under_a_commit_is_told(world: World) -> None:
    world.committer.commit(put("a", 1))
    world.backend.delete_reference(world.store.reference_key("main"))
    with pytest.raises(ReferenceNotFound):
        world.committer.commit(put("a", 2))
    assert len(world.backend.stored_ids("head")) == 1


def test_a_reference_made_anew_is_another_one(world: World) -> None:
    """A commit whose outcome is unknown is not found in a reference that was deleted and created since."""
    world.committer.commit(put("a", 1))
    reference = world.store.current_reference("main")

    def anew() -> None:
        world.backend.delete_reference(reference.key)
        world.backend.create_reference(replace(reference, heads=(), version=0, created_at=5))

    world.backend.fail_after["replace_reference"] = [LOST]
    world.backend.meanwhile["read_reference"] = [anew]
    done = world.committer.commit(put("a", 2))
    assert world.store.current_reference("main").heads == (done.commit_id,)
