"""Adopting children, and which tasks adopted which."""

from collections.abc import Mapping, Sequence

from delegation.tasks.errors import RevisionConflict, StaleTask, StoreUnavailable, TaskNotFound
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import MOST_AT_ONCE, Adopt, Child
from delegation.tasks.work.changes import RACES, TaskChanges
from delegation.tasks.work.family import children as family


class FamilyChanges(TaskChanges):
    """What parents do with tasks; raises TaskNotFound, LeaseLost and the store's errors."""

    def adopt(self, task_id: str, attempt: int, child: Task, *, nameless: bool = False) -> Task:
        """Record a child before it is created, and return its first version; see `transitions.adopt`.

        It may be repeated. Raises WaitsForItself for a child that would wait for its parent.
        """
        return self.adopt_all(task_id, attempt, ((child, nameless),))[0]

    def adopt_all(self, task_id: str, attempt: int, children: Sequence[tuple[Task, bool]]) -> list[Task]:
        """Record children, each nameless or not, as `adopt` does one: a write for every MOST_AT_ONCE."""
        current = self.get(task_id)
        family.refuse_circles(self, current, [child.task_id for child, nameless in children if not nameless])
        adopted: list[Task] = []
        for start in range(0, len(children), MOST_AT_ONCE):
            current, firsts = self._adopt_some(current, attempt, children[start : start + MOST_AT_ONCE])
            adopted += firsts
        return adopted

    def _adopt_some(
        self, current: Task, attempt: int, children: Sequence[tuple[Task, bool]]
    ) -> tuple[Task, list[Task]]:
        """Return the parent as it is then, and the first versions of the children."""
        for _ in range(RACES):
            self._require_lease(current)
            after, firsts = current, []
            for child, nameless in children:
                after, first = t.adopt(after, attempt, child, nameless=nameless)
                firsts.append(first)
            if after is not current:
                after = after.evolve(revision=current.revision + 1, nonce=self._nonce())
            records = {
                first.task_id: Child(first.task_id, attempt, first.task_type, first.task_payload) for first in firsts
            }
            one, *more = records.values()
            try:
                return self._store.apply(Adopt(current, after, one, tuple(more))), firsts
            except (StaleTask, RevisionConflict) as refused:
                if refused.stored is None:
                    raise TaskNotFound(current.task_id) from None
                current = refused.stored
        raise StoreUnavailable(f"task {current.task_id} kept changing; nothing was written")

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
