"""A store on which rivals write first, and a queue that records or refuses messages."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Child, Create, DueEntry, Received, ReceivedPage, TaskChange, TaskHeads
from delegation.tasks.stores.memory import MemoryTaskStore


class RacedStore:
    """A memory store on which `rivals` act one by one, each right before the next write of the store's user."""

    def __init__(self) -> None:
        self.calm = MemoryTaskStore()
        self.rivals: list[Callable[[], object]] = []
        self.applied: list[TaskChange] = []

    def apply(self, change: TaskChange) -> Task:
        if self.rivals:
            self.rivals.pop(0)()
        task = self.calm.apply(change)
        self.applied.append(change)
        return task

    def get(self, task_id: str) -> Task | None:
        return self.calm.get(task_id)

    def get_many(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        return self.calm.get_many(task_ids)

    def create_all(self, tasks: Sequence[Task]) -> bool:
        if self.rivals:
            self.rivals.pop(0)()
        stored = self.calm.create_all(tasks)
        self.applied += map(Create, tasks) if stored else ()
        return stored

    def get_version(self, task_id: str, version: int) -> Task | None:
        return self.calm.get_version(task_id, version)

    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        return self.calm.history(task_id, after=after, limit=limit)

    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        return self.calm.due(now, limit=limit, shards=shards)

    def children(self, task_id: str) -> Sequence[Child]:
        return self.calm.children(task_id)

    def parents(self, task_id: str) -> Mapping[str, int]:
        return self.calm.parents(task_id)

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        return self.calm.heads(cursor=cursor, limit=limit)

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        return self.calm.received(which, before=before, limit=limit)


class Queue:
    """Records what was sent; refuses everything while `down`."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        self.down = False

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:
        if self.down:
            raise StoreUnavailable("the queue did not accept the message")
        self.sent.append((task_id, n))
