"""What an executor asks the task before each batch: the same rules as its driver, and never a word to the task."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from delegation.operations.purge.behavior.task_attempt import watched
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import LeasePolicy, Policies, RetryPolicy
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from delegation.worksets.attempt import AttemptCancelled, AttemptLost
from tests.unit.tasks.builders import HOUR, SECOND, Clock, submitted


class Job:
    """A held task, its driver elsewhere; clocks are moved together by hand."""

    def __init__(self) -> None:
        self.clock = Clock()
        policies = Policies(RetryPolicy(), {}, lease=LeasePolicy(HOUR))
        store = MemoryTaskStore()
        self.tasks = TaskService(store, policies, NoDispatchQueue(), clock=self.clock)
        self.task_id = store.apply(Create(submitted())).task_id
        self.acquire()

    def acquire(self) -> int:
        taken = self.tasks.acquire(self.task_id, "driver", lambda now: Lease.lasting(HOUR, now))
        return taken.attempt_count

    def executor(self, attempt: int = 1) -> Callable[[], None]:
        return watched(self.tasks, self.task_id, attempt, monotonic=self._seconds)

    def _seconds(self) -> float:
        return self.clock.now.timestamp()

    def give_back(self) -> None:
        self.tasks.give_back(self.task_id, 1, AttemptError("JOB_FAILED", "gone", ErrorClass.TRANSIENT))


def test_an_executor_goes_on_while_its_attempt_holds_the_task() -> None:
    job = Job()
    go_on = job.executor()
    before = job.tasks.get(job.task_id)
    for _ in range(100):
        job.clock.advance(SECOND)
        go_on()
    assert job.tasks.get(job.task_id) == before


def test_an_executor_stops_when_its_attempt_was_given_back() -> None:
    job = Job()
    go_on = job.executor()
    go_on()
    job.give_back()
    job.clock.advance(SECOND)
    with pytest.raises(AttemptLost):
        go_on()


def test_an_executor_stops_when_another_attempt_runs() -> None:
    job = Job()
    go_on = job.executor()
    job.give_back()
    job.clock.advance(timedelta(hours=2))
    assert job.acquire() == 2
    with pytest.raises(AttemptLost):
        go_on()
    with pytest.raises(AttemptLost, match="attempt 2"):
        job.executor()
    job.executor(attempt=2)()


def test_an_executor_stops_by_its_own_clock_when_nobody_renews() -> None:
    job = Job()
    go_on = job.executor()
    job.clock.advance(HOUR)
    with pytest.raises(AttemptLost):
        go_on()


def test_an_executor_goes_on_with_a_lease_that_was_renewed_for_it() -> None:
    job = Job()
    go_on = job.executor()
    job.clock.advance(HOUR / 2)
    job.tasks.heartbeat(job.task_id, 1, lambda now: Lease.lasting(HOUR, now))
    job.clock.advance(HOUR / 2)
    go_on()


def test_an_executor_stops_when_a_person_asked_for_it() -> None:
    job = Job()
    go_on = job.executor()
    job.tasks.change(job.task_id, lambda task, _now: task.evolve(cancel_requested=True))
    job.clock.advance(SECOND)
    with pytest.raises(AttemptCancelled):
        go_on()


def test_an_executor_of_a_task_that_is_gone_stops() -> None:
    job = Job()
    with pytest.raises(AttemptLost):
        watched(job.tasks, "4d3f3a53-0000-5000-8000-000000000000", 1, monotonic=lambda: 0.0)
