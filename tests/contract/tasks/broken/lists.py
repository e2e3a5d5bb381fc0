"""Stores that each break one promise of lists."""

from dataclasses import replace

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import Received, ReceivedPage, Unreadable
from delegation.tasks.stores.memory import MemoryTaskStore


class ListsTheOldestFirst(MemoryTaskStore):
    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        page = super().received(which, before=before, limit=limit)
        return ReceivedPage(page.entries[::-1], page.cursor)


class ListsStopAtAnEmptyDay(MemoryTaskStore):
    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        page = super().received(which, before=before, limit=limit)
        days = {codec.day_of(place) for place, _ in page.entries}
        return page if len(days) < 2 else ReceivedPage(page.entries, None)


class ListsSkipTasksOfOneMoment(MemoryTaskStore):
    """Continues after the time of the last task, so the others of that time are missing."""

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        return super().received(which, before=before and before.partition("/")[0], limit=limit)


class ListsForgetTheirTime(MemoryTaskStore):
    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        return super().received(replace(which, since=None), before=before, limit=limit)


class ListsIgnoreTheCorrelation(MemoryTaskStore):
    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        return super().received(replace(which, correlation_id=None), before=before, limit=limit)


class ListsEveryTarget(MemoryTaskStore):
    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        return super().received(replace(which, target=None), before=before, limit=limit)


class ListsVersions(MemoryTaskStore):
    """Shows a task as it was received, and not as it is now."""

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        page = super().received(which, before=before, limit=limit)
        first = ((place, self._rows[task.task_id][1]) for place, task in page.entries)
        return ReceivedPage(tuple(first), page.cursor)


class ListsKeepTheFirstPlace(MemoryTaskStore):
    """Lists a task where it was first received."""

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        page = super().received(which, before=before, limit=limit)
        ordered = sorted(page.entries, key=lambda one: self._rows[one[1].task_id][1].received_timestamp)
        return ReceivedPage(tuple(ordered[::-1]), page.cursor)


class ListsLookForTheirPosition(MemoryTaskStore):
    """Begins anew when the task of the position is gone."""

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        known = before is not None and before.partition("/")[2] in self._heads
        return super().received(which, before=before if known else None, limit=limit)


class ListsHideUnreadableOnes(MemoryTaskStore):
    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        page = super().received(which, before=before, limit=limit)
        return ReceivedPage(tuple(one for one in page.entries if isinstance(one[1], Task)), page.cursor)


class ListsRaiseOnAnUnreadableOne(MemoryTaskStore):
    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        page = super().received(which, before=before, limit=limit)
        for _, one in page.entries:
            if isinstance(one, Unreadable):
                raise MalformedRecord(one.reason)
        return page
