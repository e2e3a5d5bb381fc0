"""A purge's attempt over the task store: fencing, plan publication, progress."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from delegation.purge import attempt as seam
from delegation.tasks.errors import LeaseLost, TaskNotFound
from delegation.tasks.model import PlanSegment, Task
from delegation.tasks.service import TaskService

CHECK_EVERY: Final = timedelta(seconds=1)
PROGRESS_EVERY: Final = timedelta(seconds=2)
ALIVE_EVERY: Final = timedelta(seconds=30)
"""A long stretch without a delete (planning) is still a sign of life: who renews the lease looks at `progress_ts`."""


class TaskAttempt:
    """purge.attempt.Attempt for one attempt of one task.

    `hand_over_at` is when no further batch may start here. The head is read at most once a second for checkpoints and
    written at most every two for progress. A holder whose lease ran out stops by its own clock, before it is told.
    Checkpoints come from several threads; they share one look.
    """

    def __init__(
        self, tasks: TaskService, task: Task, *, hand_over_at: datetime | None, monotonic: Callable[[], float]
    ) -> None:
        self._tasks = tasks
        self._task = task
        self._hand_over_at = hand_over_at
        self._lock = threading.RLock()
        self._monotonic = monotonic
        self._checked = float("-inf")
        self._reported = monotonic()
        self._seen = len(task.plan_segments)
        self.task_id = task.task_id
        self.attempt = task.attempt_count

    def checkpoint(self) -> None:
        """See Attempt.checkpoint."""
        with self._lock:
            self._check()

    def _check(self) -> None:
        now = self._tasks.clock()
        if self._monotonic() - self._checked >= CHECK_EVERY.total_seconds():
            self._task = self._tasks.get(self.task_id)
            self._checked = self._monotonic()
        task = self._task
        if not task.is_held or task.attempt_count != self.attempt:
            raise seam.LeaseLost(f"attempt {self.attempt} of task {self.task_id} is over: {task.status}")
        if task.lost_not_before is not None and now >= task.lost_not_before:
            raise seam.LeaseLost(f"the lease of attempt {self.attempt} of task {self.task_id} ran out")
        if task.cancel_requested:
            raise seam.Cancelled("cancelled on request")
        if self._hand_over_at is not None and now >= self._hand_over_at:
            raise seam.HandOver("time is up here; the next attempt goes on")
        if self._monotonic() - self._reported >= ALIVE_EVERY.total_seconds():
            self._fenced(lambda: self._tasks.note(self.task_id, self.attempt, progress_ts=now))
            self._reported = self._monotonic()

    def plan(self) -> tuple[seam.PlanSegment, ...]:
        """See Attempt.plan."""
        return self._segments(self._tasks.get(self.task_id))

    def publish(self, segment: seam.PlanSegment, *, files_planned: int) -> tuple[seam.PlanSegment, ...]:
        """See Attempt.publish."""
        stored = PlanSegment(id=segment.id, sha256=segment.sha256)
        return self._segments(
            self._fenced(
                lambda: self._tasks.publish_plan(
                    self.task_id, self.attempt, stored, seen=self._seen, files_planned=files_planned
                )
            )
        )

    def begin_deleting(self) -> None:
        """See Attempt.begin_deleting."""
        self._fenced(lambda: self._tasks.start(self.task_id, self.attempt, first_delete=True))

    def progress(self, *, files_deleted: int, files_failed: int, bytes_deleted: int) -> None:
        """See Attempt.progress; what is too soon to be written is covered by the next report or the outcome."""
        with self._lock:
            self._report(files_deleted, files_failed, bytes_deleted)

    def _report(self, files_deleted: int, files_failed: int, bytes_deleted: int) -> None:
        if self._monotonic() - self._reported < PROGRESS_EVERY.total_seconds():
            return
        now = self._tasks.clock()
        eta = eta_of(self._task, files_deleted, now)
        self._fenced(
            lambda: self._tasks.note(
                self.task_id,
                self.attempt,
                files_deleted=files_deleted,
                files_failed=files_failed,
                bytes_deleted=bytes_deleted,
                progress_ts=now,
                eta_ts=eta,
            )
        )
        self._reported = self._monotonic()

    def _segments(self, task: Task) -> tuple[seam.PlanSegment, ...]:
        self._task = task
        self._seen = len(task.plan_segments)
        return tuple(seam.PlanSegment(part.id, part.sha256) for part in task.plan_segments)

    def _fenced(self, write: Callable[[], Task]) -> Task:
        try:
            self._task = write()
        except (LeaseLost, TaskNotFound) as lost:
            raise seam.LeaseLost(str(lost)) from None
        return self._task


def eta_of(task: Task, files_deleted: int, now: datetime) -> datetime | None:
    """When the last planned file should be gone at the pace since the first delete; None while that says nothing."""
    if task.first_delete_ts is None or not task.files_planned or files_deleted <= 0 or now <= task.first_delete_ts:
        return None
    left = max(task.files_planned - files_deleted, 0)
    return now + (now - task.first_delete_ts) * left / files_deleted
