"""Stores that each break one promise of reading or removing."""

from collections.abc import Collection, Sequence
from datetime import datetime

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Create, DueEntry, TaskChange, TaskHeads
from delegation.tasks.stores.memory import MemoryTaskStore


class HistoryWithoutStart(MemoryTaskStore):
    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        return super().history(task_id, limit=limit)


class HistoryWithoutLimit(MemoryTaskStore):
    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        return super().history(task_id, after=after)


class HistoryBackwards(MemoryTaskStore):
    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        return super().history(task_id, after=after, limit=limit)[::-1]


class HeadAsAVersion(MemoryTaskStore):
    def get_version(self, task_id: str, version: int) -> Task | None:
        return self.get(task_id) if version == 0 else super().get_version(task_id, version)


class TerminalStaysDue(MemoryTaskStore):
    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, datetime] = {}

    def apply(self, change: TaskChange) -> Task:
        task = super().apply(change)
        if task.due_at is not None:
            self.last[task.task_id] = task.due_at
        return task

    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        found = [DueEntry(task_id, at) for task_id, at in self.last.items() if at <= now]
        return sorted(found, key=lambda entry: (entry.due_at, entry.task_id))[:limit]


class DueUnordered(MemoryTaskStore):
    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        return super().due(now, limit=10**6, shards=shards)[::-1][:limit]


class DueTooEarly(MemoryTaskStore):
    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        return super().due(datetime.max.replace(tzinfo=now.tzinfo), limit=limit, shards=shards)


class DueTooLate(MemoryTaskStore):
    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        return [entry for entry in super().due(now, limit=limit, shards=shards) if entry.due_at < now]


class DueWithoutLimit(MemoryTaskStore):
    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        return super().due(now, limit=10**6, shards=shards)


class DueOfAllShards(MemoryTaskStore):
    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        return super().due(now, limit=limit)


class HeadsWithoutCursor(MemoryTaskStore):
    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        return super().heads(limit=limit)


class HeadsLoseThePageEnd(MemoryTaskStore):
    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        page = super().heads(cursor=cursor, limit=limit + 1)
        return TaskHeads(page.tasks[:limit], page.tasks[-1].task_id if len(page.tasks) > limit else None)


class HeadsWithADanglingCursor(MemoryTaskStore):
    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        page = super().heads(cursor=cursor, limit=limit)
        return TaskHeads(page.tasks, page.tasks[-1].task_id if page.tasks else None)


class HeadsRaiseOnAnUnreadableOne(MemoryTaskStore):
    """A page with a record of a newer release raises, as any read of that record does."""

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        page = super().heads(cursor=cursor, limit=limit)
        for one in page.unreadable:
            self.get(one.task_id)
        return page


class HeadsHideUnreadableOnes(MemoryTaskStore):
    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        page = super().heads(cursor=cursor, limit=limit)
        return TaskHeads(page.tasks, page.cursor)


class HeadsStopAtAnUnreadableOne(MemoryTaskStore):
    """Uses the last task that it could read as cursor, so the next page is missing or repeated."""

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        page = super().heads(cursor=cursor, limit=limit)
        more = page.cursor is not None and bool(page.tasks)
        return TaskHeads(page.entries, page.tasks[-1].task_id if more else None)


class RemovesTheHeadOnly(MemoryTaskStore):
    """Leaves the rows of a removed task."""

    def remove(self, task: Task) -> bool:
        with self.lock:
            return self._heads.pop(task.task_id, None) is not None


class RemovesAnyRevision(MemoryTaskStore):
    def remove(self, task: Task) -> bool:
        head = self.get(task.task_id)
        return super().remove(head if head is not None and head.version == task.version else task)


class RemovesUnconditionally(MemoryTaskStore):
    """Checks neither the version nor the outcome."""

    def remove(self, task: Task) -> bool:
        with self.lock:
            self._rows.pop(task.task_id, None)
            return self._heads.pop(task.task_id, None) is not None


class ForgetsTheLastRowToo(MemoryTaskStore):
    """Deletes everything below, the head's row too."""

    def forget(self, task_id: str, below: int) -> int:
        with self.lock:
            rows = self._rows.get(task_id, {})
            return sum(rows.pop(version, None) is not None for version in range(below))


class LooksForTheFirstRow(MemoryTaskStore):
    """Takes a task for absent whose first row is."""

    def apply_locked(self, change: TaskChange) -> Task:
        if isinstance(change, Create) and 1 not in self._rows.get(change.after.task_id, {}):
            self._heads.pop(change.after.task_id, None)
        return super().apply_locked(change)


class ForgetsNothing(MemoryTaskStore):
    def forget(self, task_id: str, below: int) -> int:
        return max(0, min(below, len(self._rows.get(task_id, {}))) - 1)


class QueriesAnEmptyRange(MemoryTaskStore):
    """DynamoDB refuses a BETWEEN whose first value is greater than its second."""

    def forget(self, task_id: str, below: int) -> int:
        head = self.get(task_id)
        if head is not None and min(below, head.version) <= 1:
            raise StoreUnavailable("the table could not be read: ValidationException")
        return super().forget(task_id, below)
