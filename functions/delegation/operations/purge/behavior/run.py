"""Purging as a task behavior: choose the engine, run an attempt, record its outcome."""

import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from delegation.attempts.task_attempt import TaskAttempt, TaskMoment
from delegation.errors import DelegationError, RunHandedOver
from delegation.identifiers import TableIdentifier
from delegation.keeping.catalog import Catalog, Neighbourhood, OneTable, Pace
from delegation.keeping.errors import NeighbourChanged, NeighbourUnreadable
from delegation.keeping.lost import Neighbours, WithLostRefs
from delegation.keeping.model import Neighbour, TableSource
from delegation.keeping.options import OverlapScan
from delegation.keeping.referencing import ReferencingTables
from delegation.operations.behaviors.outcome import TableEndings
from delegation.operations.behaviors.sources import published_segment
from delegation.operations.purge.behavior.indexed.holding import held_by as held_purge
from delegation.operations.purge.behavior.indexed.holding import release
from delegation.operations.purge.behavior.kinds import KINDS
from delegation.operations.purge.behavior.limits import Limits
from delegation.operations.purge.behavior.opened import LastOpened, OpenTable
from delegation.operations.purge.behavior.options import options_of
from delegation.operations.purge.behavior.outcome import success
from delegation.operations.purge.behavior.parameters import TablePurge
from delegation.operations.purge.behavior.references import ReferenceSettings
from delegation.operations.purge.choose import EngineEstimate, estimate
from delegation.operations.purge.context import PurgeContext, PurgeResult
from delegation.operations.purge.inline import purge_table
from delegation.operations.purge.options import PurgeOptions
from delegation.operations.purge.planning.succession import StatedTable
from delegation.operations.purge.settings import PurgeSettings
from delegation.polaris.model import LoadedTable
from delegation.references.errors import ReferencesNotKnown
from delegation.references.reading import read_references
from delegation.references.recurring import IndexedCatalog, IndexReport, ensure_submitted, reference_index
from delegation.references.refresh import Refresher
from delegation.references.store import ReferenceStore
from delegation.references.visiting.listing import GenericTables
from delegation.storage.base import PlanStore
from delegation.storage.locations import Roots
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError
from delegation.tasks.life.transitions import HANDED_OVER
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.work_errors import AttemptRunner

if TYPE_CHECKING:
    from delegation.storage.listing.model import ListableStore

PREPARE_FOR: Final = timedelta(seconds=30)
"""How long an attempt that no caller waits for makes a pass before it chooses the engine."""
_PAUSE: Final = timedelta(milliseconds=250)
_USED_OF_A_REQUEST: Final = 0.5
"""The part of a request's time that a purge in it is expected to take at most: stores and catalogs may be slow."""
_UNPLANNED_ATTEMPTS: Final = 2
"""Attempts that may be handed over without a plan, one of them within a request, before Spark makes it."""


PurgeFunction = Callable[[PurgeContext], PurgeResult]


@dataclass(frozen=True)
class PurgeBehavior:
    """TaskBehavior for TABLE_PURGE and TABLE_PURGE_PLAN.

    `store_of` opens a table's storage with vended credentials, `store_with` with those of a table just loaded; `plans`
    is the service's plan bucket. `open_table` opens the purged table's source and storage together, so that one load
    serves both; by default they are opened apart. Without `references` only tables found by a scan are checked. A pass
    over the index has up to `loads_at_once` loads under way, if `catalog` and `references` are safe for threads. `held`
    is called with each purge that waits for a neighbour, and why, `passed` with a catalog after a complete pass of the
    recurring task. `generic_tables` finds tables of other formats.
    """

    kinds: ClassVar[frozenset[str]] = KINDS

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
    _last: LastOpened = field(default_factory=LastOpened, init=False, repr=False, compare=False)

    def context(self, task: Task, *, hand_over_at: datetime | None = None) -> PurgeContext:
        """Return what an engine needs to purge for a leased task."""
        purge = TablePurge.of(task)
        table = self._last.take(task) or self._open(purge.identifier)
        options = options_of(purge.properties, self.limits, accepted=True)
        attempt = TaskAttempt(self.tasks, task, hand_over_at=hand_over_at, monotonic=self.monotonic)
        referencing = self._referencing(purge, options, attempt, task, waited_for=hand_over_at is not None)
        return PurgeContext(
            attempt=attempt,
            identifier=purge.identifier,
            table_uuid=purge.table.table_uuid,
            tables=table.source,
            store=table.store,
            plans=self.plans,
            options=options,
            settings=self.settings,
            neighbours=self._neighbours(purge, options, attempt, referencing),
            references=referencing,
            clock=self.tasks.clock,
            now=self.monotonic,
            sleep=self.sleep,
            find_plan=partial(published_segment, self.tasks.reads, None),
            request=json.loads(purge.to_payload()),
            asked_by=attempt.asked_by,
            loaded=table.loaded,
            stated=StatedTable(purge.table.metadata_location, purge.table.location, purge.table.format_version),
        )

    def _neighbours(
        self, purge: TablePurge, options: PurgeOptions, attempt: TaskAttempt, referencing: ReferencingTables | None
    ) -> Neighbours:
        if referencing is None or self.references is None:
            return self._neighbourhood(purge.identifier, options, attempt)
        return self._with_lost_refs(referencing, self.references, ends_table=True)

    def _with_lost_refs(
        self, found: ReferencingTables, index: ReferenceStore, *, ends_table: bool = False
    ) -> WithLostRefs:
        return WithLostRefs(
            found,
            index,
            self.plans,
            found.catalogs,
            found.identifier,
            found.table_uuid,
            self.store_of,
            self.tasks.clock,
            ends_table,
        )

    def _neighbourhood(self, identifier: TableIdentifier, options: PurgeOptions, attempt: TaskAttempt) -> Neighbourhood:
        scan: OverlapScan = "catalog" if options.references == "location" else options.overlap_scan
        return Neighbourhood(self.catalog, identifier, self.store_of, scan, attempt.checkpoint, self._pace())

    def search(
        self, identifier: TableIdentifier, table_uuid: str, attempt: TaskAttempt, task: Task
    ) -> tuple[Callable[[Roots | None], Iterable[Neighbour | NeighbourUnreadable]], ReferencingTables | None]:
        """Return how another operation of the service finds the live tables that may reference a table's files.

        By the operator's settings of purges, but never as of a pass before the attempt first asks: what
        `reference-max-age` relaxes is for drops. The second value is None without an index.
        """
        options = self.limits.base
        if self.references is None or options.references != "index":
            return self._neighbourhood(identifier, options, attempt), None
        owner = f"{attempt.task_id}/{attempt.attempt}"
        found = self._of_index(self.references, identifier, table_uuid, attempt, task, owner=owner)
        self._ensure_submitted(found.catalogs)
        return self._with_lost_refs(found, self.references), found

    def hold(self, task: Task, error: NeighbourUnreadable | NeighbourChanged) -> tuple[AttemptError, timedelta] | None:
        """Return how an attempt ends that waits for another table, and for how long; None if the task fails.

        What it waits for is recorded, so that it runs as soon as the index finds the table readable or gone. The next
        attempt has a new moment: other tables may have taken files while the purge was held.
        """
        found = held_purge(task, error, self.references)
        if found is not None:
            if isinstance(error, NeighbourUnreadable):
                with suppress(LeaseLost):  # then nothing else is recorded either
                    TaskMoment(self.tasks, task).forget()
            self.held(task, error)
        return found

    def _ensure_submitted(self, catalogs: Iterable[str]) -> None:
        indexes = self.reference_task()
        if indexes is not None:
            for catalog in catalogs:
                ensure_submitted(self.tasks, indexes, catalog)

    def _store_with(self, table: LoadedTable) -> "ListableStore":
        return self.store_of(table.identifier) if self.store_with is None else self.store_with(table)

    def _pace(self) -> Pace:
        return Pace(self.settings.neighbours_per_second, now=self.monotonic, sleep=self.sleep)

    def _referencing(
        self, purge: TablePurge, options: PurgeOptions, attempt: TaskAttempt, task: Task, *, waited_for: bool
    ) -> ReferencingTables | None:
        """Return the tables by the index; None where the operator chose another mode, or nothing stores an index.

        A caller that waits for the purge does not wait for others to share its pass.
        """
        if self.references is None or options.references != "index":
            return None
        owner = f"{attempt.task_id}/{attempt.attempt}"
        table_uuid = purge.table.table_uuid.lower()
        found = self._of_index(self.references, purge.identifier, table_uuid, attempt, task, owner=owner)
        eager = waited_for and task.synchronous
        return replace(found, refresher=replace(found.refresher, eager=eager), max_age=self.reference_settings.max_age)

    def _of_index(
        self,
        index: ReferenceStore,
        identifier: TableIdentifier,
        table_uuid: str,
        attempt: TaskAttempt,
        task: Task,
        *,
        owner: str,
    ) -> ReferencingTables:
        return ReferencingTables(
            index=index,
            refresher=self._refresher(index, owner, attempt.checkpoint),
            catalog=self.catalog,
            catalogs=self.reference_settings.of(identifier.catalog),
            identifier=identifier,
            table_uuid=table_uuid,
            store_of=self.store_of,
            checkpoint=attempt.checkpoint,
            moment=TaskMoment(self.tasks, task),
        )

    def reference_task(self) -> Behavior[IndexedCatalog, IndexReport] | None:
        """Return the behavior that refreshes the index with this behavior's access to tables; None without an index."""
        index = self.references
        if index is None:
            return None

        def refreshed(catalog: str) -> None:
            release(index, self.tasks.writes, [catalog], self.tasks.clock())
            self.passed(catalog)

        return reference_index(
            lambda run: replace(
                self._refresher(index, f"{run.task.task_id}/{run.task.attempt_count}", run.checkpoint),
                # A pass of many hand-overs must be seen to get ahead.
                report=lambda checked: run.report(done=checked, unit="tables"),
            ),
            every=self.reference_settings.refresh_interval,
            refreshed=refreshed,
        )

    def _refresher(self, index: ReferenceStore, owner: str, checkpoint: Callable[[], None]) -> Refresher:
        return Refresher(
            index,
            self.catalog,
            lambda table, known: read_references(table, self._store_with(table), known),
            owner=owner,
            clock=self.tasks.clock,
            pace=Pace(self.reference_settings.loads_per_second, now=self.monotonic, sleep=self.sleep).wait,
            checkpoint=checkpoint,
            at_once=self.loads_at_once,
            seconds=self.monotonic,
            generic=self.generic_tables,
        )

    def _open(self, identifier: TableIdentifier) -> OpenTable:
        if self.open_table is None:
            return OpenTable(OneTable(self.catalog, identifier), self.store_of(identifier))
        return OpenTable(*self.open_table(identifier))

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        """See TaskBehavior.prepare."""
        return self.runner.prepare(task, lambda: self.engine(task, hand_over_at))

    def engine(self, task: Task, hand_over_at: datetime | None) -> str:
        """Return the engine for an attempt, by the counts in manifest lists; no manifest is read.

        At `hand_over_at` no further list is read, and the attempt is handed over; so is at once a purge that would
        take longer. A plan that one process could not make in its time, twice, is made with Spark.
        """
        ctx = self.context(task, hand_over_at=hand_over_at)
        self._ensure_indexed(ctx, hand_over_at)
        found = self._estimate(ctx, task, hand_over_at)
        if found.engine == "inline":
            self._last.keep(task, OpenTable(ctx.tables, ctx.store, found.table))
        return found.engine

    def _estimate(self, ctx: PurgeContext, task: Task, hand_over_at: datetime | None) -> EngineEstimate:
        """Choose the engine; raise RunHandedOver if inline would take longer than half of the time until then."""
        if hand_over_at is None:
            found = estimate(ctx)
            again = task.error_code == HANDED_OVER and task.attempt_count > _UNPLANNED_ATTEMPTS
            return replace(found, engine=ctx.options.engine or "spark") if again and not found.planned else found
        within = (hand_over_at - self.tasks.clock()).total_seconds() * _USED_OF_A_REQUEST
        found = estimate(ctx, within=within)
        if found.engine == "inline" and found.seconds > within:
            raise RunHandedOver(
                task.task_id,
                f"{found.files} files or more take {found.seconds:.0f} s or more, and this request has {within:.0f} s "
                "for that; the purge continues in the background",
            )
        return found

    def _ensure_indexed(self, ctx: PurgeContext, hand_over_at: datetime | None) -> None:
        """Have the pass made that the purge needs, and the index refreshed from time to time; see Refresher.ensure.

        While a caller waits, so does this for another process's pass. Otherwise the attempt ends and leaves its place:
        also after PREPARE_FOR, because the function that prepares attempts has a minute. Raises RunHandedOver.
        """
        if not isinstance(ctx.references, ReferencingTables):
            return
        self._ensure_submitted(ctx.references.catalogs)
        index, catalogs = ctx.references.index, ctx.references.catalogs
        before = {catalog: index.pass_of(catalog).complete for catalog in catalogs}
        self._ensure_known(ctx, ctx.references, hand_over_at)
        passed = [catalog for catalog in catalogs if index.pass_of(catalog).complete != before[catalog]]
        release(index, self.tasks.writes, passed, self.tasks.clock())

    def _ensure_known(self, ctx: PurgeContext, references: ReferencingTables, hand_over_at: datetime | None) -> None:
        if hand_over_at is None:
            references.ensure_known(until=self.monotonic() + PREPARE_FOR.total_seconds())
            return
        while True:
            try:
                references.ensure_known()
            except ReferencesNotKnown:
                if self.tasks.clock() + _PAUSE >= hand_over_at:
                    raise
                self.sleep(_PAUSE.total_seconds())
                ctx.attempt.checkpoint()
            else:
                return

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """See TaskBehavior.run: the inline engine."""
        return self.runner.run(task, lambda: self.purged(purge_table, task, hand_over_at))

    def run_job(self, engine: PurgeFunction, task_id: str, attempt: int) -> Task:
        """Run an engine in a Spark job, whose lease another process renews while it makes progress.

        Raises LeaseLost if the attempt no longer holds the task. The job service reports the start.
        """
        task = self.runner.begin_job(task_id, attempt)
        return self.runner.run(task, lambda: self.purged(engine, task))

    def purged(self, engine: PurgeFunction, task: Task, hand_over_at: datetime | None = None) -> Task:
        """Run an engine for a leased task and record its success; raises what ends the attempt otherwise."""
        return self.runner.succeed(task, *success(engine(self.context(task, hand_over_at=hand_over_at))))

    @property
    def runner(self) -> AttemptRunner:
        """What runs its attempts, and records how they end."""
        return AttemptRunner(self.tasks, TableEndings(self.hold))
