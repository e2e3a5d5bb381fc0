"""A run of one attempt, as the work sees it: may I go on, and here is how far I got."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from delegation.tasks.errors import LeaseLost, RunCancelled, RunHandedOver
from delegation.tasks.model import Task
from delegation.tasks.service import TaskService

CHECK_EVERY: Final = timedelta(seconds=1)
REPORT_EVERY: Final = timedelta(seconds=2)
ALIVE_EVERY: Final = timedelta(seconds=30)
"""Work that moves without anything to report still shows life so often: who renews the lease looks at `progress_ts`."""


class HeldRun:
    """One attempt that this process works for.

    The head is read at most once a second and written at most every two. A holder fences itself: it stops when the
    lease it last saw is over by the monotonic clock, less the clock drift, whatever the wall clock says meanwhile.
    Checkpoints may come from several threads; they share one look.
    """

    def __init__(
        self, tasks: TaskService, task: Task, *, hand_over_at: datetime | None, monotonic: Callable[[], float]
    ) -> None:
        self.tasks = tasks
        self.task = task
        self.task_id = task.task_id
        self.attempt = task.attempt_count
        self._hand_over_at = hand_over_at
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self._checked = float("-inf")
        self._reported = monotonic()
        self._fenced_at = float("-inf")
        self._see(task)

    def checkpoint(self, *, moved: bool = True) -> None:
        """Called before each piece of work; raises LeaseLost, RunCancelled or RunHandedOver when none may begin.

        Who only waits for work done elsewhere says whether that has `moved` since it asked last: a run whose work hangs
        shows no life, however alive its waiting process is.
        """
        with self._lock:
            if self._monotonic() - self._checked >= CHECK_EVERY.total_seconds():
                self._see(self.tasks.get(self.task_id))
                self._checked = self._monotonic()
            task = self.task
            if not task.is_held or task.attempt_count != self.attempt or self._monotonic() >= self._fenced_at:
                raise LeaseLost(self.task_id, attempt=self.attempt, current=task.attempt_count, status=task.status)
            if task.cancel_requested:
                raise RunCancelled(self.task_id)
            if self.tasks.draining.is_set():
                raise RunHandedOver(self.task_id)
            if self._hand_over_at is not None and self.tasks.clock() >= self._hand_over_at:
                raise RunHandedOver(self.task_id)
            if moved and self._monotonic() - self._reported >= ALIVE_EVERY.total_seconds():
                self._note()

    def report(self, **fields: Any) -> None:
        """Write progress; what comes too soon is left to the next report or the outcome. Raises LeaseLost."""
        with self._lock:
            if self._monotonic() - self._reported >= REPORT_EVERY.total_seconds():
                self._note(**fields)

    def write(self, change: Callable[[], Task]) -> Task:
        """Make a change of the task for this attempt, and look at what it answered."""
        with self._lock:
            self._see(change())
            return self.task

    def _note(self, **fields: Any) -> None:
        now = self.tasks.clock()
        self._see(self.tasks.note(self.task_id, self.attempt, **{"progress_ts": now, **fields}))
        self._reported = self._monotonic()

    def _see(self, task: Task) -> None:
        self.task = task
        if task.lost_not_before is not None:
            left = task.lost_not_before - self.tasks.clock() - self.tasks.policies.lease.clock_drift
            self._fenced_at = self._monotonic() + left.total_seconds()
