"""Reading tasks: one, its versions, what is due, all of them."""

from collections.abc import Collection, Sequence
from datetime import datetime

from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import DueEntry, TaskHeads, TaskStore
from delegation.tasks.stores.history import first_outcome


class TaskQueries:
    """What anybody may ask of a store of tasks. Raises what the store raises."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store

    def get(self, task_id: str) -> Task:
        """The task as it is now; raises TaskNotFound."""
        task = self._store.get(task_id)
        if task is None:
            raise TaskNotFound(task_id)
        return task

    def find(self, task_id: str) -> Task | None:
        """The task as it is now, None when there is none."""
        return self._store.get(task_id)

    def versions(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        """Some versions of a task, oldest first, from the one behind `after`; none if there is no such task."""
        return self._store.history(task_id, after=after, limit=limit)

    def outcome(self, task_id: str, since_version: int, *, head: Task | None = None) -> Task | None:
        """The first terminal version from `since_version` on, None while there is none; `head` saves a read."""
        return first_outcome(self._store, task_id, since_version, head=head)

    def due(self, now: datetime, *, limit: int, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        """What is due, the oldest first, of some shards of the index or of all."""
        return self._store.due(now, limit=limit, shards=shards)

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        """A page of all tasks, in no particular order."""
        return self._store.heads(cursor=cursor, limit=limit)
