"""Finds the live tables that may reference a table's files, and holds a purge while one cannot be read. A held purge is
RETRY_SCHEDULED, takes no place in admission, and its attempts do not count. It is retried every hour, and as soon as
the index finds that the table is readable or gone, or that an operator exempted it."""

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from delegation.identifiers import TableIdentifier
from delegation.items import each_item
from delegation.polaris.model import LoadedTable
from delegation.references.blocking import HeldPurge
from delegation.references.catalog_listing import GenericTables
from delegation.references.errors import ReferencesError
from delegation.references.reading import digest
from delegation.references.recurring import IndexReport, RecurringCatalog, ensure_each_submitted, reference_index
from delegation.references.refresh import Refresher
from delegation.references.store import ReferenceStore, freed
from delegation.references.visits import TableVisited
from delegation.removal.behaviors import FoundTables
from delegation.removal.errors import NeighbourChanged, NeighbourUnreadable
from delegation.removal.indexed_neighbours import IndexedNeighbours
from delegation.removal.lost_refs import WithLostRefs
from delegation.removal.neighbourhood import Catalog, Neighbourhood, OverlapScan, Pace, TableSource
from delegation.removal.purge.requests import Limits, PurgeOptions, PurgeSettings, ReferenceSettings, TablePurge
from delegation.removal.purge.task_type import PLAN_TASK_TYPE
from delegation.removal.task_attempt import TaskAttempt, TaskMoment
from delegation.storage.base import PlanStore
from delegation.tasks.errors import LeaseLost, TaskNotFound
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.writes import WriteLoop
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.storage.listing.model import ListableStore


logger = logging.getLogger(__name__)
HELD_FOR: Final = timedelta(hours=1)
CHANGED_WAIT: Final = timedelta(minutes=1)
"""The pause of a purge whose neighbour lost a manifest to an expiry while it was read."""


def may_be_held(task: Task) -> bool:
    """Return whether a purge waits for an unreadable table. A dry run returns its findings at once. A waiting caller
    gets 409, after which nothing is deleted."""
    answered = task.synchronous and task.effects_began_ts is None
    return task.task_type != PLAN_TASK_TYPE and not answered


def held_by(
    task: Task, error: NeighbourUnreadable | NeighbourChanged, index: ReferenceStore | None, now: datetime
) -> tuple[AttemptError, timedelta] | None:
    """Return the attempt's ending and the purge's pause, and record what it waits for; None if the purge fails."""
    if index is not None and (isinstance(error, NeighbourChanged) or error.is_found):
        with suppress(ReferencesError):  # otherwise the next attempt finds it
            _record_found(error, index, now)
    if isinstance(error, NeighbourChanged):
        return AttemptError(error.code, str(error), ErrorClass.HANDED_OVER), CHANGED_WAIT
    if not may_be_held(task):
        return None
    if index is not None and error.subject is not None:
        with suppress(ReferencesError):  # otherwise it runs within the hour
            index.put_held(HeldPurge(task.task_id, error.subject))
    fields = {"action": "hold", "task_id": task.task_id, "table": error.who, "error_code": error.why}
    logger.warning("a purge waits: a table that may use its files cannot be read", extra=fields)
    return AttemptError(error.code, str(error), ErrorClass.HANDED_OVER), HELD_FOR


def _record_found(error: NeighbourUnreadable | NeighbourChanged, index: ReferenceStore, now: datetime) -> None:
    """Record an unreadable file of a table, so that the next pass reads all files again. Until then it is unknown which
    others are unreadable, and the areas are those of the last read. If a manifest is missing, which an expiry may have
    removed, only that and unread files are read again."""
    subject = error.subject
    if subject is None or subject.name is None:
        return
    entry = index.get(TableIdentifier(subject.catalog, subject.namespace, subject.name))
    if entry is None or (entry.problem is not None and entry.unread is None):
        return
    seen = frozenset[bytes]()
    if isinstance(error, NeighbourChanged) and entry.problem is None:
        seen = entry.seen - {digest(error.what)}
    again = replace(entry, etag=None, seen=seen, unread=None)
    if entry.problem is None:
        again = replace(again, problem=error.problem, problem_since=now, problem_location=entry.metadata_location)
    index.put(again)


def release(index: ReferenceStore, writes: WriteLoop, catalogs: Iterable[str], now: datetime) -> int:
    """Release the purges held by something that no longer holds them; return how many."""

    def hastened(held: HeldPurge) -> bool:
        try:
            task = writes.hasten(held.task_id, NeighbourUnreadable.code)
        except TaskNotFound:
            task = None
        if task is not None and task.is_held:
            return False
        index.remove_held(held)
        return True

    purges = (held for catalog in catalogs for held in freed(index, catalog, now))
    # A purge whose release fails runs within the hour.
    return sum(
        release.result is True
        for release in each_item(
            purges, hastened, name="references.release", clock=lambda: now, shown=lambda held: held.task_id
        )
    )


Found = FoundTables[IndexedNeighbours]


@dataclass(frozen=True)
class PurgeAccess:
    """The access of a process to tables, with the operator's settings of purges. It finds other tables for attempts.

    `store_of` opens a table's storage with vended credentials, `store_with` with those of a loaded table; `plans` is
    the service's plan bucket. `open_table` opens the purged table's source and storage together, so that one load
    serves both; by default they are opened separately. Without `references` only tables found by a scan are checked. A
    pass over the index has up to `loads_at_once` loads in progress, if `catalog` and `references` are thread-safe.
    `held` is called with each purge that waits for a neighbour, and why; `passed` with a catalog after a complete pass
    of the recurring task. `visits` returns what that task calls with each changed table, such as what reads its health.
    `generic_tables` finds tables of other formats.
    """

    tasks: TaskService
    catalog: Catalog
    store_of: "Callable[[TableIdentifier], ListableStore]"
    plans: PlanStore
    settings: PurgeSettings = field(default_factory=PurgeSettings)
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    limits: Limits = field(default_factory=Limits)
    references: ReferenceStore | None = None
    reference_settings: ReferenceSettings = field(default_factory=ReferenceSettings)
    loads_at_once: int = 1
    store_with: "Callable[[LoadedTable], ListableStore] | None" = None
    open_table: "Callable[[TableIdentifier], tuple[TableSource, ListableStore]] | None" = None
    generic_tables: GenericTables | None = None
    held: Callable[[Task, DelegationError], object] = lambda _task, _error: None
    passed: Callable[[str], object] = lambda _catalog: None
    visits: Callable[[], TableVisited | None] = lambda: None

    def of_purge(
        self, purge: TablePurge, options: PurgeOptions, attempt: TaskAttempt, task: Task, *, waited_for: bool
    ) -> Found:
        """Return how a purge finds the live tables that may reference its table's files: by the index, unless the
        operator chose another mode or there is no index. A waiting caller's purge does not wait for others to share its
        pass."""
        index = self.references
        if index is None or options.references != "index":
            return self._neighbourhood(purge.identifier, options, attempt), None
        tables = self._of_index(index, purge.identifier, purge.table.table_uuid.lower(), attempt, task)
        refresher = replace(tables.refresher, eager=waited_for and task.synchronous)
        tables = replace(tables, refresher=refresher, max_age=self.reference_settings.max_age)
        return self._with_lost_refs(tables, index, ends_table=True), tables

    def search(self, identifier: TableIdentifier, table_uuid: str, attempt: TaskAttempt, task: Task) -> Found:
        """Return how another operation finds the live tables that may reference a table's files. The operator's
        settings of purges apply, but never a pass from before the attempt's first request: `reference-max-age` is only
        for drops."""
        index, options = self.references, self.limits.base
        if index is None or options.references != "index":
            return self._neighbourhood(identifier, options, attempt), None
        tables = self._of_index(index, identifier, table_uuid, attempt, task)
        self._ensure_submitted(tables.catalogs)
        return self._with_lost_refs(tables, index), tables

    def ensure_passed(self, tables: IndexedNeighbours, ensure: Callable[[], None]) -> None:
        """Make the pass that a purge needs by `ensure`, and refresh the index regularly."""
        self._ensure_submitted(tables.catalogs)
        before = {catalog: tables.index.pass_of(catalog).complete for catalog in tables.catalogs}
        ensure()
        passed = [catalog for catalog in tables.catalogs if tables.index.pass_of(catalog).complete != before[catalog]]
        release(tables.index, self.tasks.writes, passed, self.tasks.clock())

    def hold(self, task: Task, error: NeighbourUnreadable | NeighbourChanged) -> tuple[AttemptError, timedelta] | None:
        """Return the ending, and the pause, of an attempt that waits for another table; None if the task fails. The
        reason is recorded, so that the task runs as soon as the index finds the table readable or gone. The next
        attempt has a new moment, because other tables may have taken files while the purge was held."""
        purge = held_by(task, error, self.references, self.tasks.clock())
        if purge is not None:
            if isinstance(error, NeighbourUnreadable):
                with suppress(LeaseLost):  # then nothing else is recorded either
                    TaskMoment(self.tasks, task).forget()
            self.held(task, error)
        return purge

    def reference_task(self) -> Behavior[RecurringCatalog, IndexReport] | None:
        """Return the behavior that refreshes the index with this access to tables, None without an index."""
        index = self.references
        if index is None:
            return None

        def refreshed(catalog: str) -> None:
            release(index, self.tasks.writes, [catalog], self.tasks.clock())
            self.passed(catalog)

        return reference_index(
            lambda run: replace(
                self.refresher(index, f"{run.task.task_id}/{run.task.attempt_count}", run.checkpoint),
                visited=self.visits(),
                # A pass of many hand-overs must show progress.
                report=lambda checked: run.report(done=checked, unit="tables"),
            ),
            every=self.reference_settings.refresh_interval,
            refreshed=refreshed,
        )

    def _ensure_submitted(self, catalogs: Iterable[str]) -> None:
        indexes = self.reference_task()
        if indexes is not None:
            ensure_each_submitted(self.tasks, indexes, catalogs)

    def _neighbourhood(self, identifier: TableIdentifier, options: PurgeOptions, attempt: TaskAttempt) -> Neighbourhood:
        scan: OverlapScan = "catalog" if options.references == "location" else options.overlap_scan
        pace = self._pace(self.settings.neighbours_per_second)
        return Neighbourhood(self.catalog, identifier, self.store_of, scan, attempt.checkpoint, pace)

    def _with_lost_refs(
        self, tables: IndexedNeighbours, index: ReferenceStore, *, ends_table: bool = False
    ) -> WithLostRefs:
        return WithLostRefs(
            tables,
            index,
            self.plans,
            tables.catalogs,
            tables.identifier,
            tables.table_uuid,
            self.store_of,
            self.tasks.clock,
            ends_table,
        )

    def _of_index(
        self, index: ReferenceStore, identifier: TableIdentifier, table_uuid: str, attempt: TaskAttempt, task: Task
    ) -> IndexedNeighbours:
        return IndexedNeighbours(
            index=index,
            refresher=self.refresher(index, f"{attempt.task_id}/{attempt.attempt}", attempt.checkpoint),
            catalog=self.catalog,
            catalogs=self.reference_settings.of(identifier.catalog),
            identifier=identifier,
            table_uuid=table_uuid,
            store_of=self.store_of,
            checkpoint=attempt.checkpoint,
            moment=TaskMoment(self.tasks, task),
        )

    def refresher(self, index: ReferenceStore, owner: str, checkpoint: Callable[[], None]) -> Refresher:
        """Return a refresher that makes passes as `owner`, and calls `checkpoint` before each load."""
        return Refresher(
            index,
            self.catalog,
            self.store_with or (lambda table: self.store_of(table.identifier)),
            owner=owner,
            clock=self.tasks.clock,
            pace=self._pace(self.reference_settings.loads_per_second).wait,
            checkpoint=checkpoint,
            at_once=self.loads_at_once,
            seconds=self.monotonic,
            generic=self.generic_tables,
        )

    def _pace(self, per_second: float) -> Pace:
        return Pace(per_second, now=self.monotonic, sleep=self.sleep)
