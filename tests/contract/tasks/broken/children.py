"""Stores that each break one promise of children."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Adopt, Child, TaskHeads
from delegation.tasks.stores.memory import MemoryTaskStore


class ForgetsTheParent(MemoryTaskStore):
    def parents(self, task_id: str) -> Mapping[str, int]:
        return {}


class AdoptsWithoutTheHead(MemoryTaskStore):
    def _adopt(self, change: Adopt, before: Task, after: Task, child: Child) -> Task:
        return super()._adopt(replace(change, after=before), before, before, child)


class FirstAdoptionWins(MemoryTaskStore):
    def _adopt(self, change: Adopt, before: Task, after: Task, child: Child) -> Task:
        return super()._adopt(change, before, after, self._children.get(before.task_id, {}).get(child.task_id, child))


class AdoptsBeforeTheCondition(MemoryTaskStore):
    def _adopt(self, change: Adopt, before: Task, after: Task, child: Child) -> Task:
        self._children.setdefault(before.task_id, {})[child.task_id] = child
        return super()._adopt(change, before, after, child)


class AdoptsAnyRevision(MemoryTaskStore):
    def _adopt(self, change: Adopt, before: Task, after: Task, child: Child) -> Task:
        head = self._heads[before.task_id]
        return super()._adopt(change, head if head.version == before.version else before, after, child)


class ShowsChildrenAsHeads(MemoryTaskStore):
    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        page = super().heads(cursor=cursor, limit=limit)
        return TaskHeads((*page.entries, *page.entries[: len(self._children)]), None)

    def children(self, task_id: str) -> Sequence[Child]:
        return tuple(reversed(super().children(task_id)))


class DisownsLaterAttemptsToo(MemoryTaskStore):
    def disown(self, task_id: str, up_to_attempt: int) -> int:
        return super().disown(task_id, up_to_attempt + 1)


class RemovesTasksWithoutTheirChildren(MemoryTaskStore):
    def _disown(self, task_id: str, up_to_attempt: int) -> int:
        return 0


class RemovesTheParentsOfAChild(MemoryTaskStore):
    def remove(self, task: Task) -> bool:
        for parent in self._parents.pop(task.task_id, {}):
            del self._children[parent][task.task_id]
        return super().remove(task)
