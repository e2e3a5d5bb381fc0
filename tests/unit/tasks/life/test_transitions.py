"""Every allowed change of status is possible, every other one refused; the table follows the documents."""

from datetime import timedelta, timezone
from itertools import product
from typing import Any

import pytest

from delegation.tasks.errors import IllegalTransition, LeaseLost
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Dispatches, Status, Task, TaskLease
from delegation.tasks.life.policy import DispatchPolicy, Lease
from tests.kit.tasks.builders import (
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    acquired,
    failed,
    in_status,
    retried,
    started,
    submitted,
)

LATER = NOW + HOUR

ARROWS = {
    ("SUBMITTED", "ACQUIRING_RESOURCES"),
    ("SUBMITTED", "RUNNING"),
    ("SUBMITTED", "FAILURE"),
    ("ACQUIRING_RESOURCES", "RUNNING"),
    ("ACQUIRING_RESOURCES", "RETRY_SCHEDULED"),
    ("ACQUIRING_RESOURCES", "FAILURE"),
    ("RUNNING", "SUCCESS"),
    ("RUNNING", "RETRY_SCHEDULED"),
    ("RUNNING", "FAILURE"),
    ("RETRY_SCHEDULED", "ACQUIRING_RESOURCES"),
    ("RETRY_SCHEDULED", "RUNNING"),
    ("RETRY_SCHEDULED", "FAILURE"),
    ("FAILURE", "SUBMITTED"),
    ("SUCCESS", "SUBMITTED"),
}
PAIRS = list(product(Status, Status))


def fitting(task: Task, target: Status) -> dict[str, Any]:
    """Return the fields that a record of the target status needs."""
    free = {"lease": task.lease.ended(), "next_scheduled_run_ts": None}
    match target:
        case Status.SUBMITTED | Status.RETRY_SCHEDULED:
            return {**free, "next_scheduled_run_ts": LATER, "error_code": None}
        case Status.ACQUIRING_RESOURCES | Status.RUNNING:
            return {
                "lease": TaskLease(owner="worker-1", acquired_ts=NOW, lost_not_before=LATER, recheck_not_before=LATER),
                "next_scheduled_run_ts": None,
                "attempt_count": task.attempt_count + 1,
            }
        case _:
            return {**free, "due_at": None, "error_code": "REASON"}


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda status: status.value)
def test_arrows(source: Status, target: Status) -> None:
    before = in_status(source)
    if (source.value, target.value) in ARROWS:
        after = t.transition(before, target, LATER, **fitting(before, target))
        assert (after.status, after.version, after.last_status_change_ts) == (target, before.version + 1, LATER)
        assert (after.task_id, after.created_ts, after.revision) == (before.task_id, before.created_ts, before.revision)
    else:
        with pytest.raises(IllegalTransition) as refusal:
            t.transition(before, target, LATER, **fitting(before, target))
        assert (refusal.value.source, refusal.value.target) == (source, target)


def acquire(task: Task) -> Task:
    return t.acquire(task, "worker-9", LATER, Lease(LATER + HOUR, LATER + MINUTE))


def begin(task: Task) -> Task:
    return t.start(task, task.attempt_count, LATER)


def succeed(task: Task) -> Task:
    return t.succeed(task, task.attempt_count, LATER, summary="done")


def fail(task: Task) -> Task:
    return t.fail(task, LATER, code="REASON", summary="it broke")


def retry(task: Task) -> Task:
    return t.schedule_retry(task, LATER, at=LATER + MINUTE, grace=SECOND, code="REASON", summary="it broke")


def resubmit(task: Task) -> Task:
    return t.resubmit(task, LATER, payload="{}", synchronous=False, grace=MINUTE, restarted={})


EVENTS = {
    acquire: {"SUBMITTED": "ACQUIRING_RESOURCES", "RETRY_SCHEDULED": "ACQUIRING_RESOURCES"},
    begin: {"ACQUIRING_RESOURCES": "RUNNING", "RUNNING": "RUNNING"},
    succeed: {"RUNNING": "SUCCESS"},
    fail: dict.fromkeys(("SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "RETRY_SCHEDULED"), "FAILURE"),
    retry: {"ACQUIRING_RESOURCES": "RETRY_SCHEDULED", "RUNNING": "RETRY_SCHEDULED"},
    resubmit: {"FAILURE": "SUBMITTED", "SUCCESS": "SUBMITTED"},
}


@pytest.mark.parametrize(
    ("event", "status"), list(product(EVENTS, Status)), ids=lambda value: getattr(value, "__name__", value)
)
def test_every_event_changes_the_status_as_allowed_or_not_at_all(event: Any, status: Status) -> None:
    before = in_status(status)
    expected = EVENTS[event].get(status.value)
    if expected is None:
        with pytest.raises((IllegalTransition, LeaseLost)):
            event(before)
        return
    after = event(before)
    assert after.status == expected
    assert after.version == before.version + (after.status is not before.status)


def test_acquiring_counts_the_attempt_and_sets_the_lease() -> None:
    held = t.acquire(submitted(dispatches=Dispatches(count=3)), "run-1", LATER, Lease(LATER + HOUR, LATER + MINUTE))
    assert held.lease == TaskLease(
        owner="run-1", acquired_ts=LATER, lost_not_before=LATER + HOUR, recheck_not_before=LATER + MINUTE
    )
    assert (held.attempt_count, held.due_at, held.next_scheduled_run_ts) == (1, LATER + HOUR, None)
    assert held.dispatches.base == 3


@pytest.mark.parametrize("status", Status, ids=lambda status: status.value)
def test_every_write_of_a_former_attempt_is_refused(status: Status) -> None:
    """Attempt 1 was retried as attempt 2: every write of the former holder is refused by its fencing token."""
    task = in_status(status)
    stale = task.attempt_count - 1
    acts = (
        lambda: t.held_by(task, stale),
        lambda: t.renew(task, stale, Lease(LATER, LATER)),
        lambda: t.start(task, stale, LATER),
        lambda: t.succeed(task, stale, LATER, summary="done"),
    )
    for act in acts:
        with pytest.raises(LeaseLost) as refusal:
            act()
        assert (refusal.value.attempt, refusal.value.current) == (stale, task.attempt_count)


@pytest.mark.parametrize("status", ["SUBMITTED", "RETRY_SCHEDULED", "SUCCESS", "FAILURE"])
def test_a_waiting_or_terminal_task_has_no_holder(status: str) -> None:
    task = in_status(Status(status))
    with pytest.raises(LeaseLost):
        t.held_by(task, task.attempt_count)


@pytest.mark.parametrize("status", ["ACQUIRING_RESOURCES", "RUNNING"])
def test_a_heartbeat_moves_the_deadlines_and_adds_no_version(status: str) -> None:
    task = in_status(Status(status))
    beat = t.renew(task, 1, Lease(NOW + 2 * HOUR, NOW + HOUR))
    assert (beat.lease.lost_not_before, beat.lease.recheck_not_before) == (NOW + 2 * HOUR, NOW + HOUR)
    assert beat.due_at == NOW + 2 * HOUR
    assert (beat.version, beat.status, beat.attempt_count) == (task.version, task.status, 1)


def test_a_heartbeat_never_shortens_a_lease() -> None:
    task = in_status(Status.RUNNING)
    beat = t.renew(task, 1, Lease(NOW + SECOND, NOW + SECOND))
    assert beat.lease == task.lease
    assert beat.due_at == beat.lease.lost_not_before


def test_starting_again_changes_nothing() -> None:
    running = started(acquired(submitted()))
    assert t.start(running, 1, LATER) is running
    marked = t.start(running, 1, LATER, effects=True)
    assert (marked.effects_began_ts, marked.version) == (LATER, running.version)
    assert t.start(marked, 1, LATER + HOUR, effects=True) is marked


def test_the_time_of_the_first_delete_is_kept_until_the_task_starts_from_the_beginning() -> None:
    stopped = retried(started(acquired(submitted()), effects=True))
    again = started(acquired(stopped, now=LATER), LATER, effects=True)
    assert again.effects_began_ts == NOW
    ended = failed(again)
    same_plan = t.resubmit(ended, LATER, payload="{}", synchronous=True, grace=MINUTE, restarted=None)
    new_plan = t.resubmit(ended, LATER, payload="{}", synchronous=True, grace=MINUTE, restarted={})
    assert (same_plan.effects_began_ts, new_plan.effects_began_ts) == (NOW, None)


@pytest.mark.parametrize("end", [succeed, fail, retry], ids=lambda end: end.__name__)
def test_the_end_of_an_attempt_ends_its_lease_and_a_terminal_task_is_never_due(end: Any) -> None:
    ended = end(in_status(Status.RUNNING))
    assert ended.lease == TaskLease(acquired_ts=NOW)
    if end is not retry:
        assert (ended.due_at, ended.next_scheduled_run_ts, ended.eta_ts) == (None, None, None)


def test_a_retry_waits_and_is_due_after_the_grace() -> None:
    waiting = retry(in_status(Status.RUNNING))
    assert (waiting.next_scheduled_run_ts, waiting.due_at) == (LATER + MINUTE, LATER + MINUTE + SECOND)
    assert (waiting.error_code, waiting.result_summary) == ("REASON", "it broke")


def test_success_clears_the_error_of_former_attempts_but_not_their_history() -> None:
    won = succeed(started(acquired(retried(acquired(submitted())))))
    assert (won.error_code, won.result_summary) == (None, "done")
    assert "attempt 1 TIMEOUT: timed out" in (won.result_extended or "")


def test_errors_are_kept_newest_last_and_bounded() -> None:
    task = submitted()
    for n in range(40):
        held = acquired(task)
        task = t.schedule_retry(held, NOW, at=NOW, grace=MINUTE, code=f"E{n}", summary=f"{n} " + "x" * 2000)
    history = task.result_extended or ""
    assert len(history) == 32_768
    assert history.rindex("attempt 40 E39: 39 x") > history.rindex("attempt 39 E38: 38 x")
    assert "attempt 1 E0" not in history


def test_resubmitting_resets_the_retry_budget_and_the_outcome() -> None:
    lost = failed(acquired(retried(acquired(submitted(synchronous=True, dispatches=Dispatches(count=4))))))
    lost = lost.evolve(cancel_requested=True, throttled_count=3, dispatches=lost.dispatches.evolve(count=9))
    again = t.resubmit(lost, LATER, payload='{"n":2}', synchronous=False, grace=MINUTE, restarted=None)
    assert (again.attempt_count, again.attempts_excused, again.throttled_count) == (2, 2, 0)
    assert (again.dispatches.base, again.dispatches.count) == (9, 9)
    assert (again.cancel_requested, again.synchronous) == (False, False)
    assert (again.error_code, again.result_summary, again.result_extended) == (None, None, None)
    assert (again.task_payload, again.received_timestamp, again.created_ts) == ('{"n":2}', LATER, NOW)
    assert (again.next_scheduled_run_ts, again.due_at) == (LATER, LATER + MINUTE)


@pytest.mark.parametrize("restarted", [{"tier": 1}, {}, None])
def test_a_restarted_task_gets_new_details_a_resumed_one_keeps_them(restarted: dict[str, int] | None) -> None:
    ended = in_status(Status.FAILURE).evolve(details={"done": 4}, effects_began_ts=NOW, progress_ts=NOW)
    again = t.resubmit(ended, LATER, payload="{}", synchronous=False, grace=MINUTE, restarted=restarted)
    assert again.details == ({"done": 4} if restarted is None else restarted)
    assert (again.effects_began_ts, again.progress_ts) == ((NOW, NOW) if restarted is None else (None, None))


def test_a_dispatch_is_counted_with_the_time_of_the_next_check() -> None:
    task = submitted(dispatches=Dispatches(count=2))
    policy = DispatchPolicy()
    sent = policy.counted(task, NOW)
    assert (sent.dispatches.count, sent.due_at) == (3, policy.next_check(task, NOW))
    assert (sent.version, sent.status) == (1, Status.SUBMITTED)


@pytest.mark.parametrize("zone", [timedelta(hours=-5), timedelta(hours=9)], ids=str)
def test_the_history_of_errors_is_in_utc_whatever_clock_was_passed(zone: timedelta) -> None:
    local = NOW.astimezone(timezone(zone))
    assert (t.fail(submitted(), local, code="X", summary="y").result_extended or "").startswith("2026-11-21T12:00:00Z ")
