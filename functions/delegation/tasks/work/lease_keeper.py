"""Keeping the lease of an attempt whose work runs in this process, and detecting that this failed."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from datetime import datetime, timedelta
from typing import Any, Final

from delegation.tasks.errors import LeaseLost, TaskError, TaskNotFound
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import LeasePolicy
from delegation.tasks.work.attempt_context import fence_of
from delegation.tasks.work.service import TaskService
from polaris_common.errors import ErrorScope

logger = logging.getLogger(__name__)
_LEAST_PAUSE: Final = timedelta(milliseconds=20)


class WorkOutlivedLease(TaskError):
    """The lease of an attempt ended and its work did not stop; the process has to end to stop it in time."""

    code = "WORK_OUTLIVED_LEASE"
    scope = ErrorScope.SERVICE

    def __init__(self, task: Task) -> None:
        super().__init__(f"attempt {task.attempt_count} of task {task.task_id} did not stop when its lease ended")
        self.task_id = task.task_id


DoneWithin = Callable[["Future[Any]", float], bool]
"""Waits at most so many seconds for work to end, with a result or an error; returns whether it ended."""


def done_within(work: "Future[Any]", seconds: float) -> bool:
    return bool(wait([work], timeout=seconds).done)


def renew_every(lease: LeasePolicy) -> timedelta:
    """Return a pause with which one renewal may fail before `recheck_not_before` (half a lease) less the drift."""
    return max((lease.lost_timeout / 2 - lease.clock_drift) / 2, _LEAST_PAUSE)


class LeaseKeeper:
    """Renews the lease of one attempt while its work runs.

    An attempt fences itself a clock drift before its lease ends (AttemptContext); work that has not stopped half a
    drift later raises WorkOutlivedLease. Another thread renews, because a call to an unreachable store may take longer
    than the lease. The lease of work that wrote no `progress_ts` for a whole lease is not renewed: a hung attempt is
    lost.
    """

    def __init__(
        self, tasks: TaskService, task: Task, monotonic: Callable[[], float], waits: DoneWithin = done_within
    ) -> None:
        self._tasks = tasks.holding(task)
        self._task = task
        self._monotonic = monotonic
        self._waits = waits
        self._lease = tasks.policies.lease
        self._fence = self._monotonic()
        self._move_fence(task)

    def watch(self, work: "Future[Any]") -> None:
        """Return when the work has ended; WorkOutlivedLease when it continues without a lease."""
        renewing = threading.Thread(target=self._run, args=(work,), name=f"lease-{self._task.task_id}", daemon=True)
        renewing.start()
        while not self._waits(work, max(self._fence - self._monotonic(), 0)):
            if self._monotonic() >= self._fence:
                raise WorkOutlivedLease(self._task)
        renewing.join()

    def _run(self, work: "Future[Any]") -> None:
        every = renew_every(self._lease)
        pause = every
        while not self._waits(work, pause.total_seconds()):
            try:
                self._move_fence(self._renew())
                pause = every
            except (LeaseLost, TaskNotFound):
                return  # the next checkpoint of the work stops it, and its writes are refused
            except TaskError as error:
                pause = max(every / 4, _LEAST_PAUSE)
                fields = {"action": "renew", "task_id": self._task.task_id, "error_code": error.code}
                logger.warning("a lease was not renewed", extra=fields)

    def _renew(self) -> Task:
        """Renew the lease for its full time after the last progress, which an attempt records at its checkpoints."""
        seen = self._tasks.reads.get(self._task.task_id)
        sign = max(filter(None, (self._task.lease.acquired_ts, seen.progress_ts)))

        def lease(_now: datetime) -> Lease:
            return Lease.lasting(self._lease.lost_timeout, sign)

        return self._tasks.leases.heartbeat(self._task.task_id, self._task.attempt_count, lease)

    def _move_fence(self, task: Task) -> None:
        fence = fence_of(self._tasks.clock, task, self._lease.clock_drift / 2, self._monotonic)
        self._fence = self._fence if fence is None else fence
