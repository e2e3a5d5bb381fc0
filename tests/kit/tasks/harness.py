"""A service whose rivals act at points that a test chooses."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from delegation.tasks.stores.base import Create, TaskStore
from delegation.tasks.work.service import TaskService
from tests.kit.tasks.builders import HOUR, Clock, submitted
from tests.kit.tasks.queues import Queue
from tests.kit.tasks.racing import RacedStore

TRANSIENT = AttemptError("TIMEOUT", "timed out", ErrorClass.TRANSIENT)
PERMANENT = AttemptError("DENIED", "access denied", ErrorClass.PERMANENT)


def an_hour(now: datetime) -> Lease:
    return Lease.lasting(HOUR, now)


class RacedService:
    """A service over a store that rivals can race on, a rival's own service, a queue and a clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = RacedStore()
        self.queue = Queue()
        policies = Policies(default=RetryPolicy(max_attempts=3), by_type={})
        self.service = TaskService(cast("TaskStore", self.store), policies, self.queue, clock=self.clock)
        self.rival = TaskService(self.store.calm, policies, Queue(), clock=self.clock)

    def submit(self, **fields: Any) -> str:
        return self.store.calm.apply(Create(submitted(**fields))).task_id

    def acquire(self, task_id: str, owner: str = "run-1") -> Task:
        return self.service.leases.acquire(task_id, owner, an_hour)

    def running(self, **fields: Any) -> str:
        task_id = self.submit(**fields)
        self.acquire(task_id)
        self.service.leases.start(task_id, 1, effects=True)
        return task_id

    def versions(self, task_id: str) -> list[str]:
        return [task.status.value for task in self.store.calm.history(task_id)]

    def race(self, *rivals: Callable[[], object]) -> None:
        self.store.rivals = list(rivals)
