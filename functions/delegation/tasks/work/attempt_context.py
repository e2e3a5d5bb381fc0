"""An attempt as its work sees it: checkpoints, which stop work that must not continue, and progress reports."""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Never

from delegation.errors import RunCancelled, RunHandedOver, RunPaused, RunTimedOut
from delegation.tasks.errors import (
    DeadlineExceeded,
    LeaseLost,
)
from delegation.tasks.life.lease import is_same_lease
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import deadline_text, past_deadline
from delegation.tasks.life.progress import advanced, bad_report, merged
from delegation.tasks.life.transitions import NOTHING
from delegation.tasks.work.service import TaskService

CHECK_EVERY: Final = timedelta(seconds=1)
REPORT_EVERY: Final = timedelta(seconds=2)
ALIVE_EVERY: Final = timedelta(seconds=30)
"""How often work that progresses without a report writes `progress_ts`, without which its lease is not renewed."""


def fence_of(
    clock: Callable[[], datetime], task: Task, margin: timedelta, monotonic: Callable[[], float]
) -> float | None:
    """Return when, on the monotonic clock, a held task's lease ends less a margin; None if the task is not held."""
    at = monotonic()  # first: a pause between the two readings makes the result earlier, never later
    if task.lease.lost_not_before is None:
        return None
    return at + (task.lease.lost_not_before - clock() - margin).total_seconds()


class AttemptContext:
    """One attempt that this process works for.

    The head is read at most once a second while the lease lasts, and written at most every two. The work fences itself:
    it stops when the lease that it last read ends by the monotonic clock, less the clock drift, whatever the wall clock
    shows. Work that progresses writes `progress_ts` every 30 seconds, or four times in a shorter lease. Checkpoints may
    come from several threads, which share one read.
    """

    def __init__(
        self,
        tasks: TaskService,
        task: Task,
        *,
        hand_over_at: datetime | None,
        monotonic: Callable[[], float],
        timeout: timedelta | None = None,
    ) -> None:
        """`timeout` is how long the attempt may work, None for any time."""
        self.tasks = tasks.holding(task)
        self.task = self._leased = task
        self.task_id = task.task_id
        self.attempt = task.attempt_count
        self._hand_over_at = hand_over_at
        self._monotonic = monotonic
        self._alive_every = min(ALIVE_EVERY, tasks.policies.lease.lost_timeout / 4).total_seconds()
        self._lock = threading.RLock()
        self._checked = float("-inf")
        self._reported = self._began = monotonic()
        self._timeout = timeout
        self._unwritten: dict[str, Any] = {}
        self.settled: set[str] = set()
        """The children whose outcomes the work has read."""
        self.forgiven: set[str] = set()
        """Those of them that failed without failing the work."""
        self._fenced_at = float("-inf")
        self._update(task)

    def seconds(self) -> float:
        """Return the monotonic clock by which this attempt measures times."""
        return self._monotonic()

    def checkpoint(self, *, moved: bool = True) -> None:
        """Check before each piece of work that it may begin.

        Raises LeaseLost, RunCancelled, DeadlineExceeded, RunHandedOver, RunPaused or RunTimedOut if not. What is paused
        is read at most every 20 seconds (`pauses.lookout`).

        Work that waits for another process passes whether that has `moved` since the last call: an attempt whose work
        hangs must not write `progress_ts`.
        """
        self.look(moved=moved)

    def look(self, *, moved: bool) -> None:
        """Check as `checkpoint` does, for work that waits and calls none."""
        with self._lock:
            now = self._monotonic()
            # The lease may have been renewed since the last read.
            if now - self._checked >= CHECK_EVERY.total_seconds() or now >= self._fenced_at:
                self._update(self.tasks.reads.get(self.task_id))
                self._checked = self._monotonic()
            # Before the checks: this write may take longer than the lease.
            if moved and self._monotonic() - self._reported >= self._alive_every:
                self._note()
            task = self.task
            if not task.is_held or not is_same_lease(task, self._leased) or self._monotonic() >= self._fenced_at:
                raise LeaseLost(self.task_id, attempt=self.attempt, current=task.attempt_count, status=task.status)
            if task.cancel_requested:
                raise RunCancelled(self.task_id)
            if past_deadline(task, self.tasks.clock()):
                raise DeadlineExceeded(self.task_id, deadline_text(task))
            if self.tasks.is_draining:
                raise RunHandedOver(self.task_id)
            pause = self.tasks.pauses.work(task)
            if pause is not None:
                raise RunPaused(self.task_id, pause.text)
            if self._hand_over_at is not None and self.tasks.clock() >= self._hand_over_at:
                raise RunHandedOver(self.task_id)
            if self._timeout is not None and self._monotonic() - self._began >= self._timeout.total_seconds():
                raise RunTimedOut(self.task_id, self._timeout.total_seconds())

    def report(
        self,
        *,
        done: int | None = None,
        total: int | None = None,
        unit: str | None = None,
        message: str | None = None,
        eta: datetime | None = None,
        details: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> None:
        """Report progress and `details` of the work's own; what is not given stays, a detail that is None is removed.

        At most every two seconds it is written; one that comes sooner is written with the next one, or the outcome.
        Raises LeaseLost, and DelegationError (BAD_REPORT) at every call with what cannot be stored, written or not.
        """
        for name in unknown:
            raise bad_report(f"{name}: is not a member of a report; put it into the map `details`")
        with self._lock:
            given = {"done": done, "total": total, "unit": unit, "message": message}
            before = self._unwritten
            progress = advanced(before.get("progress", self.task.progress), given)
            reported = merged(before.get("reported", self.task.reported), details)
            self._unwritten = {**before, "progress": progress, "reported": reported}
            if eta is not None:
                self._unwritten["eta_ts"] = eta
            if self._monotonic() - self._reported >= REPORT_EVERY.total_seconds():
                self._note()

    def note_progress(self, details: Mapping[str, Any], *, eta: datetime | None) -> None:
        """Write details that the behavior's own record names, as `report` writes its own. Raises LeaseLost."""
        with self._lock:
            if self._monotonic() - self._reported >= REPORT_EVERY.total_seconds():
                self._note(details, eta_ts=eta)

    @property
    def unwritten(self) -> dict[str, Any]:
        """What was reported and has not been written, as fields of the task, for the write of the outcome."""
        return {name: value for name, value in self._unwritten.items() if name != "eta_ts"}

    def write(self, change: Callable[[], Task]) -> Task:
        with self._lock:
            self._update(change())
            return self.task

    def _note(self, details: Mapping[str, Any] = NOTHING, **fields: Any) -> None:
        now = self.tasks.clock()
        more = {**self._unwritten, **fields}
        self._update(self.tasks.leases.note(self.task_id, self.attempt, details=details, progress_ts=now, **more))
        self._unwritten = {}
        self._reported = self._monotonic()

    def _update(self, task: Task) -> None:
        self.task = task
        fence = fence_of(self.tasks.clock, task, self.tasks.policies.lease.clock_drift, self._monotonic)
        if fence is not None:
            self._fenced_at = fence
