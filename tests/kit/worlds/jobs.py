"""Spark jobs that run in the process of the test."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from delegation.orchestration.failures import Step
from delegation.orchestration.steps import Steps
from delegation.storage.memory import MemoryPlanStore
from delegation.tasks.life.model import Task
from delegation.tasks.work.service import TaskService
from tests.kit.tasks.driven import RecordedJobs


class RunsJobs(Protocol):
    """A behavior with a Spark engine, `execute` runs the plan of a context with the job's deletes."""

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task: ...

    def run_job(self, execute: Any, task_id: str, attempt: int) -> object: ...


class JobsHere(RecordedJobs):
    """Jobs of one behavior; `before` is called while a job waits to start, and `written` has what jobs put.

    Without `available` the process that is to start the job runs the attempt inline, as a worker without Spark does.
    """

    available = True
    running = False

    def __init__(self, behavior: Callable[[], RunsJobs], execute: Callable[[Any], object]) -> None:
        super().__init__()
        self.behavior, self.execute = behavior, execute
        self.before: Callable[[], object] = lambda: None
        self.folders: list[tuple[str, ...]] = []
        self.written: set[str] = set()

    def start(
        self, name: str, arguments: Sequence[str], folders: Sequence[str] = (), *, with_jars: bool = False
    ) -> str:
        """Note to which folders the job may write."""
        self.folders.append(tuple(folders))
        return super().start(name, arguments, folders, with_jars=with_jars)

    def run(self, step: Step, tasks: TaskService, steps: Steps, plans: MemoryPlanStore) -> dict[str, Any]:
        """Run the job of a step, and return the answer of its last heartbeat."""
        if not self.available:
            self.behavior().run(tasks.reads.get(step.task_id), hand_over_at=None)
            return step.to("complete")
        assert steps.start_job(step)["next"] == "heartbeat"
        self.before()
        known, self.running = dict(plans.objects), True
        try:
            self.behavior().run_job(self.execute, step.task_id, step.attempt)
        finally:
            self.running = False
        self.written |= {key for key, data in plans.objects.items() if known.get(key) is not data}
        self.become(step.job, "SUCCESS")
        return step.to("complete")
