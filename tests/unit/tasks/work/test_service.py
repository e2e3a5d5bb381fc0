"""Tasks used by several processes at once: after every lost race the service reads and decides again."""

from collections.abc import Callable
from typing import Any

import pytest

from delegation.tasks.errors import LeaseLost, StoreUnavailable, TaskNotFound
from delegation.tasks.life.model import Status
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease
from delegation.tasks.work.hooks import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, SECOND
from tests.kit.tasks.harness import PERMANENT, TRANSIENT, RacedService, an_hour
from tests.kit.tasks.services import task_service
from tests.services import change_service

# ---- reading, and a whole life


@pytest.mark.parametrize(
    "act",
    [
        lambda service: service.reads.get("x"),
        lambda service: service.leases.acquire("x", "run-1", an_hour),
        lambda service: service.operators.cancel("x"),
        lambda service: service.dispatching.dispatch("x"),
        lambda service: service.dispatching.reconcile("x"),
        lambda service: service.leases.succeed("x", 1, "done"),
    ],
)
def test_every_operation_on_an_unknown_task_raises_not_found(harness: RacedService, act: Any) -> None:
    with pytest.raises(TaskNotFound, match="x"):
        act(harness.service)


def test_a_task_deleted_during_a_decision_is_not_found(harness: RacedService) -> None:
    task_id = harness.submit()
    harness.race(lambda: harness.store.calm._heads.pop(task_id))
    with pytest.raises(TaskNotFound):
        harness.service.operators.cancel(task_id)


def test_a_head_that_keeps_changing_is_unavailable(harness: RacedService) -> None:
    task_id = harness.running()
    harness.race(*[lambda: harness.rival.leases.note(task_id, 1, details={"files_deleted": 1})] * 1000)
    with pytest.raises(StoreUnavailable):
        harness.service.operators.cancel(task_id)
    assert 5 <= 1000 - len(harness.store.rivals) <= 100


# ---- acquiring


def test_acquiring_twice_as_the_same_owner_is_one_attempt(harness: RacedService) -> None:
    task_id = harness.submit()
    first = harness.acquire(task_id)
    harness.clock.advance(MINUTE)
    again = harness.acquire(task_id)
    assert (again.attempt_count, again.version, again.lease.owner) == (1, first.version, "run-1")
    assert again.lease.lost_not_before == first.lease.lost_not_before + MINUTE
    harness.service.leases.start(task_id, 1, effects=False)
    assert harness.acquire(task_id).attempt_count == 1


def test_another_owner_gets_the_task_unchanged(harness: RacedService) -> None:
    task_id = harness.submit()
    held = harness.acquire(task_id)
    assert harness.acquire(task_id, "run-2") == held
    assert harness.service.reads.get(task_id).lease.owner == "run-1"


def test_the_loser_of_a_race_sees_the_winner(harness: RacedService) -> None:
    task_id = harness.submit()
    harness.race(lambda: harness.rival.leases.acquire(task_id, "run-2", an_hour))
    seen = harness.acquire(task_id)
    assert (seen.lease.owner, seen.attempt_count) == ("run-2", 1)
    assert harness.versions(task_id) == ["SUBMITTED", "ACQUIRING_RESOURCES"]


def test_a_touched_head_is_acquired_on_the_second_try(harness: RacedService) -> None:
    task_id = harness.submit()
    harness.race(lambda: harness.rival.dispatching.dispatch(task_id))
    held = harness.acquire(task_id)
    assert (held.lease.owner, held.dispatches.count, held.dispatches.base) == ("run-1", 1, 1)


def test_a_retry_is_acquired_when_it_is_due_and_not_before(harness: RacedService) -> None:
    task_id = harness.running()
    waiting = harness.service.leases.end_attempt(task_id, 1, TRANSIENT)
    harness.clock.now = waiting.next_scheduled_run_ts - SECOND
    assert harness.acquire(task_id, "run-2") == waiting
    harness.clock.advance(SECOND)
    held = harness.acquire(task_id, "run-2")
    assert (held.lease.owner, held.attempt_count) == ("run-2", 2)


@pytest.mark.parametrize("owner", ["run-2", "run-1"])
def test_a_lost_holder_is_replaced_at_once_also_by_itself(harness: RacedService, owner: str) -> None:
    task_id = harness.running()
    harness.clock.advance(HOUR)
    held = harness.acquire(task_id, owner)
    assert (held.lease.owner, held.attempt_count) == (owner, 2)
    assert harness.versions(task_id)[-3:] == ["RUNNING", "RETRY_SCHEDULED", "ACQUIRING_RESOURCES"]
    assert harness.store.calm.get_version(task_id, 4).error_code == "LOST"


def test_a_head_that_was_read_before_saves_the_first_read(harness: RacedService) -> None:
    task_id = harness.submit()
    known = harness.service.reads.get(task_id)
    harness.rival.dispatching.dispatch(task_id)
    held = harness.service.leases.acquire(task_id, "run-1", an_hour, task=known)
    assert (held.lease.owner, held.dispatches.count) == ("run-1", 1)


# ---- holding


def test_a_heartbeat_renews_and_sets_fields_in_one_write(harness: RacedService) -> None:
    task_id = harness.running()
    harness.clock.advance(MINUTE)
    before = len(harness.store.applied)
    beat = harness.service.leases.heartbeat(task_id, 1, an_hour, job_run_id="job-1")
    assert (beat.lease.lost_not_before, beat.job_run_id, beat.version) == (NOW + MINUTE + HOUR, "job-1", 3)
    assert len(harness.store.applied) == before + 1


def test_a_heartbeat_that_moves_nothing_writes_nothing(harness: RacedService) -> None:
    task_id = harness.running()
    before = harness.store.calm.get(task_id)
    assert harness.service.leases.heartbeat(task_id, 1, lambda now: Lease.lasting(HOUR - SECOND, now)) == before
    assert harness.store.calm.get(task_id) == before


def test_a_heartbeat_and_a_cancellation_do_not_overwrite_each_other(harness: RacedService) -> None:
    task_id = harness.running()
    harness.race(lambda: harness.rival.operators.cancel(task_id))
    harness.clock.advance(MINUTE)
    assert harness.service.leases.heartbeat(task_id, 1, an_hour).cancel_requested


LATE: list[Callable[[TaskService, str], object]] = [
    lambda service, task_id: service.leases.heartbeat(task_id, 1, an_hour),
    lambda service, task_id: service.leases.note(task_id, 1, details={"files_deleted": 99}),
    lambda service, task_id: service.leases.start(task_id, 1, effects=True),
    lambda service, task_id: service.leases.succeed(task_id, 1, "done"),
    lambda service, task_id: service.leases.end_attempt(task_id, 1, PERMANENT),
    lambda service, task_id: service.leases.hand_to_next_execution(task_id, 1, "run-1", str),
]


@pytest.mark.parametrize("act", LATE)
def test_a_late_worker_cannot_change_a_reassigned_task(harness, act):
    task_id = harness.running()
    harness.clock.advance(HOUR)
    standing = harness.acquire(task_id, "run-2")
    with pytest.raises(LeaseLost):
        act(harness.service, task_id)
    assert harness.service.reads.get(task_id) == standing
    assert harness.queue.sent == []


@pytest.mark.parametrize("act", LATE)
def test_a_worker_reassigned_while_it_writes_changes_nothing(harness, act):
    task_id = harness.submit()
    harness.acquire(task_id)

    def reassign() -> None:
        harness.clock.advance(HOUR)
        harness.rival.leases.acquire(task_id, "run-2", an_hour)

    harness.clock.advance(MINUTE)
    harness.race(reassign)
    with pytest.raises(LeaseLost):
        act(harness.service, task_id)
    now = harness.service.reads.get(task_id)
    assert (now.lease.owner, now.attempt_count, now.details) == ("run-2", 2, {})


# ---- finishing


def test_a_repeated_success_returns_what_was_recorded(harness: RacedService) -> None:
    """A repeated Lambda call: the first one's answer was lost."""
    task_id = harness.running()
    done = harness.service.leases.succeed(task_id, 1, "deleted 3 files", details={"files_deleted": 3})
    assert harness.service.leases.succeed(task_id, 1, "deleted 0 files", details={"files_deleted": 9}) == done
    assert len({change.after.nonce for change in harness.store.applied}) == len(harness.store.applied) == 3
    with pytest.raises(LeaseLost):
        harness.service.leases.succeed(task_id, 0, "another attempt's")


def test_success_and_failure_race_for_one_outcome(harness: RacedService) -> None:
    task_id = harness.running()
    harness.race(lambda: harness.rival.leases.end_attempt(task_id, 1, PERMANENT))
    with pytest.raises(LeaseLost):
        harness.service.leases.succeed(task_id, 1, "done")
    assert harness.versions(task_id)[-2:] == ["RUNNING", "FAILURE"]


# ---- cancelling


def test_a_held_task_is_requested_to_stop_once_and_a_waiting_one_ends_at_once(harness: RacedService) -> None:
    task_id = harness.running()
    asked = harness.service.operators.cancel(task_id)
    assert (asked.status, asked.cancel_requested, asked.version) == (Status.RUNNING, True, 3)
    assert harness.service.operators.cancel(task_id) == harness.service.operators.retry(task_id) == asked
    ended = harness.service.operators.cancel(harness.submit())
    assert (ended.status, ended.error_code, ended.due_at) == (Status.FAILURE, "CANCELLED", None)
    assert harness.service.operators.cancel(ended.task_id) == ended


def test_cancelling_a_task_that_was_just_acquired_requests_its_holder_to_stop(harness: RacedService) -> None:
    task_id = harness.submit()
    harness.race(lambda: harness.rival.leases.acquire(task_id, "run-2", an_hour))
    asked = harness.service.operators.cancel(task_id)
    assert (asked.status, asked.cancel_requested) == (Status.ACQUIRING_RESOURCES, True)


# ---- other cases


def test_a_process_without_a_queue_leaves_dispatching_to_the_sweeper(harness: RacedService) -> None:
    task_id = harness.submit()
    change_service(harness.service, queue=NoDispatchQueue())
    with pytest.raises(StoreUnavailable, match=task_id):
        harness.service.dispatching.dispatch(task_id)
    assert harness.service.reads.get(task_id).due_at is not None


# ---- submitting again


@pytest.mark.parametrize("again", ["retry", "create"])
def test_a_task_that_is_submitted_again_is_due_and_acquired_at_once(harness: RacedService, again: str) -> None:
    """Without a queue a worker or the next sweep finds it, not the one after the dispatch grace."""
    service = task_service(harness.store, harness.service.policies, clock=harness.clock)
    task_id = harness.running()
    service.leases.end_attempt(task_id, 1, PERMANENT)
    harness.clock.advance(HOUR)
    if again == "retry":
        service.operators.retry(task_id)
    else:
        service.submission.create(service.submission.first(task_id=task_id, task_type="TABLE_PURGE", payload="{}"))
    assert service.reads.get(task_id).status is Status.SUBMITTED
    assert [entry.task_id for entry in service.reads.due(harness.clock(), limit=1)] == [task_id]
    assert service.leases.acquire(task_id, "run-2", an_hour).attempt_count == 2


# ---- ending an attempt


def test_ending_an_attempt_again_after_a_lost_answer_returns_what_was_recorded_with_a_bounded_summary(harness) -> None:
    task_id = harness.running()
    error = AttemptError("BROKEN", "x" * 5000, ErrorClass.TRANSIENT)
    given = harness.service.leases.end_attempt(task_id, 1, error)
    assert (given.status, given.result_summary) == (Status.RETRY_SCHEDULED, "x" * 1023 + "…")
    assert harness.service.leases.end_attempt(task_id, 1, error) == given


def test_backoff_grows_while_throttling_lasts(harness: RacedService) -> None:
    task_id, waits = harness.submit(), []
    for attempt in range(1, 5):
        harness.acquire(task_id)
        error = AttemptError("SLOW_DOWN", "slow down", ErrorClass.THROTTLED)
        at = harness.service.leases.end_attempt(task_id, attempt, error).next_scheduled_run_ts
        waits.append(at - harness.clock.now)
        harness.clock.now = at
    assert waits == [30 * SECOND, MINUTE, 2 * MINUTE, 4 * MINUTE]
