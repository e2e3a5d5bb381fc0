"""Adopting children, and which tasks adopted which."""

from collections.abc import Mapping

from delegation.tasks.errors import RevisionConflict, StaleTask, StoreUnavailable, TaskNotFound
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Adopt, Child
from delegation.tasks.work.changes import RACES, TaskChanges
from delegation.tasks.work.family import children as family


class FamilyChanges(TaskChanges):
    """What parents do with tasks; raises TaskNotFound, LeaseLost and the store's errors."""

    def adopt(self, task_id: str, attempt: int, child: Task, *, nameless: bool = False) -> Task:
        """Record a child before it is created, and return its first version; see `transitions.adopt`.

        It may be repeated. Raises WaitsForItself for a child that would wait for its parent.
        """
        current = self.get(task_id)
        if not nameless:
            family.refuse_circle(self, current, child.task_id)
        for _ in range(RACES):
            self._require_lease(current)
            after, first = t.adopt(current, attempt, child, nameless=nameless)
            if after is not current:
                after = after.evolve(revision=current.revision + 1, nonce=self._nonce())
            try:
                self._store.apply(
                    Adopt(current, after, Child(first.task_id, attempt, first.task_type, first.task_payload))
                )
            except (StaleTask, RevisionConflict) as refused:
                if refused.stored is None:
                    raise TaskNotFound(task_id) from None
                current = refused.stored
                continue
            return first
        raise StoreUnavailable(f"task {task_id} kept changing; nothing was written")

    def adopted_by(self, task_id: str) -> tuple[Child, ...]:
        """Return all children that attempts of a task adopted, those of earlier submissions too."""
        return tuple(self._store.children(task_id))

    def adopters_of(self, task_id: str) -> Mapping[str, int]:
        """Return the tasks that adopted this one, and the attempt of each that did so last."""
        return self._store.parents(task_id)

    def children(self, task_id: str) -> tuple[str, ...]:
        """Return the ids of a task's children; a task that is submitted again begins without any."""
        task = self.find(task_id)
        return () if task is None else tuple(child.task_id for child in family.children_of(self, task))

    def disown(self, task_id: str, up_to_attempt: int) -> int:
        """Delete the records of children that no later attempt of the task adopted, and return how many."""
        return self._store.disown(task_id, up_to_attempt)
