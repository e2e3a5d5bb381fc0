"""No task is lost: hung jobs, executions that end before Acquire, tasks that cannot be dispatched."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from delegation.orchestration.dispatch import Dispatcher
from delegation.orchestration.failures import Step
from delegation.orchestration.sweep import sweep
from delegation.tasks.life.model import Dispatches, Status
from tests.kit.tasks.builders import HOUR, MINUTE, SECOND
from tests.kit.tasks.driven import TASK_TYPES, Driven


class StepFunctions:
    """StartExecution as documented: it succeeds for a running name with the same input, and fails for an ended one."""

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

    def end(self, name: str) -> None:
        """End an execution; its name cannot be used again for 90 days."""
        del self.running[name]
        self.closed.add(name)


class Deployment(Driven):
    """One accepted and dispatched task, a queue, a dispatcher, a sweeper, job runs, and a manual clock."""

    def __init__(self) -> None:
        super().__init__(dispatches=Dispatches())
        self.machine = StepFunctions()
        self.dispatcher = Dispatcher(self.machine, "arn")
        self.tasks.dispatching.dispatch(self.task_id)

    def deliver(self) -> list[bool]:
        messages, self.queue.sent = self.queue.sent, []
        return [self.dispatcher.start(json.dumps({"task_id": task_id, "n": n})) for task_id, n in messages]

    def sweep(self) -> None:
        for swept in sweep(self.tasks, TASK_TYPES, deadline=self.clock() + MINUTE, clock=self.clock):
            assert swept.error is None

    def begin(self, n: int) -> Step:
        answer = self.steps.acquire(Step(self.task_id, n), self.clock() + MINUTE)
        assert answer["next"] == "prepare"
        return Step.of(answer)

    def beats(self, step: Step) -> str:
        following: str = self.steps.heartbeat(step)["next"]
        return following


@pytest.fixture
def deployment() -> Deployment:
    return Deployment()


def test_a_hung_job_is_cancelled_at_the_end_of_its_lease_and_retried(deployment: Deployment) -> None:
    """EMR continues to report RUNNING; the driver made progress once."""
    step = deployment.begin(1)
    deployment.steps.start_job(step)
    job = f"{deployment.task_id}-1"
    deployment.jobs.become(job, "RUNNING")
    deployment.clock.advance(10 * MINUTE)
    deployment.tasks.leases.note(deployment.task_id, 1, progress_ts=deployment.clock())
    deployment.clock.advance(HOUR - SECOND)
    assert deployment.beats(step) == "heartbeat"
    deployment.clock.advance(SECOND)
    assert deployment.beats(step) == "complete"
    assert (deployment.task.status, deployment.task.error_code) == (Status.RETRY_SCHEDULED, "LOST")
    assert deployment.task.unexcused_attempts == 1
    assert deployment.jobs.cancelled == [job]

    assert deployment.steps.complete(step)["next"] == "wait"
    again = deployment.begin(1)
    assert again.attempt == 2
    assert deployment.steps.start_job(again)["next"] == "start-again"
    assert set(deployment.jobs.cancelled) == {job}
    deployment.jobs.become(job, "CANCELLED")
    assert deployment.steps.start_job(again)["next"] == "heartbeat"
    assert [name for name, _ in deployment.jobs.started] == [job, f"{deployment.task_id}-2"]
    # The hung driver continues: its writes are refused, and the record is that of the next attempt.
    assert deployment.beats(step) == "complete"
    assert deployment.task.job_run_id == f"{deployment.task_id}-2"


def test_an_execution_that_ends_before_acquire_does_not_lose_its_task(deployment: Deployment) -> None:
    """Its name cannot be used again: the same message starts nothing, the sweeper dispatches with the next number."""
    first = list(deployment.queue.sent)
    assert deployment.deliver() == [True]
    deployment.machine.end(f"{deployment.task_id}-1")
    deployment.queue.sent = first
    assert deployment.deliver() == [False]
    assert deployment.task.status is Status.SUBMITTED

    deployment.sweep()
    assert deployment.queue.sent == []  # not due yet
    deployment.clock.now = deployment.task.due_at or deployment.clock.now
    deployment.sweep()
    assert deployment.deliver() == [True]
    assert list(deployment.machine.running) == [f"{deployment.task_id}-2"]
    assert deployment.begin(2).attempt == 1


def test_a_slow_execution_and_its_replacement_run_one_attempt(deployment: Deployment) -> None:
    """The sweeper dispatches again, then both executions try to acquire the task: one does."""
    deployment.deliver()
    deployment.clock.now = deployment.task.due_at or deployment.clock.now
    deployment.sweep()
    deployment.deliver()
    assert deployment.begin(2).attempt == 1
    assert deployment.steps.acquire(Step(deployment.task_id, 1), deployment.clock() + MINUTE)["next"] == "stop"
