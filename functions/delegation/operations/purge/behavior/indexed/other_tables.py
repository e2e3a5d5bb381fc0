"""Finding the live tables that may reference a table's files, and keeping the reference index of them up to date."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from delegation.attempts.task_attempt import TaskAttempt, TaskMoment
from delegation.identifiers import TableIdentifier
from delegation.keeping.catalog import Neighbourhood, Pace
from delegation.keeping.errors import NeighbourChanged, NeighbourUnreadable
from delegation.keeping.lost import WithLostRefs
from delegation.keeping.options import OverlapScan
from delegation.keeping.referencing import ReferencingTables
from delegation.operations.behaviors.sources import NeighboursOf
from delegation.operations.purge.behavior.access import PurgeAccess
from delegation.operations.purge.behavior.indexed.holding import held_by, release
from delegation.operations.purge.behavior.parameters import TablePurge
from delegation.operations.purge.options import PurgeOptions
from delegation.references.reading import read_references
from delegation.references.recurring import IndexReport, RecurringCatalog, ensure_each_submitted, reference_index
from delegation.references.refresh import Refresher
from delegation.references.store import ReferenceStore
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError
from delegation.tasks.work.behaviors import Behavior

Found = tuple[NeighboursOf, ReferencingTables | None]
"""What yields the tables, and the index that it uses; None without an index."""


@dataclass(frozen=True, slots=True)
class OtherTables:
    """Finds other tables for attempts at purges, and at upkeep, with the access of a process."""

    access: PurgeAccess

    def of_purge(
        self, purge: TablePurge, options: PurgeOptions, attempt: TaskAttempt, task: Task, *, waited_for: bool
    ) -> Found:
        """Return how a purge finds the live tables that may reference its table's files.

        By the index, unless the operator chose another mode or nothing stores one. A caller that waits for the purge
        does not wait for others to share its pass.
        """
        index = self.access.references
        if index is None or options.references != "index":
            return self._neighbourhood(purge.identifier, options, attempt), None
        found = self._of_index(index, purge.identifier, purge.table.table_uuid.lower(), attempt, task)
        refresher = replace(found.refresher, eager=waited_for and task.synchronous)
        found = replace(found, refresher=refresher, max_age=self.access.reference_settings.max_age)
        return self._with_lost_refs(found, index, ends_table=True), found

    def search(self, identifier: TableIdentifier, table_uuid: str, attempt: TaskAttempt, task: Task) -> Found:
        """Return how another operation of the service finds the live tables that may reference a table's files.

        By the operator's settings of purges, but never as of a pass before the attempt first asks: what
        `reference-max-age` relaxes is for drops.
        """
        index, options = self.access.references, self.access.limits.base
        if index is None or options.references != "index":
            return self._neighbourhood(identifier, options, attempt), None
        found = self._of_index(index, identifier, table_uuid, attempt, task)
        self._ensure_submitted(found.catalogs)
        return self._with_lost_refs(found, index), found

    def ensure_passed(self, found: ReferencingTables, ensure: Callable[[], None]) -> None:
        """Have `ensure` make the pass that a purge needs, and the index refreshed from time to time."""
        self._ensure_submitted(found.catalogs)
        before = {catalog: found.index.pass_of(catalog).complete for catalog in found.catalogs}
        ensure()
        passed = [catalog for catalog in found.catalogs if found.index.pass_of(catalog).complete != before[catalog]]
        release(found.index, self.access.tasks.writes, passed, self.access.tasks.clock())

    def hold(self, task: Task, error: NeighbourUnreadable | NeighbourChanged) -> tuple[AttemptError, timedelta] | None:
        """Return how an attempt ends that waits for another table, and for how long; None if the task fails.

        What it waits for is recorded, so that it runs as soon as the index finds the table readable or gone. The next
        attempt has a new moment: other tables may have taken files while the purge was held.
        """
        found = held_by(task, error, self.access.references, self.access.tasks.clock())
        if found is not None:
            if isinstance(error, NeighbourUnreadable):
                with suppress(LeaseLost):  # then nothing else is recorded either
                    TaskMoment(self.access.tasks, task).forget()
            self.access.held(task, error)
        return found

    def reference_task(self) -> Behavior[RecurringCatalog, IndexReport] | None:
        """Return the behavior that refreshes the index with this access to tables; None without an index."""
        index, access = self.access.references, self.access
        if index is None:
            return None

        def refreshed(catalog: str) -> None:
            release(index, access.tasks.writes, [catalog], access.tasks.clock())
            access.passed(catalog)

        return reference_index(
            lambda run: replace(
                self.refresher(index, f"{run.task.task_id}/{run.task.attempt_count}", run.checkpoint),
                # A pass of many hand-overs must be seen to get ahead.
                report=lambda checked: run.report(done=checked, unit="tables"),
            ),
            every=access.reference_settings.refresh_interval,
            refreshed=refreshed,
        )

    def _ensure_submitted(self, catalogs: Iterable[str]) -> None:
        indexes = self.reference_task()
        if indexes is not None:
            ensure_each_submitted(self.access.tasks, indexes, catalogs)

    def _neighbourhood(self, identifier: TableIdentifier, options: PurgeOptions, attempt: TaskAttempt) -> Neighbourhood:
        access = self.access
        scan: OverlapScan = "catalog" if options.references == "location" else options.overlap_scan
        pace = self._pace(access.settings.neighbours_per_second)
        return Neighbourhood(access.catalog, identifier, access.store_of, scan, attempt.checkpoint, pace)

    def _with_lost_refs(
        self, found: ReferencingTables, index: ReferenceStore, *, ends_table: bool = False
    ) -> WithLostRefs:
        return WithLostRefs(
            found,
            index,
            self.access.plans,
            found.catalogs,
            found.identifier,
            found.table_uuid,
            self.access.store_of,
            self.access.tasks.clock,
            ends_table,
        )

    def _of_index(
        self, index: ReferenceStore, identifier: TableIdentifier, table_uuid: str, attempt: TaskAttempt, task: Task
    ) -> ReferencingTables:
        return ReferencingTables(
            index=index,
            refresher=self.refresher(index, f"{attempt.task_id}/{attempt.attempt}", attempt.checkpoint),
            catalog=self.access.catalog,
            catalogs=self.access.reference_settings.of(identifier.catalog),
            identifier=identifier,
            table_uuid=table_uuid,
            store_of=self.access.store_of,
            checkpoint=attempt.checkpoint,
            moment=TaskMoment(self.access.tasks, task),
        )

    def refresher(self, index: ReferenceStore, owner: str, checkpoint: Callable[[], None]) -> Refresher:
        """Return what makes a pass as `owner`, which calls `checkpoint` before each load."""
        access = self.access
        store_with = access.store_with or (lambda table: access.store_of(table.identifier))
        return Refresher(
            index,
            access.catalog,
            lambda table, known: read_references(table, store_with(table), known),
            owner=owner,
            clock=access.tasks.clock,
            pace=self._pace(access.reference_settings.loads_per_second).wait,
            checkpoint=checkpoint,
            at_once=access.loads_at_once,
            seconds=access.monotonic,
            generic=access.generic_tables,
        )

    def _pace(self, per_second: float) -> Pace:
        return Pace(per_second, now=self.access.monotonic, sleep=self.access.sleep)
