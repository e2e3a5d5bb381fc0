"""Reading a task's rows."""

from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import TaskStore


def first_outcome(store: TaskStore, task_id: str, since_version: int, *, head: Task | None = None) -> Task | None:
    """Return the first terminal version of a task from `since_version` on, None while there is none.

    A task can run again after a submission's outcome, so the head alone does not answer that. Reads no more than the
    head while the task has not changed.
    """
    head = head or store.get(task_id)
    if head is None or not (head.is_terminal or head.version > since_version):
        return None
    after = since_version - 1
    while rows := store.history(task_id, after=after):
        for row in rows:
            if row.is_terminal:
                return row
        after = rows[-1].version
    return None
