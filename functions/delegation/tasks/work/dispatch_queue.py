"""Where dispatches are sent: the interface between tasks and the processes that run them."""

from typing import Final, Protocol

from delegation.tasks.errors import StoreUnavailable

ANY_TASK: Final = "00000000-0000-0000-0000-000000000000"
"""The task of a message that concerns none (RFC 9562, "Nil UUID")."""


class DispatchQueue(Protocol):
    """A queue of dispatches; a message holds the task's id, the number of the dispatch, and what joins its logs."""

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:
        """Send one dispatch; raises StoreUnavailable when the queue did not accept it.

        `n` is its number; 0 is no dispatch, but says that a task waits for its admission, or that the task ended.
        `correlation_id` is that of the task's request, for the dispatcher's log alone.
        """


class NoDispatchQueue:
    """DispatchQueue of a process that has none: the sweeper or a worker finds the tasks that it makes due."""

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:  # noqa: ARG002 - as the protocol
        """See DispatchQueue.send; always raises StoreUnavailable."""
        raise StoreUnavailable(f"dispatch {n} of task {task_id} cannot be sent from here: no queue is configured")
