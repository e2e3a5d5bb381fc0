"""A worker runs a Spark job with the steps of the state machine."""

import threading
from collections.abc import Callable

import pytest

from delegation.orchestration.job_engine import JobEngine
from delegation.orchestration.job_runs import JobRefused, JobRun, JobServiceUnavailable
from delegation.tasks.life.model import Status, Task
from tests.kit.tasks.builders import HOUR, MINUTE, SECOND
from tests.kit.tasks.driven import Driven, RecordedJobs


class ScriptedJob(Driven):
    """A held task, its job engine, and a script of what happens at each wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.script: list[Callable[[], object]] = []
        self.stopping = threading.Event()
        self.engine = JobEngine(self.tasks, self.jobs, wait=self.wait)
        self.held = self.tasks.leases.acquire(self.task_id, "worker:a:1:1", self.steps._lasting)

    def wait(self, _event: threading.Event, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(seconds * SECOND)
        if self.script:
            self.script.pop(0)()

    def drive(self) -> Task:
        return self.engine.drive(self.held, self.stopping)

    @property
    def job(self) -> str:
        return f"{self.task_id}-1"


@pytest.fixture
def site() -> ScriptedJob:
    return ScriptedJob()


def test_a_job_is_started_polled_and_its_outcome_read(site: ScriptedJob) -> None:
    def succeeds() -> None:
        site.tasks.leases.succeed(site.task_id, 1, "purged")
        site.jobs.become(site.job, "SUCCESS")

    site.script = [lambda: site.jobs.become(site.job, "RUNNING"), succeeds]
    assert site.drive().status is Status.SUCCESS
    assert site.jobs.started == [(site.job, ["--task-id", site.task_id, "--attempt", "1"])]


def test_the_lease_is_kept_while_the_job_waits_to_start(site: ScriptedJob) -> None:
    def waits() -> None:
        site.clock.advance(50 * MINUTE)

    site.script = [waits] * 4 + [site.stopping.set]
    leases: list[object] = []
    ask = site.jobs.get

    def asked(run_id: str) -> JobRun | None:
        leases.append(site.task.lease.lost_not_before)
        return ask(run_id)

    site.jobs.get = asked
    assert site.drive().error_code == "HANDED_OVER"
    assert len(set(leases)) == 4
    assert leases[-1] > site.held.lease.lost_not_before + 2 * HOUR


def test_a_worker_that_stops_ends_the_job_and_hands_the_task_over(site: ScriptedJob) -> None:
    site.script = [lambda: site.jobs.become(site.job, "RUNNING"), site.stopping.set]
    after = site.drive()
    assert (after.status, after.error_code, after.unexcused_attempts) == (Status.RETRY_SCHEDULED, "HANDED_OVER", 0)
    assert site.jobs.cancelled == [site.job]


def test_a_call_to_an_unavailable_job_service_is_repeated(site: ScriptedJob) -> None:
    class Unavailable(RecordedJobs):
        def get(self, run_id: str):
            raise JobServiceUnavailable("EMR Serverless answered ThrottlingException to get_job_run")

    available = site.jobs.get
    site.jobs.get = Unavailable().get

    def back() -> None:
        site.jobs.get = available
        site.jobs.become(site.job, "FAILED")

    site.script = [lambda: None, lambda: None, back]
    assert site.drive().error_code == "JOB_FAILED"


def test_a_worker_that_stops_while_the_job_service_is_unavailable_keeps_the_task(site: ScriptedJob) -> None:
    """The sweeper cancels the job before it ends the lost attempt; the next attempt may run inline and cancel none."""

    def unavailable(_run_id: str) -> None:
        raise JobServiceUnavailable("EMR Serverless could not be reached: ReadTimeoutError")

    site.jobs.cancel = unavailable
    site.script = [site.stopping.set]
    after = site.drive()
    assert (after.is_held, after.attempt_count) == (True, 1)


def test_a_worker_that_stops_and_may_not_cancel_the_job_still_hands_over(site: ScriptedJob) -> None:
    def refuses(_run_id: str) -> None:
        raise JobRefused("EMR Serverless answered AccessDeniedException to cancel_job_run")

    site.jobs.cancel = refuses
    site.script = [site.stopping.set]
    assert site.drive().error_code == "HANDED_OVER"


def test_a_task_that_another_worker_holds_is_left_to_it(site: ScriptedJob) -> None:
    site.clock.advance(2 * HOUR)
    site.tasks.leases.acquire(site.task_id, "worker:b:1:1", site.steps._lasting)
    after = site.drive()
    assert (after.lease.owner, after.attempt_count) == ("worker:b:1:1", 2)
    assert site.jobs.started == []


def test_an_outage_of_the_job_service_costs_a_worker_no_attempt(site: ScriptedJob) -> None:
    def unavailable(*_arguments: object, **_named: object) -> str:
        raise JobServiceUnavailable("EMR Serverless answered ServiceQuotaExceededException to start_job_run")

    site.jobs.start = unavailable  # type: ignore[method-assign]
    after = site.drive()
    assert (after.status, after.error_code, after.unexcused_attempts) == (Status.RETRY_SCHEDULED, "JOB_NOT_STARTED", 0)
    assert len(site.waits) == 6
