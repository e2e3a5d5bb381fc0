"""Executes a plan in phases, with checks between them, so that it can be resumed at any point.

    compare → DATA → compare → META (manifest lists last) → compare → mark "ROOT next" → ROOT → compare
A comparison loads the table again. Another uuid is refused. Newer metadata becomes a further segment of the plan, and
the phases start again with the unmarked chunks. A table that cannot be loaded means success, but only after the mark
"ROOT next". A call after a crash resumes: marked chunks are skipped, the others are repeated, and a missing object
counts as deleted. ROOT is the current metadata file. Before META and before the lists the head records what is deleted,
so that a plan that is lost later can be made again (`context.LostPlan`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any, Literal, NamedTuple

from delegation.errors import RunCancelled
from delegation.iceberg.metadata import ParsedMetadata, parse_metadata
from delegation.polaris.answers import NoSuchNamespace, NoSuchTable, TableMetadataMissing
from delegation.polaris.model import LoadedTable
from delegation.removal import path_guard
from delegation.removal.attempt import PlanSegment, receipt_key
from delegation.removal.chunks import DeleteStep, Phase
from delegation.removal.deletes import PlanEngine, Work, delete_in_this_process
from delegation.removal.errors import FilesNotDeletedYet, PlanLost
from delegation.removal.index import PlanIndex, merge_findings
from delegation.removal.marks import Deleted, Marks
from delegation.removal.purge import errors
from delegation.removal.purge.context import (
    LocationContents,
    LostPlan,
    PurgeContext,
    PurgeResult,
    check_not_replaced,
    check_plan,
    check_same_options,
    check_stated,
    check_table,
    count_stayed,
    metadata_files,
    own_of_receipt,
    steps_before,
)
from delegation.removal.purge.kept_files import check_not_foreign, check_still_not_shared, left_over, record_kept
from delegation.removal.purge.planning import InlineEngine, Survey, make_plan
from delegation.removal.run import ExecutedPlan, RemovalRun, Reported
from delegation.storage.locations import Root, canonical, parse

# What is deleted between two comparisons with the table.
_PHASES = ((DeleteStep.DATA,), (DeleteStep.META, DeleteStep.LISTS), (DeleteStep.ROOT,))
# The namespace may have been dropped with the table.
_DROPPED = (NoSuchTable, NoSuchNamespace)


class _State(Enum):
    """The table in the catalog, compared with the plan."""

    UNCHANGED = "unchanged"
    EXTENDED = "extended"
    UNLOADABLE = "unloadable"


class _Comparison(NamedTuple):
    state: _State
    table: LoadedTable | None = None
    left: Sequence[Work] = ()


class Execution(RemovalRun[PurgeContext, PlanIndex, PurgeResult]):
    """One attempt at a purge; used once."""

    def __init__(self, ctx: PurgeContext, engine: PlanEngine[PurgeContext, Survey]) -> None:
        super().__init__(ctx, ExecutedPlan(ctx, PlanIndex, ctx.check_plan))
        self._engine = engine
        self._planned_here = False
        self._planned_again = False
        self._extensions = 0
        self._location: Root | None = None

    def _before_deletes(self) -> PurgeResult | None:
        if not self._ctx.options.dry_run:
            return None
        result = self._result("PLANNED")
        return replace(result, forecast=self._store_forecast(result.findings, self._engine.name))

    def _ended_by(self, error: BaseException) -> None:
        if isinstance(error, RunCancelled) and (self._plan.left(*DeleteStep, done=True) or self._plan.began):
            self._end("INCOMPLETE")

    def _own_of_receipt(self, result: PurgeResult, indexes: Sequence[PlanIndex]) -> dict[str, Any]:
        return own_of_receipt(self._ctx, result, indexes, self._plan.segments)

    def _open(self, segments: Sequence[PlanSegment]) -> None:
        super()._open(segments)
        if not self._planned_here and not self._plan.left(*DeleteStep, done=True):
            for index in self._plan.indexes():
                check_plan(index, self._ctx.options)

    def _check_named(self, index: PlanIndex) -> None:
        super()._check_named(index)
        check_same_options(index, self._ctx.options)
        check_plan(index, self._ctx.options)

    def _make(self) -> None:
        table = self._ctx.loaded or self._ctx.tables.load()
        self._check_stated(table)
        self._publish(make_plan(self._ctx, table, (), self._engine), self._ctx.attempt.publish)

    def _publish(self, made: tuple[PlanIndex, PlanSegment], publish: Callable[..., tuple[PlanSegment, ...]]) -> None:
        index, segment = made
        published = publish(segment, files_planned=index.files_planned)
        self._planned_here = published == (segment,)
        self._use(published)

    def _open_again(self, lost: PlanLost) -> None:
        """Replace a plan with a missing part by one of the rest. Raises PlanTampered for an altered part. A plan named
        in the request is not replaced: another may delete files that nobody approved."""
        ctx = self._ctx
        segments = ctx.attempt.plan()
        if self._planned_again or ctx.options.execute_plan is not None or not segments:
            raise lost
        self._planned_again = True
        left = LostPlan.read(ctx.plans, segments, ctx.attempt.steps_done())
        if ctx.references is not None and not left.is_known:
            # Once for each loss: every attempt that waits for the pass comes here again.
            ctx.references.renew()
            ctx.attempt.record_steps(left.known())
        table = self._load_again(left)
        self._publish(make_plan(replace(ctx, lost_plan=left), table, (), self._engine), ctx.attempt.replace_plan)

    def _load_again(self, left: LostPlan) -> LoadedTable:
        try:
            return self._ctx.tables.load()
        except (*_DROPPED, TableMetadataMissing) as error:
            plan_id = left.segments[-1].id
            is_lost = isinstance(error, TableMetadataMissing)
            raise errors.files_left_unknown(
                plan_id,
                "the table's metadata file no longer exists" if is_lost else "the catalog no longer has the table",
                root=left.root,
                deleted=left.steps_known(root_is_next=Marks(self._ctx.plans, plan_id).root_is_next()),
                locations=tuple(dict.fromkeys(left.roots)),
            ) from error

    def _check_stated(self, table: LoadedTable) -> None:
        """Compare the table with the caller's state. If a plan exists the purge has started, and the plan decides."""
        metadata = self._metadata_of(table)
        check_table(metadata, self._ctx.options, table_uuid=self._ctx.table_uuid)
        check_stated(self._ctx.stated, metadata)

    def _metadata_of(self, table: LoadedTable) -> ParsedMetadata:
        experimental = self._ctx.options.experimental_format
        return parse_metadata(table.metadata_location, table.metadata, experimental=experimental)

    def _delete_all(self) -> str:
        try:
            self._delete_phases()
        except PlanLost as lost:
            self._open_again(lost)
            self._delete_phases()
        return "PURGED"

    def _delete_phases(self) -> None:
        while True:
            for phase in _PHASES:
                compared = self._compare()
                if compared.state is _State.UNLOADABLE:
                    return
                if compared.state is _State.EXTENDED:
                    break
                if compared.table and compared.left and not self._plan.began:
                    self._check_before_the_first_delete(compared.table, compared.left)
                    self._plan.begin()
                for step in phase:
                    self._record_before(step)
                    self._delete(step)
            else:
                state = self._compare().state
                if state is _State.EXTENDED or (state is _State.UNCHANGED and not self._root_is_deleted()):
                    continue
                return

    def _compare(self) -> _Comparison:
        """Load the table and compare it with the plan. Extends the plan if the table has newer commits."""
        ctx, last = self._ctx, self._plan.index
        ctx.attempt.checkpoint()
        try:
            table = ctx.tables.load()
        except (*_DROPPED, TableMetadataMissing) as error:
            if not self._marks(last).root_is_next():
                root = last.metadata_location
                lost = isinstance(error, TableMetadataMissing)
                raise (errors.root_lost(root, last.plan_id) if lost else errors.dropped(root)) from error
            if isinstance(error, TableMetadataMissing):
                self._mark_root()
            else:
                self._finish_dropped()
            return _Comparison(_State.UNLOADABLE)
        left = self._plan.left(*DeleteStep)
        if table.table_uuid != ctx.table_uuid.lower() and not left and self._marks(last).root_is_next():
            return _Comparison(_State.UNLOADABLE)  # all is deleted, and a new table has the name
        metadata = self._metadata_of(table)
        check_table(metadata, ctx.options, table_uuid=ctx.table_uuid)
        self._location = next(iter(path_guard.own_root(metadata, ctx.options).roots), None)
        if canonical(metadata.path) != canonical(last.metadata_location):
            check_not_replaced(ctx.plans, metadata, self._plan.indexes())
            self._extend(table)
            return _Comparison(_State.EXTENDED)
        return _Comparison(_State.UNCHANGED, table, left)

    def _check_before_the_first_delete(self, table: LoadedTable, left: Sequence[Work]) -> None:
        if not self._planned_here:
            check_not_foreign(self._ctx, left)
        if not self._planned_here or self._ctx.references is not None:
            own = path_guard.own_root(self._metadata_of(table), self._ctx.options)
            check_still_not_shared(self._ctx, self._plan.indexes(), own, None if self._planned_here else table)
        if self._ctx.options.probe:
            path_guard.check_can_delete(self._ctx.store, path_guard.covered_roots(table, self._ctx.options).uris)

    def _extend(self, table: LoadedTable) -> None:
        ctx = self._ctx
        if ctx.options.execute_plan is not None:
            raise errors.PlanOutdated(ctx.options.execute_plan)
        if self._extensions >= ctx.settings.most_extensions:
            raise errors.table_is_written_to(self._extensions)
        self._extensions += 1
        before = self._plan.indexes()
        index, segment = make_plan(ctx, table, before, self._engine)
        planned = sum(each.files_planned for each in (*before, index))
        self._use(ctx.attempt.publish(segment, files_planned=planned))

    def _record_before(self, step: DeleteStep) -> None:
        """Record what is deleted before a step, once for each state of the plan."""
        if step is DeleteStep.ROOT:
            record_kept(self._ctx.plans, self._plan.indexes(), self._plan.segments)
            self._marks(self._plan.index).mark_root_next()
        elif step is not DeleteStep.DATA and self._plan.left(step):
            done = steps_before(step, self._plan.indexes())
            if self._ctx.attempt.steps_done() != done:
                self._ctx.attempt.record_steps(done)

    def _deletes(self, left: Callable[[], Sequence[Work]], work: Sequence[Work]) -> Callable[[Reported], None]:  # noqa: ARG002
        # Every engine deletes the ROOT phase in this process.
        is_root = work[0].chunk.kind is Phase.ROOT
        return partial(delete_in_this_process if is_root else self._engine.delete, self._ctx, work)

    def _mark_root(self) -> None:
        """Mark the ROOT chunk, whose file was deleted before a crash: the catalog can no longer read it."""
        for work in self._plan.left(DeleteStep.ROOT):
            Marks(self._ctx.plans, work.index.plan_id, work.voided).mark_done(work.chunk)

    def _finish_dropped(self) -> None:
        """Delete the remaining ROOT chunk of a table that the catalog has dropped. The file may still exist, so the
        store must confirm the delete. Credentials come from loading the table, so only a process that already has some
        can delete it."""
        if not self._plan.left(DeleteStep.ROOT):
            return
        self._plan.begin()
        try:
            self._delete(DeleteStep.ROOT)
        except _DROPPED as error:
            raise errors.dropped(self._plan.index.metadata_location) from error

    def _root_is_deleted(self) -> bool:
        """Check the store for the metadata file, because the catalog may answer from a cache after its delete. If it
        exists, the store confirmed a delete that it did not make, and maybe others: no mark is valid. Marks of former
        attempts are replaced; after own deletes FilesNotDeletedYet is raised."""
        last = self._plan.index
        location = parse(last.metadata_location)
        planned = any(chunk.kind is Phase.ROOT for chunk in last.chunks)
        if not planned or not self._ctx.store.exists(location):
            return True
        for index in self._plan.indexes():
            self._marks(index).void()
        self._ctx.attempt.record_steps(steps_before(DeleteStep.DATA, self._plan.indexes()))
        self._reported = Deleted()
        if self._plan.began:
            raise FilesNotDeletedYet(1, [(location.uri, "StillThere")])
        return False

    def _marks(self, index: PlanIndex) -> Marks:
        return Marks(self._ctx.plans, index.plan_id)

    def _stayed(self) -> LocationContents | None:
        """Count what is at the table's location. An attempt that never loaded the table has no credentials for it."""
        return None if self._location is None else count_stayed(self._ctx.store, self._location)

    def _result(self, status: Literal["PURGED", "PLANNED", "INCOMPLETE"]) -> PurgeResult:
        ctx, indexes = self._ctx, self._plan.indexes()
        if status == "PURGED":
            self._reported = self._plan.deleted()
        findings = merge_findings(indexes)
        versioned = any(finding.code == path_guard.VERSIONED_BUCKET for finding in findings)
        root_kept = all(chunk.kind is not Phase.ROOT for chunk in indexes[-1].chunks)
        return PurgeResult(
            **self._figures(indexes, self._reported, is_versioned=versioned),
            status=status,
            engine=self._engine.name,
            metadata_location=indexes[-1].metadata_location,
            files_planned=sum(index.files_planned for index in indexes),
            bytes_planned=sum(index.bytes_planned for index in indexes),
            files_kept=sum(index.files_kept for index in indexes),
            findings=findings,
            receipt=None if status == "PLANNED" else receipt_key(indexes[-1].plan_id),
            left_over=left_over(ctx.plans, indexes),
            root_kept=root_kept,
            metadata_files=() if root_kept or status != "PURGED" else metadata_files(ctx.plans, indexes),
            stayed=self._stayed() if status == "PURGED" else None,
        )


def purge_table(ctx: PurgeContext) -> PurgeResult:
    """Purge a table in this process. A call after a failure resumes. Raises GuardRefused (before the first delete,
    except PlanOutdated), IcebergError, WorksetError, PurgeError, RunStopped, and the errors of the object store and of
    delegation.polaris."""
    return Execution(ctx, InlineEngine()).run()
