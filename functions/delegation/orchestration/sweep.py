"""The sweep over the due index, and measurements of unfinished tasks. Measuring reads a bounded part of the sparse
indexes, which have no ended task, and the heads of at most HEADS_READ tasks; never the whole table."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
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
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life import outcomes
from delegation.tasks.life.declared import runs
from delegation.tasks.life.lanes import Queued
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import DueEntry
from delegation.tasks.work.reads import TaskReads
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import LeftAlone

HEADS_READ: Final = 100
"""Heads read to measure ages: those with the nearest next check. A read costs one request unit."""
COUNTED: Final = 100
"""The most waiting tasks of each lane that are counted."""
_ANY_TIME: Final = timedelta(days=3650)


def unfinished(reads: TaskReads, now: datetime, *, threads: int = 1) -> Sequence[Task]:
    """Return tasks without an outcome from the due index, those with the nearest next check first."""
    ids = [entry.task_id for entry in reads.due(now + _ANY_TIME, limit=HEADS_READ)]
    with ThreadPoolExecutor(threads) as pool:
        outcomes = each_item(ids, reads.find, name="sweep.measured", clock=lambda: now, pool=pool, at_once=threads)
        return [outcome.result for outcome in outcomes if outcome.result is not None and not outcome.result.is_terminal]


def ages(waiting: Iterable[Queued], tasks: Iterable[Task], now: datetime) -> dict[Metric, float]:
    """Return count and ages of tasks that wait for a place, and the ages of those in `tasks`. Recurring tasks have no
    end, and a task scheduled for later is not late."""
    tasks = [task for task in tasks if not task.is_recurring]
    waits = [_age(queued.since, now) for queued in waiting]
    begun = [task for task in tasks if task.attempt_count or (task.next_scheduled_run_ts or now) <= now]
    leases = [_age(task.lease.acquired_ts, now) for task in tasks if task.is_held and task.lease.acquired_ts]
    return {
        TASKS_WAITING: len(waits),
        OLDEST_WAITING_SECONDS: max(waits, default=0),
        OLDEST_UNFINISHED_SECONDS: max((*waits, *(_age(task.received_timestamp, now) for task in begun)), default=0),
        OLDEST_LEASE_SECONDS: max(leases, default=0),
    }


def maintenance_age(head: Task | None, now: datetime) -> Mapping[Metric, float]:
    """Return the time since the maintenance last succeeded; nothing before it was first submitted. The write that ends
    a run submits a recurring task again; the write of an attempt's error does not."""
    return {} if head is None else {MAINTENANCE_AGE_SECONDS: _age(head.received_timestamp, now)}


def _age(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())


@dataclass(frozen=True, slots=True)
class Swept:
    """What the sweeper did with one due entry; `error` is set if that failed. `unsettled`: the attempt is lost, but its
    external job could not be ended. `set_aside`: it failed in former sweeps and is tried again later."""

    before: Task | None
    after: Task | None
    error: Exception | None = None
    unsettled: bool = False
    set_aside: bool = False

    @property
    def had_no_answer(self) -> bool:
        """Whether the task was dispatched and no attempt started within the dispatch grace."""
        before, after = self.before, self.after
        if before is None or after is None or after is before or before.is_held or before.is_queued:
            return False
        return before.dispatches.count > before.dispatches.base


def sweep(
    tasks: TaskService,
    task_types: Collection[str],
    *,
    deadline: datetime,
    clock: Callable[[], datetime],
    limit: int = 1_000,
    threads: int = 1,
    left_alone: LeftAlone | None = None,
) -> Iterator[Swept]:
    """Reconcile every due task until `deadline`, `threads` at a time; one task's error does not stop the others.

    Held tasks come first, because only the sweeper finds lost ones; then waiting ones, oldest first. A task of an
    unknown type, for a newer deployment, is skipped and remembered in `left_alone`. So is an unreadable one, which is
    reported as an error once. Each read of the index requests more entries than were seen before, so that entries which
    stay due (skipped, failed) never hide others.
    """
    current = _Sweep(tasks, task_types, deadline, clock, LeftAlone() if left_alone is None else left_alone)
    seen: set[str] = set()
    waiting: list[Task] = []
    with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
        while not current.is_late():
            wanted = len(seen) + max(limit, len(seen))
            entries = tasks.reads.due(clock(), limit=wanted)
            fresh = [entry for entry in entries if entry.task_id not in seen]
            seen.update(entry.task_id for entry in fresh)
            held: list[Task] = []
            for outcome in each_item(
                fresh,
                current.read,
                name="sweep.read",
                clock=clock,
                shown=lambda entry: entry.task_id,
                asides=current.left_alone.unread,
                in_a_row=None,
                pool=pool,
                at_once=threads,
            ):
                if outcome.result is not None:
                    (held if outcome.result.is_held else waiting).append(outcome.result)
                elif not outcome.is_done:
                    if isinstance(outcome.error, MalformedRecord):
                        current.left_alone.add(outcome.item)
                    yield Swept(None, None, outcome.error, set_aside=not outcome.was_tried)
            yield from current.reconciled(pool, held, threads)
            if not fresh or len(entries) < wanted:
                break
        yield from current.reconciled(pool, waiting, threads)


@dataclass(frozen=True, slots=True)
class _Sweep:
    """What one sweep does with each due entry; nothing after its deadline."""

    tasks: TaskService
    task_types: Collection[str]
    deadline: datetime
    clock: Callable[[], datetime]
    left_alone: LeftAlone

    def is_late(self) -> bool:
        return self.clock() >= self.deadline

    def read(self, entry: DueEntry) -> Task | None:
        """Return the head of a task of this deployment, None if there is nothing to do."""
        if self.is_late() or entry in self.left_alone:
            return None
        head = self.tasks.reads.find(entry.task_id)
        if head is None or not runs(self.task_types, head):
            self.left_alone.add(entry)
            return None
        return head

    def reconciled(self, pool: ThreadPoolExecutor | None, heads: Collection[Task], threads: int) -> Iterator[Swept]:
        for outcome in each_item(
            heads,
            self._reconcile,
            name="sweep.reconcile",
            clock=self.clock,
            shown=lambda head: head.task_id,
            asides=self.left_alone.failed,
            in_a_row=None,
            pool=pool,
            at_once=threads,
        ):
            if outcome.result is not None:
                yield outcome.result
            elif not outcome.is_done:
                yield Swept(outcome.item, None, outcome.error, set_aside=not outcome.was_tried)

    def _reconcile(self, head: Task) -> Swept | None:
        if self.is_late():
            return None
        after = self.tasks.dispatching.reconcile(head.task_id)
        return Swept(head, after, unsettled=outcomes.is_lost(after, self.clock()))
