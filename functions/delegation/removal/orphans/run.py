"""Removes orphan files in phases, so that it can be resumed at any point.

    list → wait for references → subtract → plan → (a person) → wait for references → subtract → delete → receipt
Both waits are for a pass over the catalog that started after the step before, so everything committed, registered or
created until then is seen. A plan is only ever reduced, and only unchanged files are deleted. A call after a crash
resumes from the last published segment.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from delegation.errors import RunCancelled
from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.metadata import FormerMetadata
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment, receipt_key
from delegation.removal.choice import HandedToSpark, Size
from delegation.removal.chunks import DeleteStep, Total
from delegation.removal.deletes import MOST_SEEN, Work
from delegation.removal.errors import FilesNotDeleted, PlanLost, plan_of_another_table
from delegation.removal.foreign.metadata import HeadsRead
from delegation.removal.index import Finding, merge_findings, store_index
from delegation.removal.marks import Deleted, Marks, MarksListedOnce
from delegation.removal.neighbours import AskedReferences
from delegation.removal.orphans.context import ForeignKept, OrphanContext, OrphanResult, Status
from delegation.removal.orphans.deletes import OrphansDeleted, own_of_receipt, swept
from delegation.removal.orphans.details import Approval, Wait, new_findings, waits_for
from delegation.removal.orphans.errors import RemovalWithdrawn, location_not_allowed
from delegation.removal.orphans.foreign import foreign_findings, signs_now, stored_signs, to_include
from delegation.removal.orphans.index import OrphanIndex, load_plan
from delegation.removal.orphans.needed_files import NeededAtLocation, metadata_of
from delegation.removal.orphans.needed_rows import NeededSet, SortedNeeded
from delegation.removal.orphans.place import WORK, Eligible, Equal, check_allowed, hidden_partitions, place_of
from delegation.removal.orphans.planning import INLINE, AskedNote, OrphanEngine, make_listing, make_plan, reduced
from delegation.removal.orphans.released import leave_out, merged_released, release_needed, remember_tagged, superseded
from delegation.removal.path_guard import check_can_delete, unknown_findings
from delegation.removal.run import ExecutedPlan, RemovalInLots, Reported
from delegation.storage.base import ObjectNotFound
from delegation.storage.locations import FOREIGN_TABLE, Root, canonical

_DIGEST = 20
_COMPARES = "compares the listed with the needed files"


class OrphanRun(RemovalInLots[OrphanContext, OrphanIndex, OrphanResult]):
    """One attempt at removing the orphan files of a table; used once."""

    def __init__(self, ctx: OrphanContext, engine: OrphanEngine = INLINE) -> None:
        self._marks = MarksListedOnce(ctx.plans)
        ctx = replace(ctx, plans=self._marks)
        super().__init__(ctx, ExecutedPlan(ctx, OrphanIndex, self._check))
        self._engine = engine
        self._remembered = set[str]()
        self._superseded: tuple[str, tuple[str, ...]] = "", ()
        # Beside those that the plan names: files added since it was made.
        self._released: tuple[Finding, ...] = ()
        self._approval: Approval | None = None
        self._ended_by_finding = False
        self._known_consent: dict[str, Any] | None = None
        self._lost: PlanSegment | None = None
        # Files subtracted, or named by later commits. An object of a table never changes.
        self._known: set[str] = set()
        self._former: dict[str, FormerMetadata] = {}
        self._stopped: Wait = ""
        self._heads: HeadsRead = {}

    def _before_deletes(self) -> OrphanResult | None:
        """Return the result of a dry run, of a plan that waits for a person, or of a plan without files."""
        ctx, index = self._ctx, self._plan.index
        if ctx.options.dry_run:
            return self._result("PLANNED")
        self._stopped = self._waits(index)
        if self._stopped:
            return self._end("WAITING")
        if not index.chunks and not index.reduces and not to_include(index, ctx.options.including):
            return self._result("NOTHING")
        return None

    def _ended_by(self, error: BaseException) -> None:
        if isinstance(error, (RunCancelled, RemovalWithdrawn)):
            self._end("INCOMPLETE")

    def _store_receipt(self, result: OrphanResult, failed: FilesNotDeleted | None) -> None:
        if result.receipt is not None:
            super()._store_receipt(result, failed)

    def _own_of_receipt(self, result: OrphanResult, indexes: Sequence[OrphanIndex]) -> dict[str, Any]:
        return own_of_receipt(self._ctx, result, indexes)

    @property
    def _approved_plan(self) -> str | None:
        return super()._approved_plan if self._approval is None else self._approval.plan

    def _open(self, segments: Sequence[PlanSegment]) -> None:
        try:
            super()._open(segments)
            if self._plan.index.stage == "listed":
                self._publish_plan()
        except PlanLost:
            self._lost = next(reversed(segments), None)
            raise

    def _make(self) -> None:
        if not self._takes_up_approved():
            self._list(resume=True)

    def _open_again(self, lost: PlanLost) -> None:
        """List again what was lost. What is found now has no approval."""
        self._known_consent = None
        if self._ctx.options.execute_plan is not None:
            raise lost
        self._list(resume=False)
        self._publish_plan()

    def _takes_up_approved(self) -> bool:
        """Publish the plan that waited with the task, if it is approved and is what this request requires."""
        ctx = self._ctx
        if ctx.options.dry_run or ctx.waiting is None or ctx.approval(ctx.waiting) is None:
            return False
        try:
            index = load_plan(ctx.plans, ctx.waiting)
        except PlanLost:
            return False
        if not index.answers(ctx.options, str(ctx.identifier)):
            return False
        if place_of(metadata_of(self._load()), index.elsewhere).uri != index.roots[0]:
            return False
        self._adopt(ctx.waiting)
        return True

    def _check_named(self, index: OrphanIndex) -> None:
        self._check(index)
        if index.stage == "listed":
            raise plan_of_another_table(
                f"{index.plan_id} is a listing, not a plan. Scan the table again, then use the new plan"
            )

    def _list(self, *, resume: bool) -> None:
        ctx = self._ctx
        # The first places need all privileges that `CatalogPlaces` needs: a listing may take hours.
        list(islice(ctx.places(), 2))
        _, segment = make_listing(ctx, self._load(), self._engine.list_parts, resume=resume)
        publish = ctx.attempt.replace_plan if ctx.attempt.plan() else ctx.attempt.publish
        self._use(publish(segment, files_planned=0))

    def _publish_plan(self) -> None:
        """Wait for the references as of a time after the listing, and publish what none of them needs."""
        ctx = self._ctx
        with self._keep() as keep:
            self._add_neighbours(keep, None)
            table = self._load()
            listing = self._plan.index
            if place_of(metadata_of(table), listing.elsewhere).uri != listing.roots[0]:
                raise PlanLost(listing.plan_id, "the table's location changed after the listing")
            keep.add_table(table)
            keep.add_claims()
            keep.add_foreign(table, listing, stored_signs(ctx, listing.signs or ()), self._heads)
            released = release_needed(ctx, listing, keep)
            index = make_plan(ctx, table, listing, keep)
            known = keep.named
        unknown = unknown_findings(metadata_of(table).properties)
        update = {"findings": (*index.findings, *released, *unknown), "deleted_before": self._deleted_by_lost()}
        index = index.model_copy(update=update)
        index = index.model_copy(update={"waits": self._waits(index)})
        if index.quarantine:
            eligible = Eligible(Root.of(index.roots[0]), listing.age, hidden_partitions(table.metadata))
            self._superseded = index.plan_id, superseded(ctx, listing, index, eligible)
        segment = store_index(ctx.plans, index)
        self._use(ctx.attempt.replace_plan(segment, files_planned=index.files_planned))
        if self._plan.index.plan_id == index.plan_id:
            self._known |= known

    def _deleted_by_lost(self) -> Total:
        """Return what earlier attempts deleted by a lost plan, as far as known; an upper estimate."""
        ctx = self._ctx
        if self._lost is None or not ctx.began:
            return Total()
        known, done = ctx.deleted_before, Marks(ctx.plans, self._lost.id).done()
        marked = min(len(done) * ctx.settings.chunk_paths, ctx.planned_before)
        return Total(files=max(known.files, marked), bytes=known.bytes)

    def _waits(self, index: OrphanIndex) -> Wait:
        """Return why a plan waits for a person, by the operator's current settings, "" if it is approved. A plan whose
        deletes started without approval needs none until they end; its replacement does."""
        ctx, gone = self._ctx, index.deleted_amount
        consent = self._consent(index)
        begun = consent.get("begun") == index.origin and (ctx.began or self._plan.began)
        if not index.chunks or (begun and not consent.get("approved")):
            return ""
        is_first = consent.get("plan") in (None, index.origin)
        waits = waits_for(
            index.planned_amount + gone, index.listed_amount + gone, ctx.options.limits, is_first=is_first
        )
        if not waits or self._approval is not None:
            return ""
        return "finding" if self._ended_by_finding else waits

    def _find_approval(self, index: OrphanIndex, segment: PlanSegment) -> None:
        """Record the approval of a plan, or of one that it reduces. It holds until something else is found."""
        ctx = self._ctx
        for planned in (segment, *(PlanSegment(each.id, each.sha256) for each in reversed(index.reduces))):
            approval = ctx.approval(planned)
            if approval is None:
                continue
            if not new_findings(load_plan(ctx.plans, planned).findings, index.findings):
                self._approval = approval
                break
            self._ended_by_finding = True
        including = () if self._approval is None else self._approval.including
        self._ctx = replace(ctx, options=replace(ctx.options, including=including))

    def _consent(self, index: OrphanIndex) -> dict[str, Any]:
        """Return the first plan of the table here with consent, and the last whose deletes started. Records of a former
        release state only that there was a plan."""
        if self._known_consent is None:
            stored = self._stored(self._key_of_consent(index))
            consent = json.loads(stored) if stored is not None else {}
            self._known_consent = consent if "begun" in consent else {}
        return self._known_consent

    def _note_consent(self, index: OrphanIndex) -> None:
        before, key = self._consent(index), self._key_of_consent(index)
        begun = {"begun": index.origin, "approved": self._approval is not None}
        record = {"format": 1, "plan": before.get("plan", index.origin), **begun}
        if record != before:
            self._ctx.plans.put(key, (json.dumps(record) + "\n").encode())
            self._known_consent = record

    def _key_of_consent(self, index: OrphanIndex) -> str:
        digest = hashlib.sha256(index.roots[0].encode()).hexdigest()[:_DIGEST]
        return f"orphans/{index.table_uuid}/{digest}.json"

    def _keep(self, needed: NeededSet | None = None) -> NeededAtLocation:
        needed = needed or self._engine.needed(self._ctx)
        return NeededAtLocation(self._ctx, Root.of(self._plan.index.roots[0]), needed, self._check_size)

    def _check_size(self, size: Size) -> None:
        """Raise HandedToSpark if a function lacks the time or memory to read this and Spark is available."""
        ctx = self._ctx
        if ctx.spark_above is None or ctx.options.quarantine or size.is_planned_in_a_function(ctx.settings):
            return
        if self._plan.began:
            # Files were deleted with the known references of other tables, so the job requires a new pass.
            raise HandedToSpark(ctx.attempt.task_id, self._plan.index.listed.files, does=_COMPARES)
        self._asked().hand_over(self._plan.index.listed.files, does=_COMPARES)

    def _asked(self, look: Callable[[], object] = lambda: None) -> AskedReferences:
        note = AskedNote(self._ctx, self._plan.index.origin)
        return AskedReferences(self._ctx, note.read, note.write, look=look)

    def _add_neighbours(self, keep: NeededAtLocation, left: int | None) -> None:
        """Add what other tables need as of now. An attempt that waited for the pass, and has not used it, requires no
        other. Every attempt that gets this far requires one the next time, because a table may have been created since.
        Raises HandedToSpark if another engine is to delete the `left` files, or to plan if `left` is None."""
        ctx, index = self._ctx, self._plan.index
        asked = self._asked(keep.look_at_neighbours)
        asked.require()
        if ctx.spark_above is not None and not ctx.options.quarantine:
            is_wide = ctx.settings.is_wide(index.listed.files)
            if left is None and (ctx.leaves_plan or is_wide):
                asked.hand_over(index.listed.files, does=_COMPARES)
            if left is not None and (left > ctx.spark_above or is_wide):
                asked.hand_over(left)
        keep.add_neighbours()
        asked.answered()

    def _stored(self, key: str) -> bytes | None:
        try:
            return self._ctx.plans.get(key)
        except ObjectNotFound:
            return None

    def _use(self, segments: Sequence[PlanSegment]) -> None:
        """Read the published segment, which another attempt may have written."""
        index = self._plan.use(segments)
        if index.quarantine and not self._ctx.options.quarantine:
            self._ctx = replace(self._ctx, options=replace(self._ctx.options, quarantine=True))
        if self._ctx.options.execute_plan is not None and index.compared is not None:
            # The approval names only the plan. What the operator has forbidden since then stays forbidden.
            how, options = index.compared, self._ctx.options
            equal = Equal(how.schemes, how.authorities)
            options = replace(options, equal=equal, mismatch=how.mismatch.within(options.loosest))
            self._ctx = replace(self._ctx, options=options)
        self._approval, self._ended_by_finding = None, False
        if index.stage != "listed":
            self._find_approval(index, segments[-1])

    def _check(self, index: OrphanIndex) -> None:
        ctx = self._ctx
        ctx.check_plan(index)
        if index.elsewhere and not index.elsewhere.startswith(ctx.options.locations):
            raise location_not_allowed(index.elsewhere)
        if index.signs is None:
            raise PlanLost(index.plan_id, "an earlier release made it without a check for unlisted tables")

    def _load(self) -> LoadedTable:
        """Load the current table. Raises the errors of the catalog, GuardRefused (TABLE_UUID_MISMATCH), those of
        guards, and RemovalWithdrawn."""
        table = self._ctx.load_table(WORK)
        if (reason := self._ctx.permitted(table)) is not None:
            raise RemovalWithdrawn(reason)
        metadata = metadata_of(table)
        check_allowed(metadata)
        if self._ctx.options.quarantine:
            root = place_of(metadata, self._plan.index.elsewhere if self._plan.is_read else self._ctx.options.location)
            self._ctx.tags(root.bucket, root.uri)
        return table

    def _delete_all(self) -> Status:
        """Remove needed files from the plan and delete the rest in lots, comparing each with new commits."""
        ctx = self._ctx
        if not self._plan.left() and not to_include(self._plan.index, ctx.options.including):
            return "SWEPT"
        self._subtract_needed()
        self._seen = SortedNeeded(self._ctx)
        try:
            self._delete()
            if self._seen.added:
                with self._keep(self._seen) as keep:
                    self._released += release_needed(ctx, self._plan.index, keep)
        finally:
            self._seen.close()
        return "WAITING" if self._stopped else "SWEPT"

    def _may_delete(self, lot: Sequence[Work]) -> bool:
        ctx, index = self._ctx, self._plan.index
        keep = self._keep(self._seen)
        self._add_table(keep, self._load())
        needed = keep.needed_among([(index.plan_id, [item.chunk for item in lot])]) if self._seen.added else ()
        if keep.seconds > index.age or self._seen.added > MOST_SEEN or any(True for _ in needed):
            self._subtract(keep)
            self._seen.close()
            self._seen = SortedNeeded(ctx)
            return False
        self._stopped = self._waits(index)
        if self._stopped:
            return False
        if not self._plan.began:
            if ctx.settings.probe and ctx.settings.vended and not ctx.options.quarantine:
                check_can_delete(ctx.store, index.roots)
            self._note_consent(index)
            self._plan.begin()
        if ctx.options.quarantine and index.plan_id not in self._remembered:
            remember_tagged(ctx.plans, index, self._plan.segment)
            if self._superseded[0] == index.plan_id:
                leave_out(ctx.plans, self._superseded[1])
            self._remembered.add(index.plan_id)
        return True

    @property
    def _deletes_with(self) -> OrphanEngine:
        """The engine. This process sets tags for every engine, because executors have only vended credentials."""
        return INLINE if self._ctx.options.quarantine else self._engine

    def _delete_lot(self, work: Sequence[Work], add: Reported) -> None:
        ctx, engine = replace(self._ctx, rate=self._rate), self._deletes_with
        if engine is INLINE:
            INLINE.delete(ctx, work, add)
            return
        # Executors put marks concurrently, and this process reads them.
        try:
            engine.delete(replace(ctx, plans=self._marks.store), work, add)
        finally:
            self._marks.learn(work[0].index.plan_id, [item.chunk for item in work], work[0].voided)

    def _left(self, *steps: DeleteStep) -> Sequence[Work]:
        return () if self._stopped else self._plan.left(*steps)

    def _deleted_before(self) -> Deleted:
        return Deleted()  # `_report` counts by marks

    def _report(self, _now: Deleted, failed: int) -> None:
        ctx, index = self._ctx, self._plan.index
        now, gone = swept(ctx, [index]), index.deleted_amount
        if now.quarantined:
            ctx.attempt.note(files_quarantined=now.quarantined)
        files, size = now.files + gone.files, now.bytes + gone.bytes
        ctx.attempt.progress(files_deleted=files, files_failed=failed, bytes_deleted=size)

    def _subtract_needed(self) -> None:
        """Remove from the plan what other tables and tasks and the table need now. Raises as `_add_table`."""
        ctx, index = self._ctx, self._plan.index
        with self._keep() as keep:
            self._add_neighbours(keep, sum(work.chunk.count for work in self._plan.left()))
            keep.add_claims()
            # Listed before the table is loaded, so that its log has everything committed by then.
            signs = signs_now(ctx, Root.of(index.roots[0]), stored_signs(ctx, index.signs or ()))
            table = self._load()
            self._add_table(keep, table)
            keep.add_foreign(table, index, signs, self._heads)
            self._subtract(keep)

    def _add_table(self, keep: NeededAtLocation, table: LoadedTable) -> None:
        """Add what the table names and no earlier state did. Another task may delete manifests during the read; then
        the table is loaded again. Raises GuardRefused (PLAN_OF_ANOTHER_TABLE) if it moved."""
        index, looks = self._plan.index, self._ctx.settings.most_looks
        for look in range(1, looks + 1):
            if place_of(metadata_of(table), index.elsewhere).uri != index.roots[0]:
                raise plan_of_another_table(
                    f"plan {index.plan_id} is for {index.roots[0]}, but the table has moved. Scan the table again"
                )
            try:
                keep.add_table(table, self._known, self._former)
                break
            except ManifestMissing:
                now = self._load()
                if look == looks or canonical(now.metadata_location) == canonical(table.metadata_location):
                    raise
                table = now
        self._known |= keep.named

    def _subtract(self, keep: NeededAtLocation) -> None:
        """Remove what is needed now from the plan, and the tag from such files."""
        ctx, index = self._ctx, self._plan.index
        self._released += release_needed(ctx, index, keep)
        fresh = reduced(ctx, index, self._plan.segment, keep)
        if fresh is not None:
            segment = store_index(ctx.plans, fresh)
            self._use(ctx.attempt.replace_plan(segment, files_planned=fresh.files_planned))

    def _result(self, status: Status) -> OrphanResult:
        ctx, indexes = self._ctx, self._plan.indexes()
        first, last = indexes[0], indexes[-1]
        included = tuple(table for index in indexes for table in index.included)
        is_wide = ctx.settings.is_wide(first.listed.files)
        by_size = ctx.settings.engine_for(last.files_planned, needs_spark=is_wide)
        # The final state for such tables, which may be less than at first, or more.
        others = (finding for finding in merge_findings(indexes) if finding.code != FOREIGN_TABLE)
        findings = (*others, *foreign_findings(last.foreign_tables))
        deletes = status in ("SWEPT", "INCOMPLETE") or (status == "WAITING" and (ctx.began or self._plan.began))
        done = swept(ctx, indexes) if deletes else OrphansDeleted()
        return OrphanResult(
            **self._figures(indexes, Deleted(done.files, done.bytes, done.absent)),
            status=status,
            location=last.roots[0],
            waits=self._stopped if status == "WAITING" else "",
            files_listed=first.listed.files,
            bytes_listed=first.listed.bytes,
            files_planned=first.files_planned + sum(table.files for table in included),
            bytes_planned=first.bytes_planned + sum(table.bytes for table in included),
            files_changed=done.changed,
            files_looked_only=done.looked_only,
            quarantine=ctx.options.quarantine,
            files_quarantined=done.quarantined,
            bytes_quarantined=done.quarantined_bytes,
            files_untagged=done.untagged,
            findings=merged_released(findings, self._released),
            foreign=[ForeignKept(table.uuid, table.place, table.files, table.bytes) for table in last.foreign_tables],
            receipt=receipt_key(last.plan_id) if deletes else None,
            deleted_before=last.deleted_amount,
            approval=self._approval,
            engine=self._deletes_with.name,
            deletes_with="inline" if ctx.options.quarantine else by_size,
        )


def remove_orphan_files(ctx: OrphanContext) -> OrphanResult:
    """Remove the orphan files of a table in this process. A call after a failure resumes. Raises GuardRefused,
    OrphansError, IcebergError, WorksetError, RunStopped, ReferencesNotKnown, and the errors of the object store and of
    delegation.polaris."""
    return OrphanRun(ctx).run()
