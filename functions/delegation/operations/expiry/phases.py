"""Expiring snapshots in phases, so that it can be resumed at any point.

    decide → plan, publish → commit → compare again → wait for the references → subtract → DATA → META → LISTS → receipt
Nothing is deleted before a load shows that the snapshots are gone. Whatever is then needed, by the table as it is or by
another table, is taken out of the plan first (`reduction`), and so before each later step if the table has a newer
commit. A call after a crash resumes: what is published and what the table has say where. `committed.json` beside the
plan says that this expiry's commit was made, so that it makes no second one.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Final, TypeVar

from delegation.errors import RunCancelled
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.reach import ListsRead
from delegation.keeping.asking import AskedAnew, AskedReferences
from delegation.keeping.errors import PlanOfAnotherTable, TableUuidMismatch
from delegation.keeping.paths import check_can_delete
from delegation.operations.expiry.commits import removal
from delegation.operations.expiry.committing import Unanswered, lacks_any, still_expired
from delegation.operations.expiry.context import ExpiryContext, ExpiryResult, ExpiryStatus
from delegation.operations.expiry.errors import (
    CommitRefused,
    CommitsForestalled,
    RefLost,
    RefsUnknown,
    TableChangesTooOften,
)
from delegation.operations.expiry.index import ExpiryIndex, load_plan
from delegation.operations.expiry.lost_refs import check_no_ref_lost, gone_of
from delegation.operations.expiry.notes import ComparedRefs, Notes, OwnCommit
from delegation.operations.expiry.permission import POLICY_WITHDRAWN, Withdrawn, keeps_more
from delegation.operations.expiry.planning.plan import covered_of, decided, make_plan
from delegation.operations.expiry.planning.reach import metadata_of, versions_kept
from delegation.operations.expiry.receipt import receipt_key, store_receipt
from delegation.operations.expiry.reduction import NeededFiles, reduced
from delegation.operations.expiry.retention import Expired
from delegation.polaris.errors import (
    CommitConflict,
    PolarisError,
    PolarisOutcomeUnknown,
    PolarisUnavailable,
    PolarisUnexpectedAnswer,
)
from delegation.polaris.model import LoadedTable
from delegation.storage.locations import Roots, canonical
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.chunks import DeleteStep
from delegation.worksets.collection import collected_seldom
from delegation.worksets.engines.deleting import INLINE_DELETES, DeleteEngine
from delegation.worksets.engines.inline import Tally, Work, delete_or_raise
from delegation.worksets.errors import EngineFailed, FilesNotDeleted, PlanLost
from delegation.worksets.index import Finding, merge_findings
from delegation.worksets.marks import Deleted, Marks, deleted_by_marks, record_adopted_plan

T = TypeVar("T")
_STEPS = (DeleteStep.DATA, DeleteStep.META, DeleteStep.LISTS)
PLAN_LOST: Final = "EARLIER_PLAN_LOST"
"""The code of a finding: a plan was lost, so files of snapshots that it removed may stay until orphans are removed."""


class ExpiryRun:
    """One attempt at expiring snapshots of a table; used once."""

    def __init__(self, ctx: ExpiryContext, engine: DeleteEngine = INLINE_DELETES) -> None:
        self._ctx = ctx
        self._engine = engine
        self._started = ctx.now()
        self._index: ExpiryIndex | None = None
        self._segment: PlanSegment | None = None
        self._gone: frozenset[int] = frozenset()
        self._began = False
        self._lists = ListsRead()
        self._withdrawn: str | None = None
        self._own_findings: tuple[Finding, ...] = ()
        self._reported = Deleted()

    @collected_seldom()
    def run(self) -> ExpiryResult:
        """Make a plan if there is none, commit and delete; a call after an error resumes."""
        index = self._open()
        if index is None:
            return self._nothing()
        if self._ctx.options.dry_run:
            return self._result("PLANNED")
        if not self._commit(index):
            return self._result("NOTHING" if self._withdrawn is None else "STOPPED")
        try:
            self._delete_all()
        except FilesNotDeleted as error:
            store_receipt(self._ctx, self._result("INCOMPLETE"), self._indexes(), failed=error)
            raise
        except RunCancelled:
            store_receipt(self._ctx, self._result("INCOMPLETE"), self._indexes())
            raise
        result = self._result("EXPIRED" if self._withdrawn is None else "STOPPED")
        store_receipt(self._ctx, result, self._indexes())
        return result

    def _open(self) -> ExpiryIndex | None:
        """Return the published plan, or publish the named one or a new one; None if nothing is expired."""
        ctx = self._ctx
        segments = ctx.attempt.plan()
        try:
            if segments:
                return self._use(segments)
        except PlanLost as lost:
            if ctx.options.execute_plan is not None:
                raise
            # If its snapshots are gone, nothing else says which files it would have deleted.
            self._own_findings = (Finding(code=PLAN_LOST, count=1, sample=(lost.name,)),)
        if ctx.options.execute_plan is not None:
            segment = ctx.named_plan(ctx.options.execute_plan)
            index = load_plan(ctx.plans, segment)
            self._check_plan(index)
            record_adopted_plan(ctx.plans, ctx.attempt.task_id, index.plan_id)
            return self._use(ctx.attempt.publish(segment, files_planned=index.files_planned))
        if ctx.lost_refs is not None and not ctx.options.dry_run:
            ctx.lost_refs.check()
        made = self._followed(self._load(), self._planned)[1]
        if made is None:
            return None
        index, segment = made
        publish = ctx.attempt.replace_plan if segments else ctx.attempt.publish
        return self._use(publish(segment, files_planned=index.files_planned))

    def _planned(self, table: LoadedTable) -> tuple[ExpiryIndex, PlanSegment] | None:
        if not self._permit(table):
            return None
        gone = decided(self._ctx, table)
        return make_plan(self._ctx, table, gone) if gone else None

    def _use(self, segments: Sequence[PlanSegment]) -> ExpiryIndex:
        """Read the published plan, which another attempt may have written."""
        index = load_plan(self._ctx.plans, segments[-1])
        self._check_plan(index)
        self._index, self._segment = index, segments[-1]
        return index

    def _check_plan(self, index: ExpiryIndex) -> None:
        if index.table_uuid != self._ctx.table_uuid.lower():
            raise PlanOfAnotherTable(
                f"plan {index.plan_id} is for table {index.table_uuid}, not {self._ctx.table_uuid}"
            )
        if index.identifier != str(self._ctx.identifier):
            raise PlanOfAnotherTable(f"plan {index.plan_id} is for {index.identifier}, not {self._ctx.identifier}")

    def _load(self) -> LoadedTable:
        """Load the table as it is now; raise the errors of the catalog, TableUuidMismatch and those of guards."""
        self._ctx.attempt.checkpoint()
        table = self._ctx.tables.load()
        if table.table_uuid != self._ctx.table_uuid.lower():
            raise TableUuidMismatch(self._ctx.table_uuid.lower(), table.table_uuid, work="expiry")
        self._ctx.check(table)
        return table

    def _followed(self, table: LoadedTable, read: Callable[[LoadedTable], T]) -> tuple[LoadedTable, T]:
        """Return a table that could be read, with what `read` returns; raise TableChangesTooOften, ManifestMissing.

        Another expiry may delete manifests while they are read: then the table is loaded again.
        """
        for _ in range(self._ctx.settings.most_looks):
            try:
                return table, read(table)
            except ManifestMissing:
                now = self._load()
                if canonical(now.metadata_location) == canonical(table.metadata_location):
                    raise
                table = now
        raise TableChangesTooOften(self._ctx.identifier, self._ctx.settings.most_looks)

    def _permit(self, table: LoadedTable) -> bool:
        """Decide from here on by what may be expired now; return whether anything may."""
        if self._ctx.permitted is None:
            return True
        found = self._ctx.permitted(table)
        if isinstance(found, Withdrawn):
            self._withdrawn = found.reason
            return False
        self._ctx = replace(self._ctx, retention=found)
        return True

    def _permit_deleting(self, table: LoadedTable) -> bool:
        """Return whether the files of what was removed may be deleted: not if less of it might be removed now."""
        # After a commit whose answer is not known, what this attempt found permitted before.
        noted = self._notes().get(OwnCommit)
        used = (noted and noted.retention) or asdict(self._ctx.retention)
        if not self._permit(table):
            return False
        if self._ctx.permitted is not None and keeps_more(asdict(self._ctx.retention), used):
            self._withdrawn = "more of the table is to be kept now than when its snapshots were removed"
        return self._withdrawn is None

    def _commit(self, index: ExpiryIndex) -> bool:
        """Remove from the table what is still expired of the plan; return whether any snapshot or ref of it is gone.

        A commit of another is followed by a new decision: of the plan, only what is still expired goes. An answer that
        says nothing is followed by a load. Raises CommitRefused, CommitsForestalled and the errors of the catalog.
        """
        ctx = self._ctx
        if self._notes().get(OwnCommit) is not None:
            return True
        unanswered = Unanswered(ctx, self._notes())
        for _ in range(ctx.settings.most_commits):
            table = self._load()
            if not self._permit(table):
                return self._ended_without(index, table, unanswered)
            gone = still_expired(self._ctx, index, table)
            if not gone:
                return self._ended_without(index, table, unanswered)
            covered = covered_of(ctx, table)
            if ctx.settings.probe and covered is not None:
                check_can_delete(ctx.store, covered.uris)
            ctx.attempt.checkpoint()
            self._begin()
            ended = self._sent(index, table, gone, unanswered)
            if ended is not None:
                return ended
        if unanswered.may_be_applied(table):
            raise unanswered.error()
        raise CommitsForestalled(ctx.identifier, ctx.settings.most_commits)

    def _sent(self, index: ExpiryIndex, table: LoadedTable, gone: Expired, unanswered: Unanswered) -> bool | None:
        """Send one commit; return what `_commit` returns, None if another commit was first."""
        ctx, commit = self._ctx, removal(table.metadata, gone)
        unanswered.sending(table)
        try:
            after = ctx.commits.commit_table(ctx.identifier, commit.requirements, commit.updates)
        except CommitConflict:
            unanswered.refused()
            return None
        except PolarisUnavailable as error:
            if not isinstance(error, PolarisOutcomeUnknown):
                unanswered.refused()
            now = self._load()
            if still_expired(ctx, index, now):
                raise
            return self._ended_without(index, now, unanswered)
        except PolarisError as error:
            unanswered.refused()
            if isinstance(error, PolarisUnexpectedAnswer):
                # Iceberg refuses to remove more snapshots than there are: another expiry may have been first.
                table = self._load()
                if still_expired(ctx, index, table) != gone:
                    return None
            if unanswered.may_be_applied(table):
                raise
            raise CommitRefused(ctx.identifier, error) from error
        self._record_commit(gone, table, after)
        return True

    def _ended_without(self, index: ExpiryIndex, table: LoadedTable, unanswered: Unanswered) -> bool:
        """Return whether an earlier commit removed any of the plan; raise PolarisOutcomeUnknown if one still may."""
        if lacks_any(index, table):
            return True
        if unanswered.may_be_applied(table):
            raise unanswered.error()
        return False

    def _record_commit(self, gone: Expired, before: LoadedTable, after: LoadedTable) -> None:
        """Note that the commit was made, and which metadata file is from before it: the last one in its log."""
        log = after.metadata.get("metadata-log") or ()
        previous = str(log[-1]["metadata-file"]) if log else before.metadata_location
        ids = tuple(sorted(gone.snapshot_ids))
        note = OwnCommit(
            metadata_location=after.metadata_location,
            before=previous,
            snapshot_ids=ids,
            retention=asdict(self._ctx.retention),
        )
        self._notes().put(note)

    def _compare_refs(self, table: LoadedTable) -> None:
        """Raise RefLost and RefsUnknown; a look that found nothing lost is noted and not made again."""
        notes, removal = self._notes(), self._plan().removal
        compared = notes.get(ComparedRefs)
        looked = frozenset(compared.snapshot_ids if compared else ())
        self._gone = gone_of(removal, table)
        try:
            check_no_ref_lost(self._ctx, table, removal, notes.get(OwnCommit), looked)
        except (RefLost, RefsUnknown) as error:
            # The next expiry makes a plan of its own: nothing else would name the files that this one leaves.
            left = sum(one.chunk.count for one in self._left(*_STEPS))
            self._own_findings += (Finding(code=error.code, count=left, sample=(error.metadata_file,)),)
            store_receipt(self._ctx, self._result("INCOMPLETE"), self._indexes())
            raise
        if not self._gone <= looked:
            # Now that the snapshots are gone: a pass that began before it saw is not enough.
            notes.put(AskedAnew(asked=False))
            notes.put(ComparedRefs(snapshot_ids=tuple(sorted(self._gone | looked))))

    def _add_others(self, needed: NeededFiles, index: ExpiryIndex) -> None:
        """Add what other tables reference, as of a pass that begins after the commit."""
        notes = self._notes()
        asked = AskedReferences(self._ctx, partial(notes.get, AskedAnew), notes.put)
        asked.ask(sum(one.chunk.count for one in self._left(*_STEPS)))
        needed.add_others(Roots((*index.roots, *index.taken)))
        asked.answered()

    def _notes(self) -> Notes:
        return Notes(self._ctx.plans, self._plan().origin)

    def _delete_all(self) -> None:
        """Compare again, take out of the plan what is needed, and delete the rest step by step."""
        ctx = self._ctx
        # Before any wait: the metadata file from before the commit may be deleted by a later one.
        self._compare_refs(self._load())
        if not self._left(*_STEPS):
            return
        while (subtracted := self._subtract_others()) is None:
            # A commit that was sent before, or another expiry, removed more of the planned snapshots meanwhile.
            self._compare_refs(self._load())
        location, manifests = subtracted
        looks, is_permitted = 0, False
        for step in _STEPS:
            if not self._left(step):
                continue
            while canonical((table := self._load()).metadata_location) != location:
                looks += 1
                if looks > ctx.settings.most_looks:
                    raise TableChangesTooOften(ctx.identifier, looks)
                with NeededFiles(ctx, self._lists) as needed:
                    known = partial(needed.add_table, known=manifests)
                    location, manifests = self._subtract(needed, self._followed(table, known)[0])
            if not is_permitted and not self._permit_deleting(table):
                return
            is_permitted = True
            self._begin()
            self._delete(step)

    def _subtract_others(self) -> tuple[str, frozenset[str]] | None:
        """Take out of the plan what other tables and the table need; return what `_subtract` does.

        Other tables are compared as of a pass over the catalog that began after the commit: no reference that was
        committed before it is missed. None if snapshots of the plan are gone whose refs are not compared yet: from here
        on their files could be deleted, and no ref that was lost with them be restored.
        """
        with NeededFiles(self._ctx, self._lists) as needed:
            self._add_others(needed, self._plan())
            table, _ = self._followed(self._load(), needed.add_table)
            if not gone_of(self._plan().removal, table) <= self._gone:
                return None
            return self._subtract(needed, table)

    def _subtract(self, needed: NeededFiles, table: LoadedTable) -> tuple[str, frozenset[str]]:
        """Take out of the plan what is needed; return the metadata file of the table and its manifests then."""
        if versions_kept(metadata_of(table)) is None:
            needed.add_former_metadata(self._plan())
        found = reduced(self._ctx, self._plan(), self._published(), needed)
        if found is not None:
            fresh, own = found
            self._use(self._ctx.attempt.replace_plan(own, files_planned=fresh.files_planned))
        return canonical(table.metadata_location), needed.manifests

    def _begin(self) -> None:
        """Record that the table or its files change from here on, so that a failure is resumed with this plan."""
        if not self._began:
            self._ctx.attempt.begin_deleting()
            self._began = True

    def _delete(self, step: DeleteStep) -> None:
        """Delete what is left of a step; raise FilesNotDeleted if a file remains, so that no later step begins."""
        ctx = self._ctx

        def report(now: Deleted, failed: int) -> None:
            self._reported = now
            ctx.attempt.progress(files_deleted=now.files, files_failed=failed, bytes_deleted=now.bytes)

        def delete(work: Sequence[Work], add: Callable[[Tally], None]) -> None:
            self._engine.delete(ctx, work, add)

        delete_or_raise(self._left(step), deleted_by_marks(ctx.plans, self._indexes()), delete, report)
        if self._left(step):
            raise EngineFailed(f"step {step} ended without failures, but some of its chunks have no mark")

    def _left(self, *steps: DeleteStep) -> list[Work]:
        """Return the chunks of these steps without a mark."""
        index = self._plan()
        marks = Marks(self._ctx.plans, index.plan_id)
        done = marks.done()
        chunks = (chunk for chunk in index.chunks if chunk.step in steps and chunk.name not in done)
        return [Work(index, chunk, marks.voided) for chunk in chunks]

    def _plan(self) -> ExpiryIndex:
        assert self._index is not None  # noqa: S101 - _open sets it or nothing is expired
        return self._index

    def _published(self) -> PlanSegment:
        assert self._segment is not None  # noqa: S101 - as above
        return self._segment

    def _indexes(self) -> list[ExpiryIndex]:
        """Return the plan and those that it reduced, the first one first."""
        index = self._plan()
        before = [load_plan(self._ctx.plans, PlanSegment(one.id, one.sha256)) for one in index.reduces]
        return [*before, index]

    def _nothing(self) -> ExpiryResult:
        return ExpiryResult(
            "NOTHING" if self._withdrawn is None else "STOPPED",
            self._ctx.identifier,
            self._ctx.table_uuid.lower(),
            "",
            findings=self._beside_plan(),
            withdrawn=self._withdrawn,
            engine=self._engine.name,
        )

    def _beside_plan(self) -> tuple[Finding, ...]:
        """Return the findings that no plan has."""
        if self._withdrawn is None:
            return self._own_findings
        return (*self._own_findings, Finding(code=POLICY_WITHDRAWN, count=1, sample=(self._withdrawn,)))

    def _result(self, status: ExpiryStatus) -> ExpiryResult:
        ctx, indexes = self._ctx, self._indexes()
        index = indexes[-1]
        by_marks = status in ("EXPIRED", "STOPPED")
        deleted = deleted_by_marks(ctx.plans, indexes) if by_marks else self._reported
        versioned = any(Marks(ctx.plans, one.plan_id).versioned() for one in indexes)
        planned = status == "PLANNED"
        return ExpiryResult(
            status=status,
            identifier=ctx.identifier,
            table_uuid=index.table_uuid,
            metadata_location=index.metadata_location,
            plan_ids=tuple(one.plan_id for one in indexes),
            snapshot_ids=index.removal.snapshot_ids if planned else tuple(sorted(self._gone)),
            refs=tuple(index.removal.refs),
            files_planned=indexes[0].files_planned,
            files_deleted=deleted.files,
            files_absent=deleted.absent,
            files_kept=sum(one.files_kept for one in indexes),
            bytes_planned=indexes[0].bytes_planned,
            bytes_deleted=deleted.bytes,
            bytes_freed=None if versioned else deleted.bytes,
            findings=(*merge_findings(indexes), *self._beside_plan()),
            receipt=receipt_key(index) if status in ("EXPIRED", "INCOMPLETE") or self._gone else None,
            seconds=ctx.now() - self._started,
            withdrawn=self._withdrawn,
            engine=self._engine.name,
            deletes_with=ctx.settings.engine_for(indexes[0].files_planned),
        )


def expire_snapshots(ctx: ExpiryContext) -> ExpiryResult:
    """Expire snapshots of a table in this process; a call after a failure resumes where it stopped.

    Raises GuardRefused, ExpiryError, IcebergError, WorksetError, RunStopped, ReferencesNotKnown, and the errors of
    the object store and of delegation.polaris.
    """
    return ExpiryRun(ctx).run()
