"""Stores that each break one promise of children."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Adopt, Child, Create, TaskHeads
from delegation.tasks.stores.memory import MemoryTaskStore


class ForgetsTheParent(MemoryTaskStore):
    def parents(self, task_id: str) -> Mapping[str, int]:
        return {}


class AdoptsWithoutTheHead(MemoryTaskStore):
    def _adopt(self, change: Adopt, before: Task, after: Task) -> Task:
        return super()._adopt(replace(change, after=before), before, before)


class FirstAdoptionWins(MemoryTaskStore):
    def _adopt(self, change: Adopt, before: Task, after: Task) -> Task:
        known = self._children.get(before.task_id, {})
        return super()._adopt(replace(change, child=known.get(change.child.task_id, change.child)), before, after)


class AdoptsBeforeTheCondition(MemoryTaskStore):
    def _adopt(self, change: Adopt, before: Task, after: Task) -> Task:
        self._children.setdefault(before.task_id, {})[change.child.task_id] = change.child
        return super()._adopt(change, before, after)


class AdoptsAnyRevision(MemoryTaskStore):
    def _adopt(self, change: Adopt, before: Task, after: Task) -> Task:
        head = self._heads[before.task_id]
        return super()._adopt(change, head if head.version == before.version else before, after)


class AdoptsTheFirstOnly(MemoryTaskStore):
    def _adopt(self, change: Adopt, before: Task, after: Task) -> Task:
        return super()._adopt(replace(change, more=()), before, after)


class CreatesSome(MemoryTaskStore):
    def create_all(self, tasks: Sequence[Task]) -> bool:
        for task in tasks:
            if task.task_id not in self._heads:
                self.apply(Create(task))
        return True


class ReadsFormerVersions(MemoryTaskStore):
    def get_many(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        return {one: self._rows[one][1] for one in task_ids if one in self._rows}


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
