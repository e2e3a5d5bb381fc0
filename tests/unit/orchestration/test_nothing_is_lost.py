"""A hung job, an execution that died before it began, a task that can never be dispatched: none loses a task."""

import json
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from delegation.orchestration.dispatch import Dispatcher
from delegation.orchestration.job_runs import ExternalJobRuns, JobRun
from delegation.orchestration.step_input import Step
from delegation.orchestration.steps import Steps
from delegation.orchestration.sweep import sweep
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import Policies, default_properties
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.service import TaskService
from tests.unit.orchestration.driven import Jobs
from tests.unit.tasks.builders import HOUR, MINUTE, SECOND, Clock, submitted

KINDS = frozenset({"TABLE_PURGE"})


class StepFunctions:
    """StartExecution as documented: a running name with the same input answers as started, a closed one never."""

    def __init__(self) -> None:
        self.running: dict[str, str] = {}
        self.closed: set[str] = set()
        self.refuses = False

    def start_execution(self, *, name: str, input: str, **_more: Any) -> dict[str, str]:  # noqa: A002 - boto3's name
        if self.refuses:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "StartExecution")
        if name in self.closed or self.running.get(name, input) != input:
            raise ClientError({"Error": {"Code": "ExecutionAlreadyExists"}}, "StartExecution")
        self.running[name] = input
        return {"executionArn": name}

    def dies(self, name: str) -> None:
        """Its name stays taken for 90 days."""
        del self.running[name]
        self.closed.add(name)


class House:
    """One accepted and dispatched task, a queue, a dispatcher, a sweeper, job runs; the clock is moved by hand."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.messages: list[str] = []
        self.store = MemoryTaskStore()
        self.jobs = Jobs()
        self.service = TaskService(
            self.store,
            Policies.from_properties(default_properties()),
            self,
            clock=self.clock,
            external_jobs=ExternalJobRuns(self.jobs),
        )
        self.steps = Steps(self.service, KINDS, jobs=self.jobs)
        self.machine = StepFunctions()
        self.dispatcher = Dispatcher(self.machine, "arn")
        self.task_id = self.store.apply(Create(submitted())).task_id
        self.service.dispatch(self.task_id)

    @property
    def task(self) -> Task:
        return self.service.get(self.task_id)

    def send(self, task_id: str, n: int) -> None:
        self.messages.append(json.dumps({"task_id": task_id, "n": n}))

    def deliver(self) -> list[bool]:
        started = [self.dispatcher.start(message) for message in self.messages]
        self.messages.clear()
        return started

    def sweep(self) -> None:
        for swept in sweep(self.service, KINDS, deadline=self.clock() + MINUTE, clock=self.clock):
            assert swept.error is None

    def acquire(self, n: int) -> Step:
        answer = self.steps.acquire(Step(self.task_id, n), self.clock() + MINUTE)
        assert answer["next"] == "prepare"
        return Step.of(answer)

    def look_at_job(self, step: Step) -> str:
        following: str = self.steps.heartbeat(step)["next"]
        return following


@pytest.fixture
def house() -> House:
    return House()


def test_a_hung_job_is_lost_after_the_time_out_cancelled_and_retried(house: House) -> None:
    """EMR goes on saying RUNNING; the driver made progress once and never again."""
    step = house.acquire(1)
    house.steps.start_job(step)
    job = f"{house.task_id}-1"
    house.jobs.become(job, "RUNNING")
    house.clock.advance(10 * MINUTE)
    house.service.note(house.task_id, 1, progress_ts=house.clock())
    house.clock.advance(HOUR - SECOND)
    assert house.look_at_job(step) == "heartbeat"
    house.clock.advance(SECOND)
    assert house.look_at_job(step) == "complete"
    assert (house.task.status, house.task.error_code) == (Status.RETRY_SCHEDULED, "LOST")
    assert house.task.unexcused_attempts == 1
    assert house.jobs.cancelled == [job]

    assert house.steps.complete(step)["next"] == "wait"
    again = house.acquire(1)
    assert again.attempt == 2
    assert house.steps.start_job(again)["next"] == "start-again"
    assert set(house.jobs.cancelled) == {job}
    house.jobs.become(job, "CANCELLED")
    assert house.steps.start_job(again)["next"] == "heartbeat"
    assert [name for name, _ in house.jobs.started] == [job, f"{house.task_id}-2"]
    # The hung driver wakes up: whatever it still writes is refused, and the record is that of its successor.
    assert house.look_at_job(step) == "complete"
    assert house.task.job_run_id == f"{house.task_id}-2"


def test_a_job_that_never_shows_progress_is_lost_too(house: House) -> None:
    step = house.acquire(1)
    house.steps.start_job(step)
    house.jobs.runs[f"{house.task_id}-1"] = JobRun("r", f"{house.task_id}-1", "RUNNING")
    house.clock.advance(HOUR)
    assert house.look_at_job(step) == "complete"
    assert (house.task.status, house.task.error_code) == (Status.RETRY_SCHEDULED, "LOST")


def test_an_execution_that_dies_before_acquire_does_not_lose_its_task(house: House) -> None:
    """Its name is taken for 90 days, so the same message starts nothing; the sweeper dispatches under the next."""
    first = list(house.messages)
    assert house.deliver() == [True]
    house.machine.dies(f"{house.task_id}-1")
    house.messages = first
    assert house.deliver() == [False]
    assert house.task.status is Status.SUBMITTED

    house.sweep()
    assert house.messages == []  # not due yet
    house.clock.now = house.task.due_at or house.clock.now
    house.sweep()
    assert house.deliver() == [True]
    assert list(house.machine.running) == [f"{house.task_id}-2"]
    assert house.acquire(2).attempt == 1


def test_an_execution_that_is_only_slow_is_not_doubled(house: House) -> None:
    """The sweeper dispatched again, and then both executions ask for the task: one gets it."""
    house.deliver()
    house.clock.now = house.task.due_at or house.clock.now
    house.sweep()
    house.deliver()
    assert house.acquire(2).attempt == 1
    assert house.steps.acquire(Step(house.task_id, 1), house.clock() + MINUTE)["next"] == "stop"


def test_a_task_that_can_never_be_dispatched_ends_as_dispatch_failed(house: House) -> None:
    """Every execution dies before Acquire: 20 dispatches with growing pauses, then FAILURE, and never again."""
    pauses = []
    while not house.task.is_terminal:
        for message in house.messages:
            house.dispatcher.start(message)
            house.machine.dies("{task_id}-{n}".format(**json.loads(message)))
        house.messages.clear()
        due = house.task.due_at
        assert due is not None
        pauses.append(due - house.clock())
        house.clock.now = due
        house.sweep()
    assert (house.task.status, house.task.error_code) == (Status.FAILURE, "DISPATCH_FAILED")
    assert (house.task.dispatch_count, len(house.machine.closed)) == (20, 20)
    assert (pauses[0], max(pauses), sorted(pauses)) == (MINUTE, HOUR, pauses)
    assert house.task.attempt_count == 0
    house.clock.advance(timedelta(days=1))
    house.sweep()
    assert (house.messages, house.task.version) == ([], 2)


def test_dispatches_that_led_to_an_attempt_do_not_count_against_a_task(house: House) -> None:
    """A task that is lost over and over has its dispatches counted from the last attempt on."""
    for n in range(1, 5):
        house.deliver()
        house.acquire(n)
        house.clock.advance(HOUR)
        house.sweep()
    assert house.task.dispatch_count == 5
    assert house.task.dispatch_count - house.task.dispatch_base == 1
