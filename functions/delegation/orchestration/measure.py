"""What the sweeper measures of the tasks that are not done: how many wait, and how old the oldest are.

It reads the sparse indexes, which have no task that ended, a bounded part of them, and the heads of at most LOOKED_AT
tasks; never the whole table.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Final

from delegation.items import each_item
from delegation.metrics import (
    MAINTENANCE_AGE_SECONDS,
    OLDEST_LEASE_SECONDS,
    OLDEST_UNFINISHED_SECONDS,
    OLDEST_WAITING_SECONDS,
    TASKS_WAITING,
    Metric,
)
from delegation.tasks.life.lanes import Queued
from delegation.tasks.life.model import Task
from delegation.tasks.work.parts.reads import TaskReads

LOOKED_AT: Final = 100
"""Heads read for the ages, those whose next check is nearest; a read costs one request unit."""
COUNTED: Final = 100
"""So many waiting tasks of each lane are counted."""
_ANY_TIME: Final = timedelta(days=3650)


def unfinished(reads: TaskReads, now: datetime, *, threads: int = 1) -> Sequence[Task]:
    """Return tasks without an outcome, as the due index has them, those whose next check is nearest first."""
    ids = [entry.task_id for entry in reads.due(now + _ANY_TIME, limit=LOOKED_AT)]
    with ThreadPoolExecutor(threads) as pool:
        found = each_item(ids, reads.find, name="sweep.measured", clock=lambda: now, pool=pool, at_once=threads)
        return [one.result for one in found if one.result is not None and not one.result.is_terminal]


def ages(waiting: Sequence[Queued], found: Iterable[Task], now: datetime) -> dict[Metric, float]:
    """Return count and ages of tasks that wait for a place, and the ages of those that `found` has.

    Recurring tasks have no end, and a task that is to run later is not late.
    """
    found = [task for task in found if not task.is_recurring]
    waits = [_age(one.since, now) for one in waiting]
    begun = [task for task in found if not _is_scheduled_ahead(task, now)]
    leases = [_age(task.lease.acquired_ts, now) for task in found if task.is_held and task.lease.acquired_ts]
    return {
        TASKS_WAITING: len(waits),
        OLDEST_WAITING_SECONDS: max(waits, default=0),
        OLDEST_UNFINISHED_SECONDS: max((*waits, *(_age(task.received_timestamp, now) for task in begun)), default=0),
        OLDEST_LEASE_SECONDS: max(leases, default=0),
    }


def maintenance_age(head: Task | None, now: datetime) -> Mapping[Metric, float]:
    """Return the time since the maintenance ended well; nothing before it was first submitted.

    A recurring task is submitted anew by the write of a run's end, and not by that of an attempt's error.
    """
    return {} if head is None else {MAINTENANCE_AGE_SECONDS: _age(head.received_timestamp, now)}


def _is_scheduled_ahead(task: Task, now: datetime) -> bool:
    at = task.next_scheduled_run_ts
    return task.attempt_count == 0 and at is not None and at > now


def _age(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())
