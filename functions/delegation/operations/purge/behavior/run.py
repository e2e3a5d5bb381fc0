"""Purging as a task behavior: what an attempt needs, its engine, in this process or in a Spark job."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import ClassVar

from delegation.attempts.task_attempt import TaskAttempt
from delegation.identifiers import TableIdentifier
from delegation.keeping.asking import await_references
from delegation.keeping.catalog import OneTable
from delegation.keeping.referencing import ReferencingTables
from delegation.operations.behaviors.outcome import KILLED_TWICE, TableEndings, check_killed, too_large
from delegation.operations.behaviors.sources import Hold, ReferenceSearch, published_segment
from delegation.operations.purge import errors
from delegation.operations.purge.behavior.access import PurgeAccess
from delegation.operations.purge.behavior.indexed.other_tables import OtherTables
from delegation.operations.purge.behavior.names import TASK_TYPES
from delegation.operations.purge.behavior.opened import LastOpened, OpenTable
from delegation.operations.purge.behavior.options import options_of
from delegation.operations.purge.behavior.outcome import success
from delegation.operations.purge.behavior.parameters import TablePurge
from delegation.operations.purge.behavior.preparing import chosen, ensure_known
from delegation.operations.purge.context import PurgeContext, PurgeResult
from delegation.operations.purge.inline import purge_table
from delegation.operations.purge.planning.succession import StatedTable
from delegation.references.recurring import IndexReport, RecurringCatalog
from delegation.tasks.life.model import Task
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.parts.hooks import INLINE, SPARK
from delegation.tasks.work.work_errors import AttemptRunner

PurgeFunction = Callable[[PurgeContext], PurgeResult]


@dataclass(frozen=True)
class PurgeBehavior(PurgeAccess):
    """TaskBehavior for TABLE_PURGE and TABLE_PURGE_PLAN, with the access of a process."""

    task_types: ClassVar[frozenset[str]] = TASK_TYPES

    _last: LastOpened = field(default_factory=LastOpened, init=False, repr=False, compare=False)

    def context(self, task: Task, *, hand_over_at: datetime | None = None) -> PurgeContext:
        """Return what an engine needs to purge for a leased task."""
        purge = TablePurge.of(task)
        table = self._last.take(task) or self._open(purge.identifier)
        options = options_of(purge.properties, self.limits, accepted=True)
        attempt = TaskAttempt(self.tasks, task, hand_over_at=hand_over_at, monotonic=self.monotonic)
        waited_for = hand_over_at is not None
        neighbours, references = OtherTables(self).of_purge(purge, options, attempt, task, waited_for=waited_for)
        return PurgeContext(
            attempt=attempt,
            identifier=purge.identifier,
            table_uuid=purge.table.table_uuid,
            tables=table.source,
            store=table.store,
            plans=self.plans,
            options=options,
            settings=self.settings,
            neighbours=neighbours,
            references=references,
            clock=self.tasks.clock,
            now=self.monotonic,
            sleep=self.sleep,
            find_plan=partial(published_segment, self.tasks.reads, None),
            request=json.loads(purge.to_payload()),
            asked_by=attempt.asked_by,
            measured=attempt.measured,
            loaded=table.loaded,
            stated=StatedTable(purge.table.metadata_location, purge.table.location, purge.table.format_version),
        )

    def _open(self, identifier: TableIdentifier) -> OpenTable:
        if self.open_table is None:
            return OpenTable(OneTable(self.catalog, identifier), self.store_of(identifier))
        return OpenTable(*self.open_table(identifier))

    @property
    def search(self) -> ReferenceSearch[ReferencingTables]:
        """How another operation of the service finds other tables; see OtherTables.search."""
        return OtherTables(self).search

    @property
    def hold(self) -> Hold:
        """How an attempt ends that waits for another table; see OtherTables.hold."""
        return OtherTables(self).hold

    def reference_task(self) -> Behavior[RecurringCatalog, IndexReport] | None:
        """See OtherTables.reference_task."""
        return OtherTables(self).reference_task()

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        """See TaskBehavior.prepare."""
        return self.runner.prepare(task, lambda: self.engine(task, hand_over_at))

    def engine(self, task: Task, hand_over_at: datetime | None) -> str:
        """Return the engine for an attempt, once other tables' references are known; raise what ends the attempt."""
        if task.killed.count >= KILLED_TWICE:
            return self._after_kills(task)
        ctx = self.context(task, hand_over_at=hand_over_at)
        if isinstance(ctx.references, ReferencingTables):
            OtherTables(self).ensure_passed(ctx.references, partial(ensure_known, ctx, ctx.references, hand_over_at))
        found = chosen(ctx, task, hand_over_at)
        if found.engine == "inline":
            self._last.keep(task, OpenTable(ctx.tables, ctx.store, found.table))
        return found.engine

    def _after_kills(self, task: Task) -> str:
        """Return SPARK, without counting what attempts were killed at; raise GuardRefused (TOO_LARGE_FOR_FUNCTION)."""
        check_killed(task, has_spark=self.settings.has_spark)
        if options_of(TablePurge.of(task).properties, self.limits, accepted=True).engine == INLINE:
            raise too_large(task, "leave `engine` out, so that Spark runs it")
        return SPARK

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """See TaskBehavior.run: the inline engine."""
        return self.runner.run(task, lambda: self.purged(purge_table, task, hand_over_at))

    def run_job(self, engine: PurgeFunction, task_id: str, attempt: int) -> Task:
        """Run an engine in a Spark job, whose lease another process renews while it makes progress.

        It waits for a pass over the references that begins after it did, before it plans or deletes anything.
        Raises LeaseLost if the attempt no longer holds the task. The job service reports the start.
        """
        task = self.runner.begin_job(task_id, attempt)

        def purged_by_a_later_pass(ctx: PurgeContext) -> PurgeResult:
            # The job may have been queued for long since the pass that chose it.
            if ctx.references is not None and not ctx.options.dry_run:
                ctx.references.renew()
                await_references(ctx.references, ctx.attempt, ctx.sleep)
            return engine(ctx)

        return self.runner.run(task, lambda: self.purged(purged_by_a_later_pass, task))

    def purged(self, engine: PurgeFunction, task: Task, hand_over_at: datetime | None = None) -> Task:
        """Run an engine for a leased task and record its success; raises what ends the attempt otherwise."""
        return self.runner.succeed(task, *success(engine(self.context(task, hand_over_at=hand_over_at))))

    @property
    def runner(self) -> AttemptRunner:
        """What runs its attempts, and records how they end."""
        return AttemptRunner(self.tasks, TableEndings(self.hold, advice=errors.ADVICE))
