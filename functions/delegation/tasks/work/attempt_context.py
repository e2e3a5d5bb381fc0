"""A run of one attempt, as the work sees it: may I go on, and here is how far I got."""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from delegation.tasks.errors import LeaseLost, RunCancelled, RunHandedOver
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import NOTHING
from delegation.tasks.work.service import TaskService

CHECK_EVERY: Final = timedelta(seconds=1)
REPORT_EVERY: Final = timedelta(seconds=2)
ALIVE_EVERY: Final = timedelta(seconds=30)
"""Work that moves without anything to report still shows life so often: who renews the lease looks at `progress_ts`."""


def elapsed() -> float:
    """Seconds of a clock that nobody sets, and that goes on while the machine sleeps where there is such a one.

    Linux' CLOCK_MONOTONIC stops during suspend (clock_gettime(2)): a laptop would wake up believing in its old leases.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


def fence_of(tasks: TaskService, task: Task, margin: timedelta, monotonic: Callable[[], float]) -> float | None:
    """When, on the monotonic clock, the lease of a held task ends less a margin; None for one that nobody holds.

    The monotonic clock is read first: a process that is paused between the two readings comes out early, never late.
    """
    at = monotonic()
    if task.lost_not_before is None:
        return None
    return at + (task.lost_not_before - tasks.clock() - margin).total_seconds()


class AttemptContext:
    """One attempt that this process works for.

    The head is read at most once a second, while the lease lasts, and written at most every two. A holder fences
    itself: it stops when the lease it last saw is over by the monotonic clock, less the clock drift, whatever the wall
    clock says meanwhile. Work that moves shows life every 30 seconds, or four times in a lease too short for that.
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
        self._alive_every = min(ALIVE_EVERY, tasks.lease.lost_timeout / 4).total_seconds()
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
            now = self._monotonic()
            # Whoever keeps the lease may have renewed it since the last look.
            if now - self._checked >= CHECK_EVERY.total_seconds() or now >= self._fenced_at:
                self._see(self.tasks.get(self.task_id))
                self._checked = self._monotonic()
            # Before the checks: this write may take longer than the lease.
            if moved and self._monotonic() - self._reported >= self._alive_every:
                self._note()
            task = self.task
            if not task.is_held or task.attempt_count != self.attempt or self._monotonic() >= self._fenced_at:
                raise LeaseLost(self.task_id, attempt=self.attempt, current=task.attempt_count, status=task.status)
            if task.cancel_requested:
                raise RunCancelled(self.task_id)
            if self.tasks.is_draining:
                raise RunHandedOver(self.task_id)
            if self._hand_over_at is not None and self.tasks.clock() >= self._hand_over_at:
                raise RunHandedOver(self.task_id)

    def report(self, *, eta: datetime | None = None, **details: Any) -> None:
        """Write progress; what comes too soon is left to the next report or the outcome. Raises LeaseLost."""
        with self._lock:
            if self._monotonic() - self._reported >= REPORT_EVERY.total_seconds():
                self._note(details, eta_ts=eta)

    def write(self, change: Callable[[], Task]) -> Task:
        """Make a change of the task for this attempt, and look at what it answered."""
        with self._lock:
            self._see(change())
            return self.task

    def _note(self, details: Mapping[str, Any] = NOTHING, **fields: Any) -> None:
        now = self.tasks.clock()
        self._see(self.tasks.note(self.task_id, self.attempt, details=details, progress_ts=now, **fields))
        self._reported = self._monotonic()

    def _see(self, task: Task) -> None:
        self.task = task
        fence = fence_of(self.tasks, task, self.tasks.lease.clock_drift, self._monotonic)
        if fence is not None:
            self._fenced_at = fence
