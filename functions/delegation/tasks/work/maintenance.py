"""`store-maintenance`: the recurring task, one per store, that keeps the stores small and consistent."""

import logging
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final, Protocol

from pydantic import BaseModel, ConfigDict

from delegation.items import each_item
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.declared import is_wanted, runs
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import STORE_MAINTENANCE as TASK_TYPE
from delegation.tasks.stores.base import Unreadable
from delegation.tasks.submit import Tasks
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.reads import awaiting
from delegation.tasks.work.service import TaskService

logger = logging.getLogger(__name__)
_BATCH: Final = 25
_PAGE: Final = 500
"""Heads in a page. A store may read more than a page, and reads the rest again for the next (TaskStore.heads)."""
_NAMED_IDS: Final = 20
"""How many ids of unreadable tasks the report names; the log also names them."""


class ExpiringRecords(Protocol):
    """Records beside tasks that expire on their own, such as idempotency records."""

    def start_expiry(self, now: datetime) -> Iterator[bool | None]:
        """Yield for each record without an expiry whether it got one because its task ended; None if unreadable."""

    def remove_expired(self, now: datetime, limit: int) -> int:
        """Delete at most `limit` expired records and return how many."""


class TaskMaintenance(BaseModel):
    """No parameters: the properties of the process that runs the task set the retention."""

    model_config = ConfigDict(frozen=True)


class MaintenanceReport(BaseModel):
    """What one run did, and what it left because it failed or this release cannot read it (only the first ids)."""

    model_config = ConfigDict(frozen=True)

    tasks_removed: int = 0
    versions_removed: int = 0
    heads_repaired: int = 0
    expiries_started: int = 0
    records_removed: int = 0
    failed: int = 0
    unreadable: int = 0
    unreadable_ids: tuple[str, ...] = ()
    records_unreadable: int = 0


def store_maintenance(
    tasks: TaskService, records: Callable[[], ExpiringRecords | None], task_types: Callable[[], Collection[str]]
) -> Behavior[TaskMaintenance, MaintenanceReport]:
    """Return the behavior. Both functions are called when it runs, so a process that only submits needs no records.
    Tasks of types not in `task_types` belong to a newer deployment and are kept at any age."""

    def work(_parameters: TaskMaintenance, run: AttemptContext) -> MaintenanceReport:
        # Records first: their replays may need the tasks that are deleted after them.
        keys = _expire_records(records(), tasks, run)
        report = _maintain_tasks(tasks, run, task_types()).model_copy(update=keys)
        if report.unreadable or report.records_unreadable:
            logger.warning(
                "%d tasks and %d idempotency records were kept: this release cannot read them. Tasks: %s",
                report.unreadable,
                report.records_unreadable,
                ", ".join(report.unreadable_ids),
                extra={"action": "maintain", "error_code": MalformedRecord.code},
            )
        return report

    return Behavior(
        TASK_TYPE,
        TaskMaintenance,
        work,
        result=MaintenanceReport,
        identify=lambda _parameters: "singleton",
        every=tasks.policies.maintenance.interval,
    )


def maintenance_head(tasks: TaskService, behavior: Behavior[TaskMaintenance, MaintenanceReport]) -> Task | None:
    """Return the maintenance task, None if it was never submitted."""
    return tasks.reads.find(behavior.task_id(TaskMaintenance()))


def ensure_submitted(tasks: TaskService, behavior: Behavior[TaskMaintenance, MaintenanceReport]) -> bool:
    """Submit the maintenance task unless it exists, usually with one read; return whether this call did. An existing
    one gets the configured interval."""
    parameters = TaskMaintenance()
    head = maintenance_head(tasks, behavior)
    if is_wanted(head, behavior.every, tasks.clock()):
        return Tasks(tasks).submit(behavior, parameters).is_new
    if head is None:
        return False
    if behavior.every is not None and head.recurrence_seconds != int(behavior.every.total_seconds()):
        every = behavior.every
        tasks.writes.change(head.task_id, lambda task, now: _with_interval(tasks, task, every, now), task=head)
    return False


def _with_interval(tasks: TaskService, task: Task, every: timedelta, now: datetime) -> Task:
    """Return the task with another interval; a run scheduled further ahead than that is brought forward."""
    seconds = int(every.total_seconds())
    if task.is_terminal or task.recurrence_seconds == seconds:
        return task
    if task.next_scheduled_run_ts is None or task.next_scheduled_run_ts <= now + every:
        return task.evolve(recurrence_seconds=seconds)
    due = tasks.policies.dispatch.due_after(now + every)
    return task.evolve(recurrence_seconds=seconds, next_scheduled_run_ts=now + every, due_at=due)


def _expire_records(records: ExpiringRecords | None, tasks: TaskService, run: AttemptContext) -> dict[str, int]:
    """Start and delete expiries; return the counts as fields of the report."""
    if records is None:
        return {}
    kept: Counter[bool | None] = Counter()
    for did_start in records.start_expiry(tasks.clock()):
        run.checkpoint()
        kept[did_start] += 1
    removed, batch = 0, _BATCH
    while batch == _BATCH:
        run.checkpoint()
        # By the slowest clock of all processes, which may still replay what has expired here.
        batch = records.remove_expired(tasks.clock() - tasks.policies.lease.clock_drift, _BATCH)
        removed += batch
    return {"expiries_started": kept[True], "records_removed": removed, "records_unreadable": kept[None]}


def _maintain_tasks(tasks: TaskService, run: AttemptContext, task_types: Collection[str]) -> MaintenanceReport:
    done: Counter[str] = Counter()
    unreadable: list[str] = []

    def maintained(entry: Task | Unreadable) -> dict[str, int]:
        if isinstance(entry, Unreadable) or not runs(task_types, entry):
            return {}
        return _maintain(tasks, entry, own=run.task.task_id)

    def drawn(entry: Task | Unreadable) -> int:
        # A page ends early if failing tasks take too long. In another order at each run, none is always left out.
        return zlib.crc32(f"{run.task.version}/{entry.task_id}".encode())

    cursor: str | None = None
    while True:
        page = tasks.reads.store.heads(cursor=cursor, limit=_PAGE)
        for outcome in each_item(
            sorted(page.entries, key=drawn),
            maintained,
            name="maintenance.tasks",
            clock=tasks.clock,
            shown=lambda entry: entry.task_id,
            checkpoint=run.checkpoint,
        ):
            # A newer release may have rewritten it or one of its rows since the page was read.
            if isinstance(outcome.item, Unreadable) or isinstance(outcome.error, MalformedRecord):
                unreadable.append(outcome.item.task_id)
            elif outcome.error is not None:
                done["failed"] += 1
            done.update(outcome.result or {})
        cursor = page.cursor
        if cursor is None:
            return MaintenanceReport(**done, unreadable=len(unreadable), unreadable_ids=tuple(unreadable[:_NAMED_IDS]))


def _maintain(tasks: TaskService, head: Task, *, own: str) -> dict[str, int]:
    """Maintain one task and return the counts as fields of the report; `own` is this run's task."""
    done = {"versions_removed": _cap_history(tasks, head) if head.is_recurring else 0}
    if head.family.attempts_before:
        tasks.reads.store.disown(head.task_id, head.family.attempts_before)
    if head.task_id == own:
        return done
    if _is_removable(tasks, head):
        done["tasks_removed"] = tasks.writes.remove(head)
    elif _is_orphaned(head):
        done["heads_repaired"] = not _is_orphaned(
            tasks.writes.change(head.task_id, lambda task, _now: _indexed(tasks, task))
        )
    return done


def _is_removable(tasks: TaskService, head: Task) -> bool:
    """Return whether a task is past retention and no parent, readable or not, may wait for its outcome."""
    if not head.is_terminal or head.last_status_change_ts + tasks.policies.maintenance.retention > tasks.clock():
        return False
    try:
        return next(awaiting(tasks.reads, head), None) is None
    except MalformedRecord:
        return False


def _is_orphaned(head: Task) -> bool:
    """Return whether a task that is not terminal is missing from the due index."""
    return not head.is_terminal and head.due_at is None


def _cap_history(tasks: TaskService, head: Task) -> int:
    """Delete a recurring task's rows past retention, except the newest. Clocks differ, so a row may be younger than the
    next; then both stay."""
    before = tasks.clock() - tasks.policies.maintenance.retention
    below = 0
    while rows := tasks.reads.versions(head.task_id, after=below, limit=_BATCH):
        old = [row.version for row in takewhile(lambda row: row.last_status_change_ts <= before, rows)]
        if old:
            below = old[-1]
        if len(old) < len(rows):
            break
    return tasks.reads.store.forget(head.task_id, below + 1) if below else 0


def _indexed(tasks: TaskService, task: Task) -> Task:
    if not _is_orphaned(task):
        return task
    waiting = task.next_scheduled_run_ts
    due = task.lease.lost_not_before if waiting is None else tasks.policies.dispatch.due_after(waiting)
    return task.evolve(due_at=due)
