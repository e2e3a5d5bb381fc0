"""The job of a lost attempt is cancelled before the loss is recorded, whatever the task becomes then."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pytest

from delegation.orchestration.failures import Step
from delegation.orchestration.job_runs import ExternalJobRuns, JobRefused, JobRun, JobServiceUnavailable
from delegation.orchestration.sweep import Swept, sweep
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import Dispatches, Status, Task
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.base import Create
from delegation.tasks.work.hooks import INLINE, SPARK, JobsLeftToSweeper, NoExternalJobs
from delegation.tasks.work.worker import lease_next_available_task
from tests.kit.clocks import Clock
from tests.kit.tasks.builders import HOUR, MINUTE, submitted
from tests.kit.tasks.driven import Driven, RecordedJobs
from tests.services import change_service

TASK_TYPE = "TABLE_PURGE"


@dataclass
class WatchedJobs(RecordedJobs):
    """Calls `at_cancel` at each cancellation; every call raises `error` if it is set."""

    at_cancel: Callable[[], object] = lambda: None
    error: Exception | None = None
    listed: list[str] = field(default_factory=list)

    def active(self, prefix: str, *, as_of: datetime | None = None) -> list[JobRun]:
        self.listed.append(prefix)
        if self.error is not None:
            raise self.error
        return list(super().active(prefix))

    def cancel(self, run_id: str) -> None:
        if self.error is not None:
            raise self.error
        self.at_cancel()
        super().cancel(run_id)


class LostJob(Driven):
    """One task with an attempt that runs as a job, a sweeper and a worker."""

    jobs: WatchedJobs

    def __init__(self, **fields: Any) -> None:
        jobs, clock = WatchedJobs(), Clock()
        runs = ExternalJobRuns(jobs, rest_seconds=30, now=lambda: clock().timestamp())
        super().__init__(jobs, runs, clock, **fields)
        self.job = f"{self.task_id}-1"
        self.acquire()

    def hangs(self) -> None:
        self.steps.start_job(self.step)
        self.jobs.become(self.job, "RUNNING")
        self.clock.advance(2 * HOUR)

    def sweep(self, **asked: Any) -> list[Swept]:
        deadline = self.clock() + MINUTE
        return list(sweep(self.tasks, {TASK_TYPE}, deadline=deadline, clock=self.clock, **asked))

    def lease(self) -> Task | None:
        return lease_next_available_task(self.tasks, "worker:b:1:1", {TASK_TYPE}, lambda now: Lease.lasting(HOUR, now))


@pytest.fixture
def site() -> LostJob:
    return LostJob()


def last_attempt(site: LostJob) -> None:
    most = site.tasks.policies.retry(TASK_TYPE)
    change_service(site.tasks, policies=replace(site.tasks.policies, default=replace(most, max_attempts=1), by_type={}))


def fails_when_lost(site: LostJob) -> None:
    change_service(site.tasks, policies=replace(site.tasks.policies, fail_when_lost=frozenset({TASK_TYPE})))


def cancelled(site: LostJob) -> None:
    site.tasks.operators.cancel(site.task_id)


@pytest.mark.parametrize(
    ("ends", "status", "code"),
    [
        (lambda _site: None, Status.RETRY_SCHEDULED, "LOST"),
        (last_attempt, Status.FAILURE, "LOST"),
        (fails_when_lost, Status.FAILURE, "LOST"),
        (cancelled, Status.FAILURE, "CANCELLED"),
    ],
    ids=["retried", "exhausted", "not-retried-when-lost", "cancelled"],
)
def test_the_sweeper_cancels_the_job_of_a_lost_attempt_first(site, ends, status, code):
    held: list[bool] = []
    site.jobs.at_cancel = lambda: held.append(site.task.is_held)
    site.hangs()
    ends(site)
    site.sweep()
    assert (site.task.status, site.task.error_code) == (status, code)
    assert site.jobs.cancelled == [site.job]
    assert held == [True]


def test_a_worker_cancels_the_job_before_it_acquires_the_task(site: LostJob) -> None:
    """The new attempt may run inline, and then cancels no former job."""
    held: list[int] = []
    site.jobs.at_cancel = lambda: held.append(site.task.attempt_count)
    site.hangs()
    leased = site.lease()
    assert (leased.attempt_count, leased.job_run_id, leased.engine) == (2, None, None)
    assert site.jobs.cancelled == [site.job]
    assert held == [1]


def test_a_crash_between_the_cancellation_and_the_record_is_repaired(site: LostJob) -> None:
    site.hangs()

    def crashes(point: str) -> None:
        if point == "before apply":
            raise StoreUnavailable("the process crashed here")

    site.store.fault = crashes
    assert [type(one.error) for one in site.sweep()] == [StoreUnavailable]
    assert site.task.is_held
    site.store.fault = lambda _point: None
    site.sweep()
    assert site.task.error_code == "LOST"
    assert site.jobs.cancelled == [site.job, site.job]


def test_while_the_job_service_is_unavailable_no_loss_is_recorded_and_no_task_is_hidden(site: LostJob) -> None:
    site.hangs()
    others = [site.store.apply(Create(submitted(dispatches=Dispatches(count=1)))).task_id for _ in range(3)]
    site.clock.advance(HOUR)
    site.jobs.error = JobServiceUnavailable("EMR Serverless answered ThrottlingException to list_job_runs")
    swept = site.sweep(limit=1)
    assert {one.after.task_id for one in swept if one.after} == {site.task_id, *others}
    assert [one.after.task_id for one in swept if one.after and one.unsettled] == [site.task_id]
    assert site.task.is_held
    assert site.lease() is None or site.task.is_held
    assert [site.tasks.reads.get(task_id).dispatches.count for task_id in others] == [2, 2, 2]
    site.jobs.error = None
    site.clock.advance(MINUTE)
    site.sweep()
    assert site.task.error_code == "LOST"
    assert site.jobs.cancelled == [site.job]


def test_an_unavailable_job_service_is_called_once_per_sweep(site: LostJob) -> None:
    """Each call may end with a time-out, and a sweep has time for only a few."""
    site.hangs()
    for _ in range(5):
        other = site.store.apply(Create(submitted(dispatches=Dispatches(count=1)))).task_id
        site.steps.acquire(Step(other, 1), site.clock() + MINUTE)
    site.clock.advance(2 * HOUR)
    site.jobs.listed.clear()
    site.jobs.error = JobServiceUnavailable("EMR Serverless could not be reached: ConnectTimeoutError")
    site.sweep()
    assert len(site.jobs.listed) == 1
    site.clock.advance(MINUTE)
    site.jobs.error = None
    assert {one.after.error_code for one in site.sweep() if one.after} == {"LOST"}
    assert len(site.jobs.listed) == 1 + 6


def test_a_refused_cancellation_does_not_stop_the_recovery(site: LostJob) -> None:
    site.hangs()
    site.jobs.error = JobRefused("EMR Serverless answered AccessDeniedException to cancel_job_run")
    site.sweep()
    assert site.task.error_code == "LOST"


def test_a_lease_that_is_renewed_at_the_last_moment_is_kept(site: LostJob) -> None:
    site.hangs()
    site.jobs.at_cancel = lambda: site.tasks.leases.heartbeat(site.task_id, 1, lambda now: Lease.lasting(HOUR, now))
    site.sweep()
    assert (site.task.is_held, site.task.attempt_count) == (True, 1)


def test_the_next_attempt_has_its_job_cancelled_before_its_loss_too(site: LostJob) -> None:
    """At the time of the write a later attempt is lost, whose job was not cancelled."""
    site.hangs()

    def overtaken() -> None:
        site.jobs.at_cancel = lambda: None
        site.tasks.leases.acquire(site.task_id, "worker:c:1:1", lambda now: Lease.lasting(HOUR, now))
        site.jobs.start(f"{site.task_id}-2", [])
        site.tasks.leases.note(site.task_id, 2, engine=SPARK, job_run_id=f"{site.task_id}-2")
        site.clock.advance(2 * HOUR)

    site.jobs.at_cancel = overtaken
    site.tasks.dispatching.reconcile(site.task_id)
    assert (site.task.is_held, site.task.attempt_count) == (True, 2)
    site.sweep()
    assert site.task.error_code == "LOST"
    assert f"{site.task_id}-2" in site.jobs.cancelled


EXECUTION, WORKER = "{task_id}-1", "worker:a:1:1"


@pytest.mark.parametrize(
    ("external_jobs", "owner", "engine", "run_id", "lost"),
    [
        (NoExternalJobs(), EXECUTION, None, None, True),
        (NoExternalJobs(), EXECUTION, INLINE, None, True),
        (NoExternalJobs(), EXECUTION, SPARK, None, False),
        (NoExternalJobs(), EXECUTION, SPARK, "job", False),
        (JobsLeftToSweeper(), EXECUTION, None, None, False),
        (JobsLeftToSweeper(), EXECUTION, INLINE, None, True),
        (JobsLeftToSweeper(), EXECUTION, SPARK, "job", False),
        (JobsLeftToSweeper(), WORKER, None, None, True),
        (JobsLeftToSweeper(), WORKER, None, "job", False),
    ],
)
def test_a_process_that_cannot_end_jobs_leaves_attempts_that_may_have_one(
    site: LostJob,
    external_jobs: NoExternalJobs | JobsLeftToSweeper,
    owner: str,
    engine: str | None,
    run_id: str | None,
    *,
    lost: bool,
) -> None:
    owner = owner.format(task_id=site.task_id)
    lease = site.task.lease.evolve(owner=owner)
    site.tasks.leases.note(site.task_id, 1, lease=lease, engine=engine, job_run_id=run_id)
    change_service(site.tasks, external_jobs=external_jobs)
    site.clock.advance(2 * HOUR)
    assert (site.lease() is not None) is lost
    assert site.task.attempt_count == (2 if lost else 1)


def test_start_job_cancels_a_job_that_it_started_after_the_loss(site: LostJob) -> None:
    """The step was paused between reading the task and starting the job, and its attempt was found lost meanwhile."""
    begin = site.jobs.start

    def starts_late(name: str, arguments: list[str], _folders: object, **_settings: object) -> str:
        site.clock.advance(2 * HOUR)
        site.sweep()
        return begin(name, arguments)

    site.jobs.start = starts_late  # type: ignore[method-assign]
    assert site.steps.start_job(site.step)["next"] == "complete"
    assert site.task.error_code == "LOST"
    assert site.jobs.cancelled == [site.job]


def test_a_repeated_start_of_a_lost_attempt_cancels_its_job(site: LostJob) -> None:
    """The invocation that started it crashed before it could cancel it, and Step Functions repeats the step."""
    site.clock.advance(2 * HOUR)
    site.sweep()
    site.jobs.start(site.job, [])
    site.jobs.start(f"{site.job}0", [])
    assert site.steps.start_job(site.step)["next"] == "complete"
    assert site.jobs.cancelled == [site.job]
