"""Injected faults of DynamoDB: a fault is never reported as a lost race, nor a lost race as a fault.

moto applies a repeated ClientRequestToken a second time, as DynamoDB does after ten minutes; so a repeated transaction
finds both of its conditions failed by its own first try.
"""

from collections.abc import Callable

import pytest

from delegation.tasks.errors import OutcomeUnknown, RevisionConflict, StaleTask, StoreUnavailable, TaskExists
from delegation.tasks.life.model import Task
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import Adopt, Advance, Child, Create, Expect, Revise
from polaris_common.dynamodb import to_item
from tests.kit.tasks.builders import acquired, started, submitted, touched
from tests.unit.tasks.stores.dynamodb_bench import (
    CHANGES,
    REFUSALS,
    TRIES,
    UNCLEAR,
    Bench,
    Case,
    advancing,
    applied_once,
    errors,
    not_applied,
    revising,
    rival_of,
)
from tests.unit.tasks.stores.faulty_client import Fault, answered, cancelled, read_timeout

# ---- faults that pass


@CHANGES
@errors(REFUSALS | UNCLEAR)
def test_a_fault_before_the_write_is_tried_again(bench, make, error):
    case, times = make(bench), TRIES - 1
    bench.client.writes = [Fault(error)] * times
    assert bench.store.apply(case.change) == case.after
    applied_once(bench, case)
    assert len(bench.waits) == times
    assert all(0 < wait <= 1 for wait in bench.waits)


@CHANGES
@errors(UNCLEAR)
def test_a_lost_answer_is_recognized_on_the_next_try(bench, make, error):
    """Head and row both refuse the repeated write: they contain its nonce."""
    case = make(bench)
    bench.client.writes = [Fault(error, applied=True)]
    assert bench.store.apply(case.change) == case.after
    applied_once(bench, case)
    tries = bench.client.tried("put_item", "transact_write_items")
    assert len(tries) == 2
    assert tries[0] == tries[1]
    assert tries[0].get("ClientRequestToken", case.after.nonce) == case.after.nonce


# ---- faults that stay


@CHANGES
@errors(REFUSALS)
def test_a_store_that_accepts_nothing_is_unavailable(bench, make, error):
    case = make(bench)
    bench.client.writes = [Fault(error)] * TRIES
    with pytest.raises(StoreUnavailable):
        bench.store.apply(case.change)
    not_applied(bench, case)
    assert len(bench.client.tried("put_item", "transact_write_items")) == TRIES


@CHANGES
@errors(UNCLEAR)
@pytest.mark.parametrize("when", range(TRIES))
def test_an_unknown_outcome_is_resolved_by_reading_back(bench, make, error, when):
    case = make(bench)
    bench.client.writes = [Fault(error, applied=n == when) for n in range(when + 1)]
    bench.client.writes += [Fault(read_timeout)] * (TRIES - when - 1)
    assert bench.store.apply(case.change) == case.after
    applied_once(bench, case)


@CHANGES
@errors(UNCLEAR)
def test_an_outcome_stays_unknown_while_the_write_may_still_arrive(bench, make, error):
    case = make(bench)
    bench.client.writes = [Fault(error)] + [Fault(REFUSALS["throttled"])] * (TRIES - 1)
    with pytest.raises(OutcomeUnknown):
        bench.store.apply(case.change)
    not_applied(bench, case)


@CHANGES
@pytest.mark.parametrize("applied", [True, False])
@errors({"no table": answered("ResourceNotFoundException"), "denied": answered("AccessDeniedException")})
def test_a_final_error_does_not_hide_an_earlier_unclear_answer(bench, make, applied, error):
    case = make(bench)
    bench.client.writes = [Fault(read_timeout, applied=applied), Fault(error)]
    if applied:
        assert bench.store.apply(case.change) == case.after
        applied_once(bench, case)
    else:
        with pytest.raises(OutcomeUnknown):
            bench.store.apply(case.change)


@CHANGES
@pytest.mark.parametrize("applied", [True, False])
def test_an_outcome_that_cannot_be_read_back_is_unknown_not_unwritten(bench, make, applied):
    case = make(bench)
    bench.client.writes = [Fault(read_timeout, applied=applied)] + [Fault(read_timeout)] * (TRIES - 1)
    bench.client.reads = [Fault(read_timeout)] * 100
    with pytest.raises(OutcomeUnknown):
        bench.store.apply(case.change)


def test_a_refusal_whose_winner_cannot_be_read_is_unknown(bench: Bench) -> None:
    """The row exists already and the head cannot be read: both may come from this very write."""
    case = advancing(bench)
    bench.client.writes = [Fault(read_timeout, applied=True), Fault(cancelled("None", "ConditionalCheckFailed"))]
    bench.client.reads = [Fault(read_timeout)] * 100
    with pytest.raises(OutcomeUnknown):
        bench.store.apply(case.change)


@errors({"no table": answered("ResourceNotFoundException"), "denied": answered("AccessDeniedException")})
def test_an_error_that_will_not_change_is_not_tried_again(bench: Bench, error: Callable[[str], Exception]) -> None:
    case = advancing(bench)
    bench.client.writes = [Fault(error)]
    with pytest.raises(StoreUnavailable, match="Exception"):
        bench.store.apply(case.change)
    assert bench.waits == []


# ---- faults and rivals together


@CHANGES
@errors(REFUSALS | UNCLEAR)
def test_a_race_lost_after_a_fault_is_a_lost_race(bench, make, error):
    case = make(bench)
    rivals: list[Task] = []
    bench.client.between = [lambda: rivals.append(rival_of(bench, case.change))]
    bench.client.writes = [Fault(error)]
    with pytest.raises((TaskExists, StaleTask, RevisionConflict)) as lost:
        bench.store.apply(case.change)
    assert lost.value.stored == rivals[0]
    assert bench.rival.get(case.after.task_id) == rivals[0]
    not_applied(bench, case)


@CHANGES
def test_a_race_lost_with_faults_on_every_try_is_a_lost_race(bench: Bench, make: Callable[[Bench], Case]) -> None:
    """Reading back shows a head that this change can no longer follow: that is an answer."""
    case = make(bench)
    rivals: list[Task] = []
    bench.client.between = [lambda: rivals.append(rival_of(bench, case.change))]
    bench.client.writes = [Fault(read_timeout)] * TRIES
    with pytest.raises((TaskExists, StaleTask, RevisionConflict)) as lost:
        bench.store.apply(case.change)
    assert lost.value.stored == rivals[0]
    not_applied(bench, case)


def test_an_applied_advance_is_recognized_below_a_rivals_heartbeat(bench: Bench) -> None:
    case = advancing(bench)
    bench.client.between = [lambda: bench.rival.apply(Revise(case.after, touched(case.after, files_deleted=5)))]
    bench.client.writes = [Fault(read_timeout, applied=True)]
    assert bench.store.apply(case.change).details == {"files_deleted": 5}
    assert len(bench.rival.history(case.after.task_id)) == 2


def test_an_applied_advance_is_recognized_below_a_rivals_next_version(bench: Bench) -> None:
    case = advancing(bench)
    following = started(case.after)
    bench.client.between = [lambda: bench.rival.apply(Advance(case.after, following))]
    bench.client.writes = [Fault(read_timeout, applied=True)] + [Fault(read_timeout)] * (TRIES - 1)
    assert bench.store.apply(case.change) == following
    assert [row.version for row in bench.rival.history(case.after.task_id)] == [1, 2, 3]


def test_a_head_write_that_a_rival_wrote_over_may_have_been_applied(bench: Bench) -> None:
    """Nothing shows it any more, and it does not matter: the head changed, so the caller reads and decides again."""
    case = revising(bench)
    again = touched(case.after, dispatches=case.after.dispatches.evolve(count=2))
    bench.client.between = [lambda: bench.rival.apply(Revise(case.after, again))]
    bench.client.writes = [Fault(read_timeout, applied=True)]
    with pytest.raises(RevisionConflict) as conflict:
        bench.store.apply(case.change)
    assert conflict.value.stored.dispatches.count == 2


def test_an_expectation_is_read_and_never_written(bench: Bench) -> None:
    task = bench.rival.apply(Create(submitted()))
    assert bench.store.apply(Expect(task)) == task
    assert bench.client.tried("put_item", "transact_write_items") == []


# ---- a row that must not be there


@pytest.mark.parametrize("through", [False, True], ids=["the last version", "a version on the way"])
def test_a_row_is_never_written_over(bench: Bench, through: bool) -> None:
    """A head that was restored from a backup finds the rows of versions after it: history is not rewritten."""
    task = bench.rival.apply(Create(submitted()))
    held = acquired(task)
    following = started(held).evolve(revision=held.revision, nonce=held.nonce)
    restored = codec.row_item(acquired(task, "another"))
    bench.client.put_item(TableName=bench.store.table, Item=to_item(restored))
    with pytest.raises((StaleTask, RevisionConflict)):
        bench.store.apply(Advance(task, following, via=(held,)) if through else Advance(task, held))
    assert bench.rival.get_version(task.task_id, 2).lease.owner == "another"
    assert bench.rival.get(task.task_id) == task


def test_a_child_that_is_adopted_again_meanwhile_is_not_disowned(bench: Bench) -> None:
    """After the children were listed, and before the records of two of them are deleted."""
    task = bench.rival.apply(Create(submitted()))
    for name in ("one", "other"):
        bench.rival.apply(Adopt(task, task, Child(name, 1, "CHILD", "{}")))
    listed = bench.store.children(task.task_id)
    bench.rival.apply(Adopt(task, task, Child("one", 2, "CHILD", "{}")))
    bench.store.children = lambda _task_id: listed  # type: ignore[method-assign]
    assert bench.store.disown(task.task_id, 1) == 1
    assert bench.rival.children(task.task_id) == [Child("one", 2, "CHILD", "{}")]
    assert bench.rival.parents("one") == {task.task_id: 2}
    assert bench.rival.parents("other") == {}
