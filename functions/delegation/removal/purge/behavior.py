"""Purging as a task behavior: what an attempt needs, its engine, in this process or in a Spark job."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from delegation.errors import GuardRefused, RunHandedOver
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.history import History, read_history
from delegation.iceberg.metadata import ParsedMetadata, parse_metadata
from delegation.iceberg.paths import Spelling
from delegation.iceberg.reach import Fetcher, Manifests, Tolerance, read_manifest_lists
from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.references.errors import ReferencesNotKnown
from delegation.removal.attempt import PlanSegment
from delegation.removal.behaviors import (
    KILLED_TWICE,
    Outcome,
    TableBehavior,
    check_killed,
    is_lost_often,
    published_segment,
    too_large,
)
from delegation.removal.choice import EngineChoice, Size
from delegation.removal.chunks import Phase
from delegation.removal.details import changed, counts_of
from delegation.removal.errors import PlanLost
from delegation.removal.index import PlanIndex, load_index
from delegation.removal.indexed_neighbours import IndexedNeighbours
from delegation.removal.marks import Marks
from delegation.removal.neighbourhood import OneTable, TableSource
from delegation.removal.neighbours import await_references
from delegation.removal.path_guard import covered_roots, kept_spellings, reads
from delegation.removal.purge import errors
from delegation.removal.purge.context import PurgeContext, PurgeResult, StatedTable, check_stated, check_table, kept_for
from delegation.removal.purge.errors import PlanOutdated, spark_not_available
from delegation.removal.purge.indexed import PurgeAccess
from delegation.removal.purge.requests import TablePurge, identifier_text, options_of
from delegation.removal.purge.run import purge_table
from delegation.removal.purge.task_type import TASK_TYPES, PurgeDetails, states_of
from delegation.removal.task_attempt import TaskAttempt
from delegation.storage.locations import canonical
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import HANDED_OVER
from delegation.tasks.work.hooks import INLINE, SPARK
from polaris_common.errors import DelegationError, counted

if TYPE_CHECKING:
    from delegation.storage.listing.model import ListableStore


@dataclass(frozen=True, slots=True)
class EngineEstimate:
    """The number of files to delete and of distinct manifests, the engine, and the seconds that inline would take.
    Numbers are lower bounds, because counting stops once the engine is known. With `planned` they are the exact rest of
    the plan. Without it `table` is the table that was loaded to count them."""

    files: int
    manifests: int
    engine: EngineChoice
    planned: bool
    table: LoadedTable | None = None
    seconds: float = 0.0


def estimate(ctx: PurgeContext, *, within: float | None = None) -> EngineEstimate:
    """Choose the engine: the requested one, else inline for what a Lambda function can purge, else Spark.

    With a published plan its remaining files are counted, without a load of the table; otherwise the manifests' entries
    (added + existing + deleted). `within` is this process's time in seconds if it is less than a function's: counting
    stops once the purge takes longer. Raises GuardRefused (TOO_LARGE_FOR_INLINE, SPARK_NOT_AVAILABLE), PlanOutdated and
    the errors of guards and of corrupt metadata, so that no job starts for a table that must not be purged.
    """
    indexes = _indexes(ctx)
    if indexes:
        left = 0
        manifests = 0
        for index in indexes:
            done = Marks(ctx.plans, index.plan_id).done()
            left += sum(
                chunk.count for chunk in index.chunks if chunk.kind is not Phase.KEPT and chunk.name not in done
            )
            manifests += index.counts["manifest"].files if "manifest" in index.counts else 0
        deleting = left / ctx.settings.store_keys_per_second
        small = left <= ctx.settings.inline_max_files
        return EngineEstimate(left, manifests, _engine(ctx, left, small=small), planned=True, seconds=deleting)
    table = ctx.tables.load()
    snapshots = counted(len(table.metadata.get("snapshots") or ()), "snapshot")
    ctx.note_size(snapshots)
    count = _Count(ctx, within)
    found = _manifests(ctx, table, count)
    size = count.size(found)
    fits = size.fits_a_function(ctx.settings)
    ctx.note_size(
        f"{counted(size.files, 'file')} or more, {counted(len(found.manifests), 'manifest')}, {snapshots}", fits
    )
    engine = _engine(ctx, size.files, small=fits and not count.ran_out)
    return EngineEstimate(
        size.files, len(found.manifests), engine, planned=False, table=table, seconds=size.seconds(ctx.settings)
    )


class _Count:
    """Decides after each manifest list whether enough is known. `ran_out` is true once counting itself took too long.
    Everything is counted again when there are a tenth more manifests, so many lists do not take quadratic time."""

    def __init__(self, ctx: PurgeContext, within: float | None) -> None:
        self._settings = ctx.settings
        self._within = within
        self._now = ctx.now
        counting = ctx.settings.counting_seconds
        self._until = ctx.now() + (counting if within is None else min(counting, within / 2))
        self._again_at = 0.0
        self.former = History()
        self.ran_out = False

    def is_enough(self, manifests: Manifests) -> bool:
        if len(manifests.manifests) >= self._again_at:
            self._again_at = len(manifests.manifests) * 1.1
            size = self.size(manifests)
            late = self._within is not None and size.seconds(self._settings) > self._within
            if late or not size.fits_a_function(self._settings):
                return True
        return self.is_late()

    def is_late(self) -> bool:
        self.ran_out = self._now() > self._until
        return self.ran_out

    def size(self, manifests: Manifests) -> Size:
        size = Size.of(manifests.manifests.values(), len(manifests.lists), threads=self._settings.read_threads)
        return replace(size, files=size.files + len(self.former.files), objects=size.objects + self.former.reads)


def _indexes(ctx: PurgeContext) -> list[PlanIndex]:
    """Return the published plan or the one named in the options, empty for a lost plan that is made again."""
    segments = ctx.attempt.plan()
    try:
        return [load_index(ctx.plans, segment) for segment in segments or _requested_plan(ctx)]
    except PlanLost:
        if not segments or ctx.options.execute_plan is not None:
            raise
        return []


def _requested_plan(ctx: PurgeContext) -> tuple[PlanSegment, ...]:
    """Return the plan named in the options, if any. Raises PlanOutdated unless the table still has its metadata."""
    if ctx.options.execute_plan is None:
        return ()
    segment = ctx.named_plan(ctx.options.execute_plan)
    index = load_index(ctx.plans, segment)
    table = ctx.tables.load()
    if canonical(table.metadata_location) != canonical(index.metadata_location):
        raise PlanOutdated(index.plan_id)
    check_stated(ctx.stated, _metadata_of(ctx, table))
    return (segment,)


def _metadata_of(ctx: PurgeContext, table: LoadedTable) -> ParsedMetadata:
    return parse_metadata(table.metadata_location, table.metadata, experimental=ctx.options.experimental_format)


def _engine(ctx: PurgeContext, files: int, *, small: bool) -> EngineChoice:
    if ctx.options.engine == "inline" and files > ctx.settings.inline_max_files:
        raise GuardRefused(
            f"the table has {counted(files, 'file')} or more, but the inline engine purges at most "
            f"{ctx.settings.inline_max_files}. Leave out `engine`, so that Spark purges the table",
            code="TOO_LARGE_FOR_INLINE",
        )
    engine = ctx.options.engine or ("inline" if small else "spark")
    if engine == "spark" and not ctx.settings.has_spark:
        raise spark_not_available(files, requested=ctx.options.engine == "spark")
    return engine


def _manifests(ctx: PurgeContext, table: LoadedTable, count: _Count) -> Manifests:
    """Return the table's distinct manifests, or enough of them to count, after its former metadata files."""
    metadata = _metadata_of(ctx, table)
    check_table(metadata, ctx.options, table_uuid=ctx.table_uuid)
    check_stated(ctx.stated, metadata)
    covered = covered_roots(table, ctx.options) if ctx.settings.vended else None

    def unreadable(_path: str, error: DelegationError) -> None:
        # Planning decides whether a missing list is an error.
        if not isinstance(error, ManifestMissing):
            kept_for(error, ctx.options)

    fetcher = Fetcher(ctx.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    readable = reads(metadata, covered)
    spelling = Spelling(kept_spellings(ctx.options))
    # Unreadable ones are a finding of the plan.
    tolerance = Tolerance(lambda _path, _error: None, spelling)
    count.former = read_history(metadata, fetcher, readable, tolerance, enough=count.is_late)
    return read_manifest_lists(
        metadata,
        fetcher,
        limit=ctx.settings.max_file_bytes,
        readable=readable,
        tolerance=Tolerance(unreadable, spelling),
        enough=count.is_enough,
    )


PREPARE_FOR: Final = timedelta(seconds=30)
"""How long an attempt without a waiting caller makes a pass before it chooses the engine."""
_PAUSE: Final = timedelta(milliseconds=250)
_USED_OF_A_REQUEST: Final = 0.5
"""The part of a request's time in which a purge must be expected to end: stores and catalogs may be slow."""
_UNPLANNED_ATTEMPTS: Final = 2
"""Attempts that may be handed over without a plan, one of them within a request, before Spark makes the plan."""


def ensure_known(ctx: PurgeContext, references: IndexedNeighbours, hand_over_at: datetime | None) -> None:
    """Make the pass that a purge needs; see Refresher.ensure. If a caller waits, another process's pass is awaited too.
    Otherwise the attempt ends and leaves its place, also after PREPARE_FOR, because the function that prepares attempts
    has a minute. Raises RunHandedOver."""
    if hand_over_at is None:
        references.ensure_known(until=ctx.now() + PREPARE_FOR.total_seconds())
        return
    while True:
        try:
            references.ensure_known()
        except ReferencesNotKnown:
            if ctx.clock() + _PAUSE >= hand_over_at:
                raise
            ctx.sleep(_PAUSE.total_seconds())
            ctx.attempt.checkpoint()
        else:
            return


def chosen(ctx: PurgeContext, task: Task, hand_over_at: datetime | None) -> EngineEstimate:
    """Choose the engine by the counts in manifest lists, without reading a manifest. At `hand_over_at` no further list
    is read. A plan that one process failed twice to make in its time is made with Spark. Raises RunHandedOver if inline
    would take more than half of the time until then."""
    if hand_over_at is None:
        estimated = estimate(ctx)
        again = task.error_code == HANDED_OVER and task.attempt_count > _UNPLANNED_ATTEMPTS
        return (
            replace(estimated, engine=ctx.options.engine or "spark") if again and not estimated.planned else estimated
        )
    within = (hand_over_at - ctx.clock()).total_seconds() * _USED_OF_A_REQUEST
    estimated = estimate(ctx, within=within)
    if estimated.engine == "inline" and estimated.seconds > within:
        raise RunHandedOver(
            task.task_id,
            f"purging {counted(estimated.files, 'file')} or more takes {estimated.seconds:.0f} s or more, but the "
            f"request has only {within:.0f} s left. The purge continues in the background",
        )
    return estimated


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table's source and files, and the table last loaded from the source."""

    source: TableSource = field(repr=False)
    store: "ListableStore" = field(repr=False)
    loaded: LoadedTable | None = None


class LastOpened:
    """Keeps one attempt's table. Other attempts, and later uses by the same one, open the table themselves."""

    def __init__(self) -> None:
        self._kept: tuple[str, int, OpenTable] | None = None

    def keep(self, task: Task, table: OpenTable) -> None:
        self._kept = (task.task_id, task.attempt_count, table)

    def take(self, task: Task) -> OpenTable | None:
        """Return and forget the attempt's table, None if another attempt's is kept."""
        kept, self._kept = self._kept, None
        if kept is None or kept[:2] != (task.task_id, task.attempt_count):
            return None
        return kept[2]


def success(result: PurgeResult) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the summary, the details and the other fields of a successful task."""
    if result.status == "PLANNED":
        summary = f"planned {counted(result.files_planned, 'file')}, {result.bytes_planned} bytes; nothing was deleted"
        fields: dict[str, Any] = {"engine": result.engine}
        if result.forecast is not None:
            summary += f"; executing the plan takes {result.forecast.text()}"
            fields["result_extended"] = result.forecast.without_samples()
        return summary, changed(PurgeDetails, files_planned=result.files_planned, **_kept(result)), fields
    kept = f"; kept {counted(result.files_kept, 'file')}" if result.files_kept else ""
    rest = result.left_over
    left = "" if rest is None else f"; to delete the files that the credentials do not cover, run {rest}"
    summary = f"{result.deleted_text(counted(result.files_deleted, 'file'))}{kept}{result.freed_text()}{left}"
    details = changed(
        PurgeDetails,
        **result.deleted_details(),
        **_kept(result),
        purged_identifier=identifier_text(result.identifier),
        # Another purge of a table that kept its metadata file may find more to delete, so it is not a replay.
        purged_metadata_location=None if result.root_kept else result.metadata_location,
        purged_states=states_of(result.metadata_files),
    )
    return summary, details, {"engine": result.engine}


def _kept(result: PurgeResult) -> dict[str, Any]:
    """Return the details of what was kept. Samples are in the plan, to limit the size of a task's record."""
    return {"files_kept": result.files_kept, "findings": counts_of(result.findings)}


PurgeFunction = Callable[[PurgeContext], PurgeResult]


@dataclass(frozen=True)
class PurgeBehavior(PurgeAccess, TableBehavior[PurgeContext, PurgeResult]):
    """TaskBehavior for TABLE_PURGE and TABLE_PURGE_PLAN, with the process's access."""

    task_types: ClassVar[frozenset[str]] = TASK_TYPES
    advice = errors.ADVICE

    _last: LastOpened = field(default_factory=LastOpened, init=False, repr=False, compare=False)

    def context(self, task: Task, *, hand_over_at: datetime | None = None) -> PurgeContext:
        """Return what an engine needs to purge for a leased task."""
        purge = TablePurge.of(task)
        table = self._last.take(task) or self._open(purge.identifier)
        options = options_of(purge.properties, self.limits, accepted=True)
        attempt = TaskAttempt(self.tasks, task, hand_over_at=hand_over_at, monotonic=self.monotonic)
        waited_for = hand_over_at is not None
        tables = self.of_purge(purge, options, attempt, task, waited_for=waited_for)
        return PurgeContext(
            **self.fields(purge, attempt, (table.source, table.store), tables),
            options=options,
            find_plan=partial(published_segment, self.tasks.reads, None),
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
        """Return the engine for an attempt, once other tables' references are known. Raises what ends the attempt."""
        if task.killed.count >= KILLED_TWICE:
            return self._after_kills(task)
        if self.settings.has_spark and is_lost_often(task) and not self._is_for_inline(task):
            return SPARK
        ctx = self.context(task, hand_over_at=hand_over_at)
        if isinstance(ctx.references, IndexedNeighbours):
            self.ensure_passed(ctx.references, partial(ensure_known, ctx, ctx.references, hand_over_at))
        estimated = chosen(ctx, task, hand_over_at)
        if estimated.engine == "inline":
            self._last.keep(task, OpenTable(ctx.tables, ctx.store, estimated.table))
        return estimated.engine

    def _after_kills(self, task: Task) -> str:
        """Return SPARK without counting, after killed attempts. Raises GuardRefused (TOO_LARGE_FOR_FUNCTION)."""
        check_killed(task, has_spark=self.settings.has_spark)
        if self._is_for_inline(task):
            raise too_large(task, "Leave out `engine`, so that Spark runs the task")
        return SPARK

    def _is_for_inline(self, task: Task) -> bool:
        return options_of(TablePurge.of(task).properties, self.limits, accepted=True).engine == INLINE

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """See TaskBehavior.run. Uses the inline engine."""
        return self.runner.run(task, lambda: self.purged(purge_table, task, hand_over_at))

    def done_in_job(self, task: Task, work: PurgeFunction) -> Task:
        return self.purged(work, task, in_job=True)

    def purged(
        self, engine: PurgeFunction, task: Task, hand_over_at: datetime | None = None, *, in_job: bool = False
    ) -> Task:
        """Run an engine for a leased task and record its success. Otherwise raises what ends the attempt. A job waits
        for a pass over the references that starts after it, because it may have been queued for long."""
        ctx = self.context(task, hand_over_at=hand_over_at)
        if in_job and ctx.references is not None and not ctx.options.dry_run:
            ctx.references.renew()
            await_references(ctx.references, ctx.attempt, ctx.sleep)
        return self.runner.succeed(task, *self.outcome(task, ctx, engine))

    def outcome(self, _task: Task, ctx: PurgeContext, work: PurgeFunction | None = None) -> Outcome:
        return success((work or purge_table)(ctx))
