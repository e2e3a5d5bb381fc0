"""The deadlines of a lease, and which lease a task has."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from delegation.tasks.life.model import Task


@dataclass(frozen=True, slots=True)
class Lease:
    """When the holder is presumed lost, and until when others need not check the task."""

    lost_not_before: datetime
    recheck_not_before: datetime

    @classmethod
    def until(cls, lost_not_before: datetime, now: datetime) -> "Lease":
        """Return a lease that ends at a given time; others check the task half way."""
        return cls(lost_not_before, now + (lost_not_before - now) / 2)

    @classmethod
    def lasting(cls, duration: timedelta, now: datetime) -> "Lease":
        return cls.until(now + duration, now)


def execution_of(owner: str | None, task_id: str) -> bool:
    """Return whether a lease holder is an execution of the state machine, which is named after its task."""
    return owner is not None and owner.startswith(f"{task_id}-")


def is_same_lease(task: Task, held: Task) -> bool:
    """Return whether a task has, or last had, the lease that `held` was read with: attempt, time and owner. The attempt
    number alone is ambiguous: a task that was removed and submitted again counts from one. An execution that continues
    another's attempt continues its lease."""
    if (task.attempt_count, task.lease.acquired_ts) != (held.attempt_count, held.lease.acquired_ts):
        return False
    if task.lease.owner is None or task.lease.owner == held.lease.owner:
        return True
    return execution_of(task.lease.owner, task.task_id) and execution_of(held.lease.owner, task.task_id)
