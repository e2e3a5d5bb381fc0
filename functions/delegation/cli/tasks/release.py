"""Ending the attempt of a holder that is dead, before its lease is over."""

import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from delegation.cli.errors import CommandError, task_stays, task_unknown
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import Policies
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.parts.hooks import TaskHooks
from delegation.tasks.work.service import TaskService
from delegation.wire.tasks import TaskRecord
from delegation.wiring.types import TYPES

_WORKER: Final = re.compile(r"worker:(?P<host>.+):(?P<pid>\d+):\d+")


def holder_may_live(task: Task) -> CommandError:
    """Return the error: nothing proves that the holder of a task is dead."""
    end = f"{task.lease.lost_not_before:%Y-%m-%d %H:%M:%S} UTC"
    job = f", with job run {task.job_run_id}" if task.job_run_id else ""
    return CommandError(
        f"{task.lease.owner}{job} holds task {task.task_id} until {end}, and may be alive; nothing was changed",
        "Wait for that time, or end the process and its job run, and repeat with --force.",
        code="HOLDER_MAY_LIVE",
    )


def process_exists(pid: int) -> bool:
    """Return whether this machine runs a process of this number, of any user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(frozen=True, slots=True)
class LeaseRelease:
    """Releases leases in a task table; `is_running` tests whether a process of this machine exists."""

    store: TaskStore
    policies: Policies
    clock: Callable[[], datetime]
    host: str = socket.gethostname()
    is_running: Callable[[int], bool] = process_exists

    def release(self, task_id: str, *, by: str, force: bool) -> TaskRecord:
        """End the attempt of a task as lost and return the task; raises CommandError."""
        service = TaskService(
            self.store, self.policies, NoDispatchQueue(), clock=self.clock, hooks=TaskHooks(types=TYPES)
        )
        try:
            task = service.reads.get(task_id)
        except TaskNotFound as error:
            raise task_unknown(task_id) from error
        if not task.is_held:
            raise task_stays(task_id, f"is {task.status} and has no holder", "There is no lease to release.")
        if not force and not self._is_dead(task):
            raise holder_may_live(task)
        reason = f"the lease of {task.lease.owner} was released by {by}" + (" (--force)" if force else "")
        after = service.holding(task).operators.release(task_id, task.attempt_count, reason)
        return TaskRecord.of(after.public())

    def _is_dead(self, task: Task) -> bool:
        """Return whether the holder is proven dead: a worker of this machine whose process is gone.

        A Spark job outlives the process that holds its task, so nothing here proves its end.
        """
        found = _WORKER.fullmatch(task.lease.owner or "")
        if found is None or task.job_run_id is not None or task.engine not in {None, "inline"}:
            return False
        return found["host"] == self.host and not self.is_running(int(found["pid"]))
