"""Purging as a task behavior: what an attempt needs, its engine, in this process or in a Spark job."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.removal.behaviors import (
    KILLED_TWICE,
    TableEndings,
    check_killed,
    is_lost_often,
    published_segment,
    too_large,
)
from delegation.removal.details import changed, counts_of
from delegation.removal.model import OneTable, TableSource
from delegation.removal.neighbours import await_references
from delegation.removal.purge import errors
from delegation.removal.purge.choose import chosen, ensure_known
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.guards import StatedTable
from delegation.removal.purge.indexed import PurgeAccess
from delegation.removal.purge.requests import TablePurge, identifier_text, options_of
from delegation.removal.purge.run import purge_table
from delegation.removal.purge.task_type import TASK_TYPES, PurgeDetails, states_of
from delegation.removal.referencing import ReferencingTables
from delegation.removal.task_attempt import TaskAttempt
from delegation.tasks.life.model import Task
from delegation.tasks.work.parts.hooks import INLINE, SPARK
from delegation.tasks.work.work_errors import AttemptRunner

if TYPE_CHECKING:
    from delegation.storage.listing.model import ListableStore


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table's source and files, and what the source loaded last."""

    source: TableSource = field(repr=False)
    store: "ListableStore" = field(repr=False)
    loaded: LoadedTable | None = None


class LastOpened:
    """Keeps the table of one attempt; another attempt, or the same one a second time, opens its table itself."""

    def __init__(self) -> None:
        self._kept: tuple[str, int, OpenTable] | None = None

    def keep(self, task: Task, table: OpenTable) -> None:
        self._kept = (task.task_id, task.attempt_count, table)

    def take(self, task: Task) -> OpenTable | None:
        """Return and forget the attempt's table; None if it is not the one that was kept."""
        kept, self._kept = self._kept, None
        if kept is None or kept[:2] != (task.task_id, task.attempt_count):
            return None
        return kept[2]


def success(result: PurgeResult) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the summary, the details and the other fields of a task that ends with SUCCESS."""
    if result.status == "PLANNED":
        summary = f"planned {result.files_planned} files, {result.bytes_planned} bytes; nothing was deleted"
        fields: dict[str, Any] = {"engine": result.engine}
        if result.forecast is not None:
            summary += f"; executing the plan takes {result.forecast.text()}"
            fields["result_extended"] = result.forecast.without_samples()
        return summary, changed(PurgeDetails, files_planned=result.files_planned, **_kept(result)), fields
    kept = f", kept {result.files_kept}" if result.files_kept else ""
    absent = f" ({result.files_absent} of them were absent already)" if result.files_absent else ""
    freed = "; nothing was freed, because the bucket is versioned" if result.bytes_freed is None else ""
    deleted = f"deleted {result.files_deleted} files{absent}, {result.bytes_deleted} bytes"
    left = f"; files stay that the credentials do not cover: {result.left_over}" if result.left_over else ""
    summary = f"{deleted}{kept} in {result.seconds:.1f} s{freed}{left}"
    details = changed(
        PurgeDetails,
        files_planned=result.files_planned,
        files_deleted=result.files_deleted,
        files_absent=result.files_absent,
        files_failed=0,
        bytes_deleted=result.bytes_deleted,
        **_kept(result),
        purged_identifier=identifier_text(result.identifier),
        # Another purge of a table that kept its metadata file may find more to delete, so it is no replay.
        purged_metadata_location=None if result.root_kept else result.metadata_location,
        purged_states=states_of(result.metadata_files),
    )
    return summary, details, {"engine": result.engine}


def _kept(result: PurgeResult) -> dict[str, Any]:
    """Return the details of what was kept; samples are in the plan, to bound a task's record."""
    return {"files_kept": result.files_kept, "findings": counts_of(result.findings)}


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
        neighbours, references = self.of_purge(purge, options, attempt, task, waited_for=waited_for)
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

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        return self.runner.prepare(task, lambda: self.engine(task, hand_over_at))

    def engine(self, task: Task, hand_over_at: datetime | None) -> str:
        """Return the engine for an attempt, once other tables' references are known; raise what ends the attempt."""
        if task.killed.count >= KILLED_TWICE:
            return self._after_kills(task)
        if self.settings.has_spark and is_lost_often(task) and not self._is_for_inline(task):
            return SPARK
        ctx = self.context(task, hand_over_at=hand_over_at)
        if isinstance(ctx.references, ReferencingTables):
            self.ensure_passed(ctx.references, partial(ensure_known, ctx, ctx.references, hand_over_at))
        found = chosen(ctx, task, hand_over_at)
        if found.engine == "inline":
            self._last.keep(task, OpenTable(ctx.tables, ctx.store, found.table))
        return found.engine

    def _after_kills(self, task: Task) -> str:
        """Return SPARK, without counting what attempts were killed at; raise GuardRefused (TOO_LARGE_FOR_FUNCTION)."""
        check_killed(task, has_spark=self.settings.has_spark)
        if self._is_for_inline(task):
            raise too_large(task, "leave `engine` out, so that Spark runs it")
        return SPARK

    def _is_for_inline(self, task: Task) -> bool:
        return options_of(TablePurge.of(task).properties, self.limits, accepted=True).engine == INLINE

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
