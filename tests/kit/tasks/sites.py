"""One store and clock for services, clients and workers of behaviors, and behaviors that tests share."""

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from delegation.tasks.life.model import Status, Task
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.submit import Tasks
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.work.reads import ResultStore
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import Worker, WorkerSettings
from polaris_common.errors import DelegationError
from tests.kit.clocks import Clock
from tests.kit.tasks.services import task_service


class Sum(BaseModel):
    left: int
    right: int


class Total(BaseModel):
    total: int


class Transient(DelegationError):
    code = "TRANSIENT"
    retryable = True


class Permanent(DelegationError):
    code = "PERMANENT"


def add(parameters: Sum, _run: AttemptContext) -> Total:
    return Total(total=parameters.left + parameters.right)


def identity(parameters: Sum) -> str:
    return f"{parameters.left}+{parameters.right}"


ADD = Behavior("ADD", Sum, add, result=Total, identify=identity)
ONE = Sum(left=1, right=2)


@dataclass
class Site:
    """One store and clock, and as many services on them as a test wants."""

    store: MemoryTaskStore = field(default_factory=MemoryTaskStore)
    clock: Clock = field(default_factory=Clock)
    results: ResultStore | None = None

    def service(self) -> TaskService:
        retries = {"delegation.retry.default.max-attempts": "3"}
        return task_service(self.store, retries, clock=self.clock, results=self.results)

    def client(self) -> Tasks:
        return Tasks(self.service())

    def worker(self, name: str, *behaviors: Behavior[Any, Any]) -> Worker:
        service = self.service()
        runnable = [FunctionBehavior(service, behavior, monotonic=self.seconds) for behavior in behaviors]
        return Worker(service, Behaviors(runnable), WorkerSettings(owner=name))

    def seconds(self) -> float:
        return self.clock.now.timestamp()

    def statuses(self, task_id: str) -> list[Status]:
        return [task.status for task in self.store.history(task_id)]

    def head(self, task_id: str) -> Task:
        task = self.store.get(task_id)
        assert task is not None
        return task
