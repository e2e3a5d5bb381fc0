"""Where a dispatch goes: the seam between tasks and what drives them."""

from typing import Protocol

from delegation.tasks.errors import StoreUnavailable


class DispatchQueue(Protocol):
    """A queue of dispatches; a message holds only the task's id and the number of the dispatch."""

    def send(self, task_id: str, n: int) -> None:
        """Enqueue one dispatch; raises StoreUnavailable when the queue did not take it."""


class NoDispatchQueue:
    """DispatchQueue of a process that may not dispatch: the sweeper or a worker finds what it makes due."""

    def send(self, task_id: str, n: int) -> None:
        """See DispatchQueue.send; always raises StoreUnavailable."""
        raise StoreUnavailable(f"dispatch {n} of task {task_id} cannot be sent from here: no queue is configured")
