"""`store-maintenance`: the recurring singleton that keeps the stores small and consistent (issue of reliable tasks).

Its id is deterministic, so there is one task of it in a store, and one holder of that task: never two at once.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta
from typing import Final, Protocol

from pydantic import BaseModel, ConfigDict

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Unreadable
from delegation.tasks.work.behaviors import Behavior, Run
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.submit import Tasks

logger = logging.getLogger(__name__)
KIND: Final = "STORE_MAINTENANCE"
_BATCH: Final = 25
_PAGE: Final = 500
"""Heads at a time: a store reads further than a page, and reads the rest of it again for the next (TaskStore.heads)."""
_TOLD: Final = 20
"""So many ids of unreadable tasks are told: a record has room for a few, and whoever asks has the list."""


class ExpiringRecords(Protocol):
    """Records beside tasks that have a lifetime of their own: idempotency keys, for one."""

    def start_expiry(self, now: datetime) -> Iterator[bool | None]:
        """For each record without an expiry whether it got one, because its task is over; None if it is unreadable."""

    def remove_expired(self, now: datetime, limit: int) -> int:
        """Remove at most `limit` expired records; how many were."""


class TaskMaintenance(BaseModel):
    """Nothing to choose: retention follows the properties of whoever runs it."""

    model_config = ConfigDict(frozen=True)


class MaintenanceReport(BaseModel):
    """What one run did, and what it had to leave because this release cannot read it (of the ids only the first)."""

    model_config = ConfigDict(frozen=True)

    tasks_removed: int = 0
    versions_removed: int = 0
    heads_repaired: int = 0
    expiries_started: int = 0
    records_removed: int = 0
    unreadable: int = 0
    unreadable_ids: tuple[str, ...] = ()
    records_unreadable: int = 0


def store_maintenance(
    tasks: TaskService, records: Callable[[], ExpiringRecords | None], kinds: Callable[[], Collection[str]]
) -> Behavior[TaskMaintenance, MaintenanceReport]:
    """The behavior; both are called when it runs, so that a process that only submits needs no access to records.

    Tasks of other `kinds` than those of this deployment are a newer one's, and left to it whatever their age.
    """

    def work(_parameters: TaskMaintenance, run: Run) -> MaintenanceReport:
        # Records first: what they replay may need the tasks that are removed after them.
        keys = _keep_records(records(), tasks, run)
        report = _keep_tasks(tasks, run, kinds()).model_copy(update=keys)
        if report.unreadable or report.records_unreadable:
            logger.warning(
                "%d tasks and %d idempotency records were left: this release cannot read them. Tasks: %s",
                report.unreadable,
                report.records_unreadable,
                ", ".join(report.unreadable_ids),
                extra={"action": "maintain", "error_code": MalformedRecord.code},
            )
        return report

    return Behavior(
        KIND,
        TaskMaintenance,
        work,
        result=MaintenanceReport,
        identify=lambda _parameters: "singleton",
        every=tasks.maintenance.interval,
    )


def ensure_submitted(tasks: TaskService, behavior: Behavior[TaskMaintenance, MaintenanceReport]) -> bool:
    """Submit the maintenance task unless it is there, one read in the usual case; whether this call did.

    One that is there follows the interval as it is configured now. One that somebody cancelled stays so: a FAILURE is
    left to be retried by hand.
    """
    parameters = TaskMaintenance()
    head = tasks.find(behavior.task_id(parameters))
    if head is None:
        return Tasks(tasks).submit(behavior, parameters).is_new
    if behavior.every is not None and head.recurrence_seconds != int(behavior.every.total_seconds()):
        every = behavior.every
        tasks.change(head.task_id, lambda task, now: _repeating(tasks, task, every, now), task=head)
    return False


def _repeating(tasks: TaskService, task: Task, every: timedelta, now: datetime) -> Task:
    """The task with another interval; a run that waits for a time further ahead than that is brought forward."""
    seconds = int(every.total_seconds())
    if task.is_terminal or task.recurrence_seconds == seconds:
        return task
    if task.next_scheduled_run_ts is None or task.next_scheduled_run_ts <= now + every:
        return task.evolve(recurrence_seconds=seconds)
    due = tasks.due_after(now + every)
    return task.evolve(recurrence_seconds=seconds, next_scheduled_run_ts=now + every, due_at=due)


def _keep_records(records: ExpiringRecords | None, tasks: TaskService, run: Run) -> dict[str, int]:
    """What became of them, as fields of the report."""
    if records is None:
        return {}
    kept: Counter[bool | None] = Counter()
    for did_start in records.start_expiry(tasks.clock()):
        run.checkpoint()
        kept[did_start] += 1
    removed, gone = 0, _BATCH
    while gone == _BATCH:
        run.checkpoint()
        # By the slowest clock that may have written: a caller there still replays what expired here.
        gone = records.remove_expired(tasks.clock() - tasks.lease.clock_drift, _BATCH)
        removed += gone
    return {"expiries_started": kept[True], "records_removed": removed, "records_unreadable": kept[None]}


def _keep_tasks(tasks: TaskService, run: Run, kinds: Collection[str]) -> MaintenanceReport:
    done: Counter[str] = Counter()
    unreadable: list[str] = []
    cursor: str | None = None
    while True:
        page = tasks.heads(cursor=cursor, limit=_PAGE)
        for entry in page.entries:
            run.checkpoint()
            if isinstance(entry, Unreadable):
                unreadable.append(entry.task_id)
            elif entry.task_type in kinds:
                try:
                    done.update(_keep(tasks, entry, own=run.task.task_id))
                except MalformedRecord:  # rewritten by a newer release since, or one of its rows is
                    unreadable.append(entry.task_id)
        cursor = page.cursor
        if cursor is None:
            return MaintenanceReport(**done, unreadable=len(unreadable), unreadable_ids=tuple(unreadable[:_TOLD]))


def _keep(tasks: TaskService, head: Task, *, own: str) -> dict[str, int]:
    """What was done with one task, as fields of the report; `own` is the task of this run."""
    done = {"versions_removed": 0 if head.recurrence_seconds is None else _forget(tasks, head)}
    if head.task_id == own:
        return done
    if is_removable(tasks, head):
        done["tasks_removed"] = tasks.remove(head)
    elif is_orphaned(head):
        done["heads_repaired"] = not is_orphaned(tasks.change(head.task_id, lambda task, _now: _indexed(tasks, task)))
    return done


def is_removable(tasks: TaskService, head: Task) -> bool:
    """Whether a task is past retention; a child's outcome is kept while its parent, which is told by it, waits for it.

    A parent that cannot be read may be waiting. One that recurs has other children in every run.
    """
    if not head.is_terminal or head.last_status_change_ts + tasks.maintenance.retention > tasks.clock():
        return False
    try:
        parent = None if head.parent_id is None else tasks.find(head.parent_id)
    except MalformedRecord:
        return False
    return parent is None or parent.is_terminal or head.task_id not in parent.children


def is_orphaned(head: Task) -> bool:
    """Whether nobody will look at a live task again; that a terminal one is in the index, its model rules out."""
    return not head.is_terminal and head.due_at is None


def _forget(tasks: TaskService, head: Task) -> int:
    """Cap the history of a task that recurs, and so is never removed: rows past retention go, the newest stays."""
    before = tasks.clock() - tasks.maintenance.retention
    below = 0
    while rows := tasks.versions(head.task_id, after=below, limit=_BATCH):
        old = [row.version for row in rows if row.last_status_change_ts <= before]
        if old:
            below = old[-1]
        if len(old) < len(rows):
            break
    return tasks.forget(head.task_id, below + 1) if below else 0


def _indexed(tasks: TaskService, task: Task) -> Task:
    if not is_orphaned(task):
        return task
    waiting = task.next_scheduled_run_ts
    due = task.lost_not_before if waiting is None else tasks.due_after(waiting)
    return task.evolve(due_at=due)
