"""Calls repeated after a lost answer, and throttling that lasts."""

from datetime import timedelta

from delegation.tasks.life.model import Status
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.base import Create
from delegation.tasks.work.service import TaskService
from tests.kit.tasks.builders import HOUR, Clock, submitted
from tests.kit.tasks.services import task_service

THROTTLED = AttemptError("SLOW_DOWN", "slow down", ErrorClass.THROTTLED)
BROKEN = AttemptError("BROKEN", "x" * 5000, ErrorClass.TRANSIENT)


def service(clock: Clock) -> TaskService:
    return task_service(clock=clock)


def test_ending_an_attempt_again_after_a_lost_answer_returns_what_was_recorded() -> None:
    tasks = service(Clock())
    task = tasks.reads.store.apply(Create(submitted()))
    tasks.leases.acquire(task.task_id, "w", lambda now: Lease.lasting(HOUR, now))
    given = tasks.leases.end_attempt(task.task_id, 1, BROKEN)
    assert given.status is Status.RETRY_SCHEDULED
    assert tasks.leases.end_attempt(task.task_id, 1, BROKEN) == given


def test_a_summary_is_bounded() -> None:
    tasks = service(Clock())
    task = tasks.reads.store.apply(Create(submitted()))
    tasks.leases.acquire(task.task_id, "w", lambda now: Lease.lasting(HOUR, now))
    summary = tasks.leases.end_attempt(task.task_id, 1, BROKEN).result_summary
    assert summary == "x" * 1023 + "…"


def test_backoff_grows_while_throttling_lasts() -> None:
    clock = Clock()
    tasks = service(clock)
    task = tasks.reads.store.apply(Create(submitted()))
    waits: list[timedelta] = []
    for attempt in range(1, 5):
        tasks.leases.acquire(task.task_id, "w", lambda now: Lease.lasting(HOUR, now))
        at = tasks.leases.end_attempt(task.task_id, attempt, THROTTLED).next_scheduled_run_ts
        assert at is not None
        waits.append(at - clock.now)
        clock.now = at
    assert [wait.total_seconds() for wait in waits] == [30, 60, 120, 240]
