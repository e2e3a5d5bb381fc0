"""A purge's attempt over the task store: fencing, plan publication, progress."""

from collections.abc import Callable
from datetime import datetime

from delegation.purge import attempt as seam
from delegation.tasks.errors import LeaseLost, RunCancelled, RunHandedOver, TaskNotFound
from delegation.tasks.model import PlanSegment, Task
from delegation.tasks.runs import HeldRun
from delegation.tasks.service import TaskService


class TaskAttempt:
    """purge.attempt.Attempt for one attempt of one task, in the purge's own words."""

    def __init__(
        self, tasks: TaskService, task: Task, *, hand_over_at: datetime | None, monotonic: Callable[[], float]
    ) -> None:
        self._tasks = tasks
        self._run = HeldRun(tasks, task, hand_over_at=hand_over_at, monotonic=monotonic)
        self._seen = len(task.plan_segments)
        self.task_id = task.task_id
        self.attempt = task.attempt_count

    def checkpoint(self, *, moved: bool = True) -> None:
        """See Attempt.checkpoint."""
        try:
            self._run.checkpoint(moved=moved)
        except (LeaseLost, TaskNotFound) as lost:
            raise seam.LeaseLost(str(lost)) from None
        except RunCancelled as cancelled:
            raise seam.Cancelled(str(cancelled)) from None
        except RunHandedOver as over:
            raise seam.HandOver(str(over)) from None

    def plan(self) -> tuple[seam.PlanSegment, ...]:
        """See Attempt.plan."""
        return self._segments(self._fenced(lambda: self._tasks.get(self.task_id)))

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
        """See Attempt.progress."""
        eta = eta_of(self._run.task, files_deleted, self._tasks.clock())
        try:
            self._run.report(
                files_deleted=files_deleted, files_failed=files_failed, bytes_deleted=bytes_deleted, eta_ts=eta
            )
        except (LeaseLost, TaskNotFound) as lost:
            raise seam.LeaseLost(str(lost)) from None

    def _segments(self, task: Task) -> tuple[seam.PlanSegment, ...]:
        self._seen = len(task.plan_segments)
        return tuple(seam.PlanSegment(part.id, part.sha256) for part in task.plan_segments)

    def _fenced(self, write: Callable[[], Task]) -> Task:
        try:
            return self._run.write(write)
        except (LeaseLost, TaskNotFound) as lost:
            raise seam.LeaseLost(str(lost)) from None


def eta_of(task: Task, files_deleted: int, now: datetime) -> datetime | None:
    """When the last planned file should be gone at the pace since the first delete; None while that says nothing."""
    if task.first_delete_ts is None or not task.files_planned or files_deleted <= 0 or now <= task.first_delete_ts:
        return None
    left = max(task.files_planned - files_deleted, 0)
    return now + (now - task.first_delete_ts) * left / files_deleted
