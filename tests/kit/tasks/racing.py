"""A store on which rivals write first."""

from collections.abc import Callable, Sequence
from typing import Any

from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Create, TaskChange
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

    def create_all(self, tasks: Sequence[Task]) -> bool:
        if self.rivals:
            self.rivals.pop(0)()
        stored = self.calm.create_all(tasks)
        self.applied += map(Create, tasks) if stored else ()
        return stored

    def __getattr__(self, name: str) -> Any:
        """Reads are those of the memory store."""
        return getattr(self.calm, name)
