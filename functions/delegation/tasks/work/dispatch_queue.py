"""Where dispatches are sent, the interface between tasks and the processes that run them; and what sends them."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import WAITING, Labels, Task
from delegation.tasks.work.parts.hooks import TaskHooks

ANY_TASK: Final = "00000000-0000-0000-0000-000000000000"
"""The task of a message that concerns none (RFC 9562, "Nil UUID")."""


class DispatchQueue(Protocol):
    """A queue of dispatches; a message holds the task's id, the number of the dispatch, and what joins its logs."""

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:
        """Send one dispatch; raises StoreUnavailable when the queue did not accept it.

        `n` is its number; 0 is no dispatch, but states that a task waits for its admission, or that the task ended.
        `correlation_id` is that of the task's request, for the dispatcher's log alone.
        """


class NoDispatchQueue:
    """DispatchQueue of a process that has none: pollers, the sweeper or a worker, find the tasks that it makes due."""

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:  # noqa: ARG002 - as the protocol
        """See DispatchQueue.send; always raises StoreUnavailable."""
        raise StoreUnavailable(f"dispatch {n} of task {task_id} cannot be sent from here: no queue is configured")


@dataclass(frozen=True, slots=True)
class DispatchMessages:
    """Sends the dispatches that writes counted."""

    queue: DispatchQueue
    clock: Callable[[], datetime]
    hooks: TaskHooks

    def send(self, task: Task, *, labels: Labels | None = None) -> Task:
        """Send the dispatch that the last write counted; the sweeper repeats a lost one at `due_at`.

        For a queued task it sends that one waits (`wake`). One that waits for its time is left to the sweeper. `labels`
        are the task's, if the caller knows them.
        """
        if task.next_scheduled_run_ts is not None and task.next_scheduled_run_ts > self.clock():
            return task
        if task.is_queued:
            self.wake()
        elif task.dispatches.count and task.status in WAITING and self.hooks.pauses.start(task) is None:
            with suppress(StoreUnavailable):
                self.send_again(task, labels=labels)
        return task

    def send_again(self, task: Task, *, labels: Labels | None = None) -> Task:
        """Repeat the last dispatch that was counted; raises StoreUnavailable when the queue did not accept it."""
        found = (labels or self.hooks.types.labels(task)).correlation_id
        joined = {} if found is None else {"correlation_id": found}
        self.queue.send(task.task_id, task.dispatches.count, **joined)
        return task

    def wake(self, task_id: str = ANY_TASK) -> None:
        """Send the dispatcher a message that a task waits, or that `task_id` has ended, so that tasks may start.

        A lost one delays tasks until the sweeper's next.
        """
        with suppress(StoreUnavailable):
            self.queue.send(task_id, 0)
