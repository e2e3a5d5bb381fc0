"""An attempt that is killed twice for its memory or time is not repeated as it was."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.orchestration.failures import Step
from delegation.removal.choice import EngineChoice
from delegation.removal.expiry.task_type import TASK_TYPE as EXPIRY
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.planning import InlineEngine
from delegation.removal.purge.run import Execution
from delegation.storage.memory import Killed
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import Lease
from tests.kit.lakes.lake import filled
from tests.kit.worlds.expiring import SparkExpiries, expire_in_job
from tests.kit.worlds.jobs import JobsHere

DIED, TIMED_OUT, NO_MODULE = "Runtime.ExitError", "Sandbox.Timedout", "Runtime.ImportModuleError"
operations = pytest.mark.parametrize("operation", ["purge", "expiry"])


class InJob(InlineEngine):
    """The engine of a job, in this process."""

    name: EngineChoice = "spark"


class KillableExpiries(SparkExpiries):
    """Purges and expiries whose invocations die at `dies`, until a job runs; jobs have the memory."""

    def __init__(self, *, has_spark: bool) -> None:
        super().__init__(1_000, has_spark=has_spark)
        self.job_of_purges = JobsHere(lambda: self.behavior, self._purged)
        self.job_of_expiries = JobsHere(lambda: self.expiry, expire_in_job)
        settings = replace(self.behavior.settings, has_spark=has_spark)
        self.become(replace(self.behavior, settings=settings))
        self.error: str | None = None
        self.left = self.slow = 0
        read, deleted = self.objects.read, self.objects.delete
        self.dies = ""

        def dying(call: Callable[..., Any], name: str) -> Callable[..., Any]:
            def made(*given: Any, **named: Any) -> Any:
                if self.dies == name and self.left > 0 and not self._in_job:
                    self.clock.advance(timedelta(seconds=5))
                    raise Killed(name)
                self.clock.advance(timedelta(seconds=self.slow))
                return call(*given, **named)

            return made

        self.objects.read = dying(read, "read")  # type: ignore[method-assign]
        self.objects.delete = dying(deleted, "delete")  # type: ignore[method-assign]

    @staticmethod
    def _purged(ctx: PurgeContext) -> PurgeResult:
        return Execution(ctx, InJob()).run()

    @property
    def _in_job(self) -> bool:
        return self.job_of_purges.running or self.job_of_expiries.running

    def killed(self, task: Task, error: str | None, *, times: int, dies: str = "read") -> Task:
        """Run attempts, the next `times` of which are killed; the state machine notices `error`, or the lease ends."""
        self.dies, self.left = dies, times
        for _ in range(30):
            self.clock.advance(timedelta(hours=2))
            self.queue.sent.clear()
            task = self.tasks.reads.get(task.task_id)
            if task.is_terminal:
                break
            self.attempt(task, error)
        return self.tasks.reads.get(task.task_id)

    def attempt(self, task: Task, error: str | None) -> None:
        step = Step.of({"task_id": task.task_id, "n": task.dispatches.count})
        state = self.steps.acquire(step, self.deadline())
        try:
            if state["next"] == "prepare":
                state = self.steps.prepare(Step.of(state), self.deadline())
            if state["next"] == "inline":
                state = self.steps.run_inline(Step.of(state), self.clock() + timedelta(minutes=15))
        except Killed:
            self.left -= 1
            if error is None:
                self.clock.advance(timedelta(hours=2))
                self.tasks.dispatching.reconcile(task.task_id)
                return
            self.steps.make_due(Step.of({**state, "failed": {"Error": error}}))
            return
        if state["next"] == "spark":
            jobs = self.job_of_purges if "PURGE" in task.task_type else self.job_of_expiries
            self.steps._jobs = jobs
            state = jobs.run(Step.of(state), self.tasks, self.steps, self.plans)
        if state["next"] == "complete":
            self.steps.complete(Step.of(state))


def submitted(world: KillableExpiries, operation: str, **properties: str) -> Task:
    filled(world, "t")
    world.clock.advance(world.pause)
    if operation == "purge":
        return world.accepted(world.identity("t", **properties))
    return world.accepted(world.request(EXPIRY, "t", **{"older-than": "now", **properties}))


@operations
@pytest.mark.parametrize(
    ("error", "engine", "left", "times", "dies", "has_spark"),
    [
        pytest.param(DIED, "spark", 98, 100, "read", True, id="killed twice for its memory"),
        pytest.param(TIMED_OUT, "spark", 98, 100, "read", True, id="killed twice for its time"),
        # It was ten lost attempts, although a job has the memory.
        pytest.param(None, "spark", 95, 100, "read", True, id="lost, and nobody knows why"),
        # The plan shows the size, and each attempt continues where the one before it was lost.
        pytest.param(None, "inline", 0, 6, "delete", True, id="lost after the plan"),
        pytest.param(DIED, "inline", 0, 1, "read", True, id="killed once"),
        pytest.param(DIED, "inline", 0, 1, "read", False, id="killed once, without Spark"),
        # Hard deployments: it was TOO_LARGE_FOR_FUNCTION after two, until somebody retried it.
        pytest.param(None, "inline", 0, 4, "read", True, id="lost four times"),
        pytest.param(None, "inline", 0, 4, "read", False, id="lost four times, without Spark"),
        pytest.param(NO_MODULE, "inline", 0, 4, "read", True, id="no module"),
        pytest.param(NO_MODULE, "inline", 0, 4, "read", False, id="no module, without Spark"),
    ],
)
def test_a_task_whose_attempts_are_killed_or_lost_is_done_where_it_can_be(
    operation: str, error: str | None, engine: str, left: int, times: int, dies: str, has_spark: bool
) -> None:
    world = KillableExpiries(has_spark=has_spark)
    task = world.killed(submitted(world, operation), error, times=times, dies=dies)
    assert (task.status, task.engine, world.left) == (Status.SUCCESS, engine, left), task.result_extended
    assert error in (DIED, TIMED_OUT) or task.killed.count == 0


@operations
@pytest.mark.parametrize("error", [DIED, TIMED_OUT], ids=["memory", "time"])
def test_without_spark_it_ends_with_the_size(operation: str, error: str | None) -> None:
    """It was ten lost attempts."""
    world = KillableExpiries(has_spark=False)
    task = world.killed(submitted(world, operation), error, times=100)
    assert (task.status, task.error_code, world.left) == (Status.FAILURE, "TOO_LARGE_FOR_FUNCTION", 98)
    assert "2 attempts were killed" in str(task.result_summary)

    again = world.tasks.operators.retry(task.task_id)
    assert again.killed.count == 0
    assert world.killed(again, error, times=1).status is Status.SUCCESS


@operations
def test_the_error_has_what_attempts_measured(operation: str) -> None:
    """Each attempt is killed at its first delete, so its plan is known; reads take long enough for a note."""
    world = KillableExpiries(has_spark=False)
    world.slow = 3
    task = world.killed(submitted(world, operation), DIED, times=100, dies="delete")
    assert (task.error_code, world.left) == ("TOO_LARGE_FOR_FUNCTION", 98), task.result_extended
    assert re.search(r"[1-9]\d* files or more, [1-9]\d* manifests", str(task.result_summary)), task.result_summary
    assert re.search(r"[1-9]\d* files planned", str(task.result_summary))


@pytest.mark.parametrize(("has_spark", "asked"), [(True, {"engine": "inline"}), (False, {})])
def test_losses_of_an_inline_purge_stay_inline_and_are_bounded(has_spark: bool, asked: dict[str, str]) -> None:
    world = KillableExpiries(has_spark=has_spark)
    task = world.killed(submitted(world, "purge", **asked), None, times=100)
    assert (task.status, task.error_code, world.left) == (Status.FAILURE, "LOST", 90)


@operations
def test_lost_attempts_of_what_is_larger_than_a_function_count(operation: str) -> None:
    """It is measured before each loss, and known from then on; a kill that Lambda names is counted with them."""
    world = KillableExpiries(has_spark=False)
    settings = {"most_read_ahead_bytes": 1}
    world.become(replace(world.behavior, settings=replace(world.behavior.settings, **settings)))
    world.deploy(expiry=replace(world.expiry, settings=replace(world.expiry.settings, **settings)))
    asked = {"engine": "inline"} if operation == "purge" else {}
    task = world.killed(submitted(world, operation, **asked), None, times=100, dies="delete")
    assert (task.status, task.error_code, world.left) == (Status.FAILURE, "TOO_LARGE_FOR_FUNCTION", 98)
    assert re.search(r"[1-9]\d* files or more", str(task.result_summary)), task.result_summary


def test_kills_with_progress_between_them_neither_end_it_nor_send_it_to_spark() -> None:
    """Each attempt deletes something before its process is replaced."""
    world = KillableExpiries(has_spark=False)
    task = submitted(world, "purge")
    files = iter(range(1, 100))
    for _ in range(6):
        held = world.tasks.leases.acquire(task.task_id, "worker", lambda now: Lease.lasting(timedelta(minutes=5), now))
        world.tasks.leases.note(
            task.task_id,
            held.attempt_count,
            details={"files_deleted": next(files), "above_a_function": True},
            progress_ts=world.clock(),
        )
        world.clock.advance(timedelta(hours=2))
        world.tasks.dispatching.reconcile(task.task_id)
    assert world.tasks.reads.get(task.task_id).killed.count == 1
    assert world.killed(task, DIED, times=0).status is Status.SUCCESS


def test_an_inline_purge_that_is_killed_twice_names_what_to_leave_out() -> None:
    world = KillableExpiries(has_spark=True)
    task = world.killed(submitted(world, "purge", engine="inline"), DIED, times=100)
    assert (task.status, task.error_code) == (Status.FAILURE, "TOO_LARGE_FOR_FUNCTION")
    assert "Leave out `engine`" in str(task.result_summary)


def test_an_attempt_without_a_function_is_no_kill() -> None:
    world = KillableExpiries(has_spark=False)
    task = submitted(world, "purge")
    for _ in range(3):
        step = Step.of({"task_id": task.task_id, "n": task.dispatches.count})
        state = world.steps.acquire(step, world.deadline())
        world.clock.advance(timedelta(hours=2))
        world.tasks.dispatching.reconcile(task.task_id)
        world.steps.make_due(Step.of({**state, "failed": {"Error": "Lambda.TooManyRequestsException"}}))
        world.clock.advance(timedelta(hours=2))
    assert world.tasks.reads.get(task.task_id).killed.count == 0
    assert world.killed(task, DIED, times=0).status is Status.SUCCESS
