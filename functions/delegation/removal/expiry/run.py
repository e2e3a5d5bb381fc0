"""Expires snapshots in phases, so that it can be resumed at any point.

    decide → plan, publish → commit → compare again → wait for the references → subtract → DATA → META → LISTS → receipt
Nothing is deleted before a load shows that the snapshots are gone. First, everything that the current table or another
table needs is removed from the plan (`reduction`), again before each later step if the table has a newer commit. A call
after a crash resumes from the published plan and the table's state. `committed.json` beside the plan records that this
expiry has committed, so it does not commit again.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment, receipt_key
from delegation.removal.chunks import DeleteStep
from delegation.removal.deletes import MOST_SEEN, Work
from delegation.removal.errors import POLICY_WITHDRAWN, PlanLost
from delegation.removal.expiry.commit import CommitStep, ExpiryPlan, TableLoads, check_no_ref_lost, gone_of
from delegation.removal.expiry.context import (
    ComparedRefs,
    ExpiryContext,
    ExpiryIndex,
    ExpiryResult,
    ExpiryStatus,
    Notes,
    OwnCommit,
    Removal,
    SentCommits,
    own_of_receipt,
)
from delegation.removal.expiry.errors import PLAN_LOST, RefLost, RefsUnknown, rest_of_plan_lost
from delegation.removal.expiry.planning import decided, make_plan, metadata_of, versions_kept
from delegation.removal.expiry.reduction import INLINE, ExpiryEngine, NeededFiles, SortedRows
from delegation.removal.foreign.neighbours import ForeignNeighbours
from delegation.removal.index import Finding, merge_findings
from delegation.removal.neighbours import AskedReferences, PassRequest, look_at_neighbours
from delegation.removal.run import RemovalInLots, Reported
from delegation.removal.unread_neighbours import UnreadNeighbours
from delegation.storage.locations import Roots
from polaris_common.errors import DelegationError

STEPS: Final = (DeleteStep.DATA, DeleteStep.META, DeleteStep.LISTS)
"""The steps in which files are deleted, in order."""


class ExpiryRun(RemovalInLots[ExpiryContext, ExpiryIndex, ExpiryResult]):
    """One attempt at expiring snapshots of a table; used once. After the commit it removes from the plan everything
    that any later state of the table names, and deletes the rest."""

    replans_always = True

    def __init__(self, ctx: ExpiryContext, engine: ExpiryEngine = INLINE) -> None:
        self._plan: ExpiryPlan
        super().__init__(ctx, ExpiryPlan(ctx, ExpiryIndex, ctx.check_plan))
        self._engine = engine
        self._own_findings: tuple[Finding, ...] = ()
        self._unlisted: ForeignNeighbours | None = None
        self._begin_comparing()

    def _begin_comparing(self) -> None:
        """Forget the comparisons and the permission of a plan. Another plan may have what the table named then, and
        names again."""
        self._looks = TableLoads(self._ctx)
        # The part of the plan that the table no longer has.
        self.removed = Removal()
        # Files that are already subtracted or named by later commits.
        self._known: set[str] = set()
        self._seen = SortedRows(self._ctx)
        self._keeps_former = False
        self._is_permitted = False

    def _open_again(self, lost: PlanLost) -> None:
        """Make a plan of what is expired now, in place of one with a missing part."""
        if self._ctx.options.execute_plan is not None:
            raise self._approved_plan_lost(lost) from lost
        # If its snapshots are gone, nothing else states which files it would have deleted.
        self._own_findings = (Finding(code=PLAN_LOST, count=1, sample=(lost.name,)),)
        self._begin_comparing()
        self._plan.forget()
        self._make()

    def _approved_plan_lost(self, lost: PlanLost) -> DelegationError:
        """Return the error for an approved plan with a missing part, which no other plan may replace. Before a commit
        is sent nothing is changed, and a new dry run finds everything again. After it nothing else names the files, so
        the receipt counts them as far as the plan's index remains."""
        notes = Notes(self._ctx.plans, self._ctx.options.execute_plan or "")
        is_made = self.removed != Removal() or notes.get(OwnCommit) is not None
        if not is_made and notes.get(SentCommits) is None:
            return lost
        error = rest_of_plan_lost(self._ctx.identifier, lost.name, is_made=is_made)
        if self._plan.is_read:
            with suppress(PlanLost):
                self._name_left(error)
        return error

    def _make(self) -> None:
        """Publish a plan of what is expired, if anything is."""
        ctx = self._ctx
        if ctx.lost_refs is not None and not ctx.options.dry_run:
            ctx.lost_refs.check()
        made = self._looks.followed(self._looks.load(), self._planned)[1]
        if made is not None:
            index, segment = made
            publish = ctx.attempt.replace_plan if self._own_findings else ctx.attempt.publish
            self._use(publish(segment, files_planned=index.files_planned))

    def _planned(self, table: LoadedTable) -> tuple[ExpiryIndex, PlanSegment] | None:
        if not self._looks.permit(table):
            return None
        gone = decided(self._looks.ctx, table)
        return make_plan(self._looks.ctx, table, gone, self._engine) if gone else None

    def _before_deletes(self) -> ExpiryResult | None:
        """Commit. Returns the result of a dry run, or if nothing is expired."""
        if not self._plan.is_read:
            return self._nothing()
        if self._ctx.options.dry_run:
            result = self._result("PLANNED")
            return replace(result, forecast=self._store_forecast(result.findings, result.deletes_with))
        removed = CommitStep(self._looks, self._plan).commit()
        if removed is None:
            return self._result(self._unless_withdrawn("NOTHING"))
        self.removed = removed
        return None

    def _unless_withdrawn(self, status: ExpiryStatus) -> ExpiryStatus:
        return status if self._looks.withdrawn is None else "STOPPED"

    def _ended_by(self, error: BaseException) -> None:
        super()._ended_by(error)
        if isinstance(error, DelegationError) and not (error.retryable or isinstance(error, PlanLost)):
            self._name_left(error)

    def _name_left(self, error: DelegationError) -> None:
        """Store a receipt of what an error leaves after the commit: nothing else may ever name these files."""
        left = sum(work.chunk.count for work in self._plan.left(*STEPS))
        sample = (error.metadata_file,) if isinstance(error, (RefLost, RefsUnknown)) else ()
        self._own_findings += (Finding(code=error.code, count=left, sample=sample),)
        self._end("INCOMPLETE")

    def _own_of_receipt(self, result: ExpiryResult, indexes: Sequence[ExpiryIndex]) -> dict[str, Any]:
        return own_of_receipt(self._ctx, result, indexes)

    def _delete_all(self) -> ExpiryStatus:
        """Compare again, remove needed files from the plan, and delete the rest step by step. Raises RefLost,
        RefsUnknown, ExpiryError (TABLE_CHANGES_TOO_OFTEN), ComparisonTooOld, FilesNotDeleted and the errors of catalog,
        guards and stores."""
        looks, plan = self._looks, self._plan
        # Before any wait, because a later commit may delete the metadata file from before this one.
        self._compare_refs(table := looks.load())
        if plan.left(*STEPS):
            while not self._subtract_needed(table):
                # An earlier commit or another expiry has removed more of the planned snapshots meanwhile.
                self._compare_refs(table := looks.load())
            try:
                for step in STEPS:
                    self._delete(step)
            finally:
                self._seen.__exit__()
        return self._unless_withdrawn("EXPIRED")

    def _compare_refs(self, table: LoadedTable) -> None:
        """Raise RefLost and RefsUnknown. A check that finds nothing lost is recorded and not repeated."""
        notes, removal = self._plan.notes, self._plan.index.removal
        compared = notes.get(ComparedRefs)
        looked = frozenset(compared.snapshot_ids if compared else ())
        self.removed = removal.gone_from(table.metadata)
        gone = frozenset(self.removed.snapshot_ids)
        check_no_ref_lost(self._looks.ctx, table, removal, notes.get(OwnCommit), looked)
        if not gone <= looked:
            # Required after the snapshots are gone: a pass that started before is not enough.
            notes.put(PassRequest(asked=False))
            notes.put(ComparedRefs(snapshot_ids=tuple(sorted(gone | looked))))

    def _subtract_needed(self, table: LoadedTable) -> bool:
        """Remove from the plan what other tables and the table need. Other tables are compared as of a pass over the
        catalog that started after the commit, so no earlier reference is missed. Returns False if snapshots of the plan
        are gone whose refs are not compared yet: once their files may be deleted, a ref lost with them could not be
        restored."""
        ctx = self._looks.ctx
        with NeededFiles(ctx, self._engine.needed(ctx)) as needed:
            self._add_neighbours(needed, table)
            read = partial(self._subtract_if_compared, needed)
            return self._looks.followed(self._looks.load(), read)[1]

    def _add_neighbours(self, needed: NeededFiles, table: LoadedTable) -> None:
        """Add what other tables reference, as of a pass that starts after the commit."""
        index = self._plan.index
        notes = self._plan.notes
        ctx, roots = self._looks.ctx, Roots((*index.roots, *index.taken))
        look = partial(look_at_neighbours, ctx, roots, UnreadNeighbours(ctx).note)
        asked = AskedReferences(ctx, partial(notes.get, PassRequest), notes.put, look=look)
        # What a function could not plan it cannot compare again.
        is_large = index.engine == "spark"
        asked.ask(sum(work.chunk.count for work in self._plan.left(*STEPS)), is_large=is_large)
        self._unlisted = needed.add_neighbours(roots, table)
        asked.answered()

    def _subtract_if_compared(self, needed: NeededFiles, table: LoadedTable) -> bool:
        if not gone_of(self._plan.index.removal, table) <= {*self.removed.snapshot_ids}:
            return False
        self._add_table(needed, table)
        self._subtract(needed)
        # Executors read during the subtraction, so the contents of a missing manifest are not known yet.
        self._note_known(needed, table)
        return True

    def _add_table(self, needed: NeededFiles, table: LoadedTable) -> None:
        """Add what the table names and no known state did. Raises ManifestMissing if the table changed."""
        needed.add_table(table, self._known)
        if versions_kept(metadata_of(table)) is None and not self._keeps_former:
            needed.add_former_metadata(self._plan.index)

    def _note_known(self, needed: NeededFiles, table: LoadedTable) -> None:
        self._known |= needed.named
        self._keeps_former |= versions_kept(metadata_of(table)) is None

    def _subtract(self, needed: NeededFiles) -> None:
        reduced = needed.reduced(self._plan.index, self._plan.segment)
        if reduced is not None:
            fresh, own = reduced
            self._use(self._ctx.attempt.replace_plan(own, files_planned=fresh.files_planned))

    def _may_delete(self, lot: Sequence[Work]) -> bool:
        looks = self._looks
        needed = NeededFiles(looks.ctx, self._seen)
        table, _ = looks.followed(looks.load(), partial(self._add_table, needed))
        self._note_known(needed, table)
        if self._seen.added > MOST_SEEN or self._seen.need_any(lot):
            self._subtract(needed)
            self._seen.__exit__()
            self._seen = SortedRows(looks.ctx)
            return False
        if not self._is_permitted and not looks.permit_deleting(table, self._plan.notes.get(OwnCommit)):
            return False
        self._is_permitted = True
        self._plan.begin()
        return True

    def _delete_lot(self, work: Sequence[Work], add: Reported) -> None:
        self._engine.delete(replace(self._looks.ctx, rate=self._rate), work, add)

    def _left(self, *steps: DeleteStep) -> Sequence[Work]:
        return self._plan.left(*steps) if self._looks.withdrawn is None else ()

    def _nothing(self) -> ExpiryResult:
        return ExpiryResult(
            status=self._unless_withdrawn("NOTHING"),
            identifier=self._ctx.identifier,
            table_uuid=self._ctx.table_uuid.lower(),
            metadata_location="",
            findings=self._beside_plan(),
            withdrawn=self._looks.withdrawn,
            engine=self._engine.name,
        )

    def _beside_plan(self) -> tuple[Finding, ...]:
        """Return the findings that are in no plan."""
        unlisted = self._unlisted
        findings = (*self._own_findings, *(() if unlisted is None else unlisted.findings()))
        if self._looks.withdrawn is None:
            return findings
        return (*findings, Finding(code=POLICY_WITHDRAWN, count=1, sample=(self._looks.withdrawn,)))

    def _result(self, status: ExpiryStatus) -> ExpiryResult:
        ctx, indexes = self._ctx, self._plan.indexes()
        index = indexes[-1]
        by_marks = status in ("EXPIRED", "STOPPED")
        deleted = self._plan.deleted() if by_marks else self._reported
        removed = index.removal if status == "PLANNED" else self.removed
        return ExpiryResult(
            **self._figures(indexes, deleted),
            status=status,
            metadata_location=index.metadata_location,
            snapshot_ids=removed.snapshot_ids,
            refs=tuple(removed.refs),
            schema_ids=removed.schema_ids,
            spec_ids=removed.spec_ids,
            files_planned=indexes[0].files_planned,
            files_kept=sum(index.files_kept for index in indexes),
            bytes_planned=indexes[0].bytes_planned,
            findings=(*merge_findings(indexes), *self._beside_plan()),
            receipt=receipt_key(index.plan_id) if status in ("EXPIRED", "INCOMPLETE") or removed != Removal() else None,
            withdrawn=self._looks.withdrawn,
            engine=self._engine.name,
            deletes_with=ctx.settings.engine_for(indexes[0].files_planned, needs_spark=index.engine == "spark"),
        )


def expire_snapshots(ctx: ExpiryContext) -> ExpiryResult:
    """Expire snapshots of a table in this process. A call after a failure resumes. Raises GuardRefused, ExpiryError,
    IcebergError, WorksetError, RunStopped, ReferencesNotKnown, and the errors of the object store and of
    delegation.polaris."""
    return ExpiryRun(ctx).run()
