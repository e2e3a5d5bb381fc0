"""An executor's checkpoint before each batch: the rules of its driver, without a write to the task."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from delegation.errors import RunCancelled
from delegation.removal.task_attempt import watched
from delegation.tasks.errors import LeaseLost, TaskNotFound
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease, LeasePolicy, Policies, RetryPolicy
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.memory import MemoryTaskStore
from tests.kit.tasks.builders import HOUR, SECOND, Clock, submitted
from tests.kit.tasks.services import task_service


class Job:
    """A leased task whose driver is another process; the test moves both clocks."""

    def __init__(self) -> None:
        self.clock = Clock()
        store = MemoryTaskStore()
        self.tasks = task_service(store, Policies(RetryPolicy(), {}, lease=LeasePolicy(HOUR)), clock=self.clock)
        self.task_id = store.apply(Create(submitted())).task_id
        self.acquire()

    def acquire(self) -> int:
        held = self.tasks.leases.acquire(self.task_id, "driver", lambda now: Lease.lasting(HOUR, now))
        return held.attempt_count

    def executor(self, attempt: int = 1) -> Callable[[], None]:
        return watched(self.tasks, self.task_id, attempt, monotonic=self._seconds)

    def _seconds(self) -> float:
        return self.clock.now.timestamp()

    def end_attempt(self) -> None:
        self.tasks.leases.end_attempt(self.task_id, 1, AttemptError("JOB_FAILED", "killed", ErrorClass.TRANSIENT))

    def cancel(self) -> None:
        self.tasks.writes.change(self.task_id, lambda task, _now: task.evolve(cancel_requested=True))


@pytest.fixture
def job() -> Job:
    return Job()


def test_an_executor_continues_while_its_attempt_holds_the_task(job: Job) -> None:
    checkpoint = job.executor()
    before = job.tasks.reads.get(job.task_id)
    for _ in range(100):
        job.clock.advance(SECOND)
        checkpoint()
    assert job.tasks.reads.get(job.task_id) == before


@pytest.mark.parametrize(
    ("event", "after", "error"),
    [
        (Job.end_attempt, SECOND, LeaseLost),
        (Job.cancel, SECOND, RunCancelled),
        (lambda _job: None, HOUR, LeaseLost),
    ],
    ids=["the attempt ended", "the task is cancelled", "the lease ended by its clock"],
)
def test_an_executor_stops(
    job: Job, event: Callable[[Job], object], after: timedelta, error: type[BaseException]
) -> None:
    checkpoint = job.executor()
    checkpoint()
    event(job)
    job.clock.advance(after)
    with pytest.raises(error):
        checkpoint()


def test_an_executor_stops_when_another_attempt_runs(job: Job) -> None:
    checkpoint = job.executor()
    job.end_attempt()
    job.clock.advance(timedelta(hours=2))
    assert job.acquire() == 2
    with pytest.raises(LeaseLost):
        checkpoint()
    with pytest.raises(LeaseLost, match="attempt 2"):
        job.executor()
    job.executor(attempt=2)()


def test_an_executor_continues_with_a_renewed_lease(job: Job) -> None:
    checkpoint = job.executor()
    job.clock.advance(HOUR / 2)
    job.tasks.leases.heartbeat(job.task_id, 1, lambda now: Lease.lasting(HOUR, now))
    job.clock.advance(HOUR / 2)
    checkpoint()


def test_an_executor_of_a_deleted_task_stops(job: Job) -> None:
    with pytest.raises(TaskNotFound):
        watched(job.tasks, "4d3f3a53-0000-5000-8000-000000000000", 1, monotonic=lambda: 0.0)
