"""After the commit of an expiry: comparing again, taking out of the plan what is needed, and deleting the rest."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from delegation.keeping.asking import AskedAnew, AskedReferences
from delegation.keeping.looking import look_at_others
from delegation.keeping.unlisted import UnlistedTables
from delegation.keeping.unread import UnreadNeighbours
from delegation.operations.expiry.engines.inline import ExpiryEngine, SortedRows
from delegation.operations.expiry.index import Removal
from delegation.operations.expiry.lost_refs import check_no_ref_lost, gone_of
from delegation.operations.expiry.notes import ComparedRefs, OwnCommit
from delegation.operations.expiry.planning.reach import metadata_of, versions_kept
from delegation.operations.expiry.reduction import NeededFiles
from delegation.operations.expiry.running.executed_plan import ExecutedPlan
from delegation.operations.expiry.running.looks import TableLooks
from delegation.polaris.model import LoadedTable
from delegation.storage.locations import Roots
from delegation.storage.rate import AdaptiveRate
from delegation.worksets.chunks import DeleteStep
from delegation.worksets.engines.inline import Tally, Work, delete_or_raise
from delegation.worksets.engines.lots import MOST_SEEN, delete_in_lots
from delegation.worksets.errors import EngineFailed
from delegation.worksets.marks import Deleted

STEPS: Final = (DeleteStep.DATA, DeleteStep.META, DeleteStep.LISTS)
"""The steps in which files are deleted, in order."""


class DeleteSteps:
    """Deletes what is left of a plan whose snapshots are gone, and takes out of it what any state seen meanwhile names.

    `removed` is what of the plan the table has no more, `reported` what was deleted as of the last report, `unlisted`
    the tables beside its metadata that no catalog lists.
    """

    def __init__(self, looks: TableLooks, plan: ExecutedPlan, engine: ExpiryEngine) -> None:
        self._looks = looks
        self._plan = plan
        self._engine = engine
        # What was subtracted, or is among what later commits name.
        self._known: set[str] = set()
        self._seen = SortedRows(looks.ctx)
        self._rate = AdaptiveRate(looks.ctx.settings.delete.rate, now=looks.ctx.now())
        self._keeps_former = False
        self._is_permitted = False
        self.removed = Removal()
        self.reported = Deleted()
        self.unlisted: UnlistedTables | None = None

    def delete_all(self) -> None:
        """Compare again, take out of the plan what is needed, and delete the rest step by step.

        Raises RefLost, RefsUnknown, ExpiryError (TABLE_CHANGES_TOO_OFTEN), ComparisonTooOld, FilesNotDeleted and the
        errors of catalog, guards and stores.
        """
        looks, plan = self._looks, self._plan
        # Before any wait: the metadata file from before the commit may be deleted by a later one.
        self._compare_refs(table := looks.load())
        if not plan.left(*STEPS):
            return
        while not self._subtract_others(table):
            # A commit that was sent before, or another expiry, removed more of the planned snapshots meanwhile.
            self._compare_refs(table := looks.load())
        try:
            for step in STEPS:
                self._delete(step)
        finally:
            self._seen.__exit__()

    def _compare_refs(self, table: LoadedTable) -> None:
        """Raise RefLost and RefsUnknown; a look that found nothing lost is noted and not made again."""
        notes, removal = self._plan.notes, self._plan.index.removal
        compared = notes.get(ComparedRefs)
        looked = frozenset(compared.snapshot_ids if compared else ())
        self.removed = removal.gone_from(table.metadata)
        gone = frozenset(self.removed.snapshot_ids)
        check_no_ref_lost(self._looks.ctx, table, removal, notes.get(OwnCommit), looked)
        if not gone <= looked:
            # Now that the snapshots are gone: a pass that began before it saw is not enough.
            notes.put(AskedAnew(asked=False))
            notes.put(ComparedRefs(snapshot_ids=tuple(sorted(gone | looked))))

    def _subtract_others(self, table: LoadedTable) -> bool:
        """Take out of the plan what other tables and the table need.

        Other tables are compared as of a pass over the catalog that began after the commit: no reference that was
        committed before it is missed. False if snapshots of the plan are gone whose refs are not compared yet: from
        here on their files could be deleted, and no ref that was lost with them be restored.
        """
        ctx = self._looks.ctx
        with NeededFiles(ctx, self._engine.needed(ctx)) as needed:
            self._add_others(needed, table)
            read = partial(self._subtract_if_compared, needed)
            return self._looks.followed(self._looks.load(), read)[1]

    def _add_others(self, needed: NeededFiles, table: LoadedTable) -> None:
        """Add what other tables reference, as of a pass that begins after the commit."""
        index = self._plan.index
        notes = self._plan.notes
        ctx, roots = self._looks.ctx, Roots((*index.roots, *index.taken))
        look = partial(look_at_others, ctx, roots, UnreadNeighbours(ctx).note)
        asked = AskedReferences(ctx, partial(notes.get, AskedAnew), notes.put, look=look)
        # What a function could not plan it could not compare again either.
        is_large = index.engine == "spark"
        asked.ask(sum(one.chunk.count for one in self._plan.left(*STEPS)), is_large=is_large)
        self.unlisted = needed.add_others(roots, table)
        asked.answered()

    def _subtract_if_compared(self, needed: NeededFiles, table: LoadedTable) -> bool:
        if not gone_of(self._plan.index.removal, table) <= {*self.removed.snapshot_ids}:
            return False
        self._add_table(needed, table)
        self._subtract(needed)
        return True

    def _add_table(self, needed: NeededFiles, table: LoadedTable) -> None:
        """Add what the table names and no state before it did; raise ManifestMissing if the table changed."""
        needed.add_table(table, self._known)
        if versions_kept(metadata_of(table)) is None and not self._keeps_former:
            needed.add_former_metadata(self._plan.index)
            self._keeps_former = True
        self._known |= needed.named

    def _subtract(self, needed: NeededFiles) -> None:
        """Take out of the plan what is needed."""
        plan = self._plan
        found = needed.reduced(plan.index, plan.segment)
        if found is not None:
            fresh, own = found
            plan.use(self._looks.ctx.attempt.replace_plan(own, files_planned=fresh.files_planned))

    def _may_delete(self, lot: Sequence[Work]) -> bool:
        """Load the table and compare what is new of it with a lot; False if the plan is another one now, or withdrawn.

        Whatever a state named that was seen in this attempt stays, also if the table does not name it any longer.
        """
        looks = self._looks
        needed = NeededFiles(looks.ctx, self._seen)
        table, _ = looks.followed(looks.load(), partial(self._add_table, needed))
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

    def _delete(self, step: DeleteStep) -> None:
        """Delete what is left of a step; raise FilesNotDeleted if a file remains, so that no later step begins."""
        if not self._left(step):
            return
        ctx = self._looks.ctx

        def report(now: Deleted, failed: int) -> None:
            self.reported = now
            ctx.attempt.progress(files_deleted=now.files, files_failed=failed, bytes_deleted=now.bytes)

        def delete(_work: Sequence[Work], add: Callable[[Tally], None]) -> None:
            delete_in_lots(
                lambda: self._left(step),
                ctx.settings.lot_paths,
                self._may_delete,
                partial(self._engine.delete, replace(ctx, rate=self._rate)),
                add,
                now=ctx.now,
                most_slow=ctx.settings.most_looks,
            )

        delete_or_raise((), self._plan.deleted(), delete, report)
        if self._left(step):
            raise EngineFailed(f"step {step} ended without failures, but some of its chunks have no mark")

    def _left(self, step: DeleteStep) -> Sequence[Work]:
        return self._plan.left(step) if self._looks.withdrawn is None else ()
