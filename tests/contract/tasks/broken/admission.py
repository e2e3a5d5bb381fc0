"""Stores that each break one promise of admission."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from delegation.tasks.life.lanes import Lane, Running, Traits
from delegation.tasks.life.model import Task
from delegation.tasks.stores.admission import LaneRange, LanesPage, Register
from delegation.tasks.stores.base import TaskChange
from delegation.tasks.stores.memory import MemoryTaskStore


class QueuedIgnoresLanes(MemoryTaskStore):
    def queued_in(self, now: datetime, *, each: int, lanes: int, span: LaneRange) -> LanesPage:
        page = super().queued_in(now, each=each, lanes=lanes, span=span)
        return replace(page, queued=tuple(sorted(page.queued, key=lambda one: one.since)[:each]))


class SkipsALaneBetweenPages(MemoryTaskStore):
    def queued_in(self, now: datetime, *, each: int, lanes: int, span: LaneRange) -> LanesPage:
        page = super().queued_in(now, each=each, lanes=lanes, span=span)
        if page.after is None:
            return page
        return replace(
            page, after=super().queued_in(now, each=1, lanes=1, span=LaneRange(page.after, span.until)).after
        )


class QueuedTooEarly(MemoryTaskStore):
    def queued_in(self, now: datetime, *, each: int, lanes: int, span: LaneRange) -> LanesPage:
        return super().queued_in(datetime.max.replace(tzinfo=now.tzinfo), each=each, lanes=lanes, span=span)


class EndedStaysRunning(MemoryTaskStore):
    """Counts what was admitted, and forgets to count it down."""

    def __init__(self) -> None:
        super().__init__()
        self.ever: dict[str, Running] = {}

    def apply(self, change: TaskChange) -> Task:
        task = super().apply(change)
        self.ever |= self._running
        return task

    def running(self) -> Sequence[Running]:
        return tuple(self.ever.values())


class CountsEveryHolder(MemoryTaskStore):
    def running(self) -> Sequence[Running]:
        lane = Lane.of("", Traits())
        return tuple(Running(task.task_id, lane, is_held=True) for task in self._heads.values() if task.is_held)


class RegisterWithoutCondition(MemoryTaskStore):
    def write_register(self, register: Register) -> bool:
        self._register = register
        return True
