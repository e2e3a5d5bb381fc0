"""Expiring snapshots in phases, so that it can be resumed at any point.

    decide → plan, publish → commit → compare again → wait for the references → subtract → DATA → META → LISTS → receipt
Nothing is deleted before a load shows that the snapshots are gone. Whatever is then needed, by the table as it is or by
another table, is taken out of the plan first (`reduction`), and so before each later step if the table has a newer
commit. A call after a crash resumes: what is published and what the table has state where. `committed.json` beside the
plan states that this expiry's commit was made, so that it makes no second one.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from delegation.errors import RunCancelled
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment, collected_seldom, receipt_key
from delegation.removal.choice import document, forecast
from delegation.removal.errors import FilesNotDeleted, PlanLost
from delegation.removal.expiry.commit import CommitStep, ExpiryPlan, TableLooks
from delegation.removal.expiry.context import ExpiryContext, ExpiryResult, ExpiryStatus, store_receipt
from delegation.removal.expiry.deletes import STEPS, DeleteSteps
from delegation.removal.expiry.errors import PLAN_LOST, RefLost, RefsUnknown, rest_of_plan_lost
from delegation.removal.expiry.index import ExpiryIndex, Notes, OwnCommit, Removal, SentCommits, load_plan
from delegation.removal.expiry.planning import decided
from delegation.removal.expiry.reduction import INLINE, ExpiryEngine
from delegation.removal.expiry.retention import POLICY_WITHDRAWN
from delegation.removal.index import Finding, merge_findings
from delegation.removal.marks import Marks, record_adopted_plan
from polaris_common.errors import DelegationError


class ExpiryRun:
    """One attempt at expiring snapshots of a table; used once."""

    def __init__(self, ctx: ExpiryContext, engine: ExpiryEngine = INLINE) -> None:
        self._ctx = ctx
        self._engine = engine
        self._started = ctx.now()
        self._looks = TableLooks(ctx)
        self._plan = ExpiryPlan(ctx, ExpiryIndex, ctx.check_plan)
        self._deletes = DeleteSteps(self._looks, self._plan, engine)
        self._own_findings: tuple[Finding, ...] = ()

    @collected_seldom()
    def run(self) -> ExpiryResult:
        """Make a plan if there is none, commit and delete; a call after an error resumes.

        If a part of the plan is missing, a new one is made of what is expired now.
        """
        try:
            return self._run(self._ctx.attempt.plan())
        except PlanLost as lost:
            if self._ctx.options.execute_plan is not None:
                raise self._approved_plan_lost(lost) from lost
            # If its snapshots are gone, nothing else states which files it would have deleted.
            self._own_findings = (Finding(code=PLAN_LOST, count=1, sample=(lost.name,)),)
        self._deletes.removed = Removal()
        return self._run(())

    def _approved_plan_lost(self, lost: PlanLost) -> DelegationError:
        """Return the error of an approved plan of which a part is lost: another plan may not take its place.

        Before a commit is sent nothing is changed, and a new dry run finds all of it again; after it nothing else names
        the files, so the receipt counts them as far as the plan's index is left.
        """
        notes = Notes(self._ctx.plans, self._ctx.options.execute_plan or "")
        is_made = self._deletes.removed != Removal() or notes.get(OwnCommit) is not None
        if not is_made and notes.get(SentCommits) is None:
            return lost
        error = rest_of_plan_lost(self._ctx.identifier, lost.name, is_made=is_made)
        if self._plan.is_read:
            with suppress(PlanLost):
                self._name_left(error)
        return error

    def _run(self, segments: Sequence[PlanSegment]) -> ExpiryResult:
        if self._open(segments) is None:
            return self._nothing()
        if self._ctx.options.dry_run:
            return self._forecast(self._result("PLANNED"))
        removed = CommitStep(self._looks, self._plan).commit()
        if removed is None:
            return self._result("NOTHING" if self._looks.withdrawn is None else "STOPPED")
        self._deletes.removed = removed
        try:
            self._deletes.delete_all()
        except FilesNotDeleted as error:
            self._store_receipt("INCOMPLETE", error)
            raise
        except RunCancelled:
            self._store_receipt("INCOMPLETE")
            raise
        except PlanLost:
            raise
        except DelegationError as error:
            if not error.retryable:
                self._name_left(error)
            raise
        return self._store_receipt("EXPIRED" if self._looks.withdrawn is None else "STOPPED")

    def _open(self, segments: Sequence[PlanSegment]) -> ExpiryIndex | None:
        """Return the published plan, or publish the named one or a new one; None if nothing is expired."""
        ctx = self._ctx
        if segments:
            return self._plan.use(segments)
        if ctx.options.execute_plan is not None:
            segment = ctx.named_plan(ctx.options.execute_plan)
            index = load_plan(ctx.plans, segment)
            ctx.check_plan(index)
            record_adopted_plan(ctx.plans, ctx.attempt.task_id, index.plan_id)
            return self._plan.use(ctx.attempt.publish(segment, files_planned=index.files_planned))
        if ctx.lost_refs is not None and not ctx.options.dry_run:
            ctx.lost_refs.check()
        made = self._looks.followed(self._looks.load(), self._planned)[1]
        if made is None:
            return None
        index, segment = made
        publish = ctx.attempt.replace_plan if self._own_findings else ctx.attempt.publish
        return self._plan.use(publish(segment, files_planned=index.files_planned))

    def _planned(self, table: LoadedTable) -> tuple[ExpiryIndex, PlanSegment] | None:
        if not self._looks.permit(table):
            return None
        gone = decided(self._looks.ctx, table)
        return self._engine.plan(self._looks.ctx, table, gone) if gone else None

    def _forecast(self, result: ExpiryResult) -> ExpiryResult:
        """Store beside the plan what deleting its files takes; return the result of a dry run with it."""
        indexes, settings = self._plan.indexes(), self._ctx.settings
        found = forecast(indexes, result.findings, settings, engine=result.deletes_with)
        self._ctx.plans.put(f"{indexes[-1].plan_id}/estimate.json", document(found))
        return replace(result, forecast=found)

    def _name_left(self, error: DelegationError) -> None:
        """Store a receipt with what an error leaves after the commit: nothing else may ever name these files."""
        left = sum(one.chunk.count for one in self._plan.left(*STEPS))
        sample = (error.metadata_file,) if isinstance(error, (RefLost, RefsUnknown)) else ()
        self._own_findings += (Finding(code=error.code, count=left, sample=sample),)
        self._store_receipt("INCOMPLETE")

    def _store_receipt(self, status: ExpiryStatus, failed: FilesNotDeleted | None = None) -> ExpiryResult:
        result = self._result(status)
        store_receipt(self._ctx, result, self._plan.indexes(), failed=failed)
        return result

    def _nothing(self) -> ExpiryResult:
        return ExpiryResult(
            status="NOTHING" if self._looks.withdrawn is None else "STOPPED",
            identifier=self._ctx.identifier,
            table_uuid=self._ctx.table_uuid.lower(),
            metadata_location="",
            findings=self._beside_plan(),
            withdrawn=self._looks.withdrawn,
            engine=self._engine.name,
        )

    def _beside_plan(self) -> tuple[Finding, ...]:
        """Return the findings that no plan has."""
        unlisted = self._deletes.unlisted
        found = (*self._own_findings, *(() if unlisted is None else unlisted.findings()))
        if self._looks.withdrawn is None:
            return found
        return (*found, Finding(code=POLICY_WITHDRAWN, count=1, sample=(self._looks.withdrawn,)))

    def _result(self, status: ExpiryStatus) -> ExpiryResult:
        ctx, indexes = self._ctx, self._plan.indexes()
        index = indexes[-1]
        by_marks = status in ("EXPIRED", "STOPPED")
        deleted = self._plan.deleted() if by_marks else self._deletes.reported
        versioned = any(Marks(ctx.plans, one.plan_id).versioned() for one in indexes)
        removed = index.removal if status == "PLANNED" else self._deletes.removed
        return ExpiryResult(
            status=status,
            identifier=ctx.identifier,
            table_uuid=index.table_uuid,
            metadata_location=index.metadata_location,
            plan_ids=tuple(one.plan_id for one in indexes),
            snapshot_ids=removed.snapshot_ids,
            refs=tuple(removed.refs),
            schema_ids=removed.schema_ids,
            spec_ids=removed.spec_ids,
            files_planned=indexes[0].files_planned,
            files_deleted=deleted.files,
            files_absent=deleted.absent,
            files_kept=sum(one.files_kept for one in indexes),
            bytes_planned=indexes[0].bytes_planned,
            bytes_deleted=deleted.bytes,
            bytes_freed=None if versioned else deleted.bytes,
            findings=(*merge_findings(indexes), *self._beside_plan()),
            receipt=receipt_key(index.plan_id) if status in ("EXPIRED", "INCOMPLETE") or removed != Removal() else None,
            seconds=ctx.now() - self._started,
            withdrawn=self._looks.withdrawn,
            engine=self._engine.name,
            deletes_with=ctx.settings.engine_for(indexes[0].files_planned, index.engine),
        )


def expire_snapshots(ctx: ExpiryContext) -> ExpiryResult:
    """Expire snapshots of a table in this process; a call after a failure resumes where it stopped.

    Raises GuardRefused, ExpiryError, IcebergError, WorksetError, RunStopped, ReferencesNotKnown, and the errors of
    the object store and of delegation.polaris.
    """
    return ExpiryRun(ctx).run()
