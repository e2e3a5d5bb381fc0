"""After the commit of an expiry: comparing again, taking out of the plan what is needed, and deleting the rest."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from delegation.iceberg.reach import ListsRead
from delegation.keeping.asking import AskedAnew, AskedReferences
from delegation.keeping.looking import look_at_others
from delegation.keeping.unlisted import UnlistedTables
from delegation.keeping.unread import UnreadNeighbours
from delegation.operations.expiry.engines.inline import ExpiryEngine
from delegation.operations.expiry.errors import table_changes_too_often
from delegation.operations.expiry.index import Removal
from delegation.operations.expiry.lost_refs import check_no_ref_lost, gone_of
from delegation.operations.expiry.notes import ComparedRefs, OwnCommit
from delegation.operations.expiry.planning.reach import metadata_of, versions_kept
from delegation.operations.expiry.reduction import NeededFiles
from delegation.operations.expiry.running.executed_plan import ExecutedPlan
from delegation.operations.expiry.running.looks import TableLooks
from delegation.polaris.model import LoadedTable
from delegation.storage.locations import Roots, canonical
from delegation.worksets.chunks import DeleteStep
from delegation.worksets.engines.inline import Tally, Work, delete_or_raise
from delegation.worksets.errors import EngineFailed
from delegation.worksets.marks import Deleted

STEPS: Final = (DeleteStep.DATA, DeleteStep.META, DeleteStep.LISTS)
"""The steps in which files are deleted, in order."""


class DeleteSteps:
    """Deletes what is left of a plan whose snapshots are gone.

    `removed` is what of the plan the table has no more, `reported` what was deleted as of the last report, `unlisted`
    the tables beside its metadata that no catalog lists.
    """

    def __init__(self, looks: TableLooks, plan: ExecutedPlan, engine: ExpiryEngine) -> None:
        self._looks = looks
        self._plan = plan
        self._engine = engine
        self._lists = ListsRead()
        self.removed = Removal()
        self.reported = Deleted()
        self.unlisted: UnlistedTables | None = None

    def delete_all(self) -> None:
        """Compare again, take out of the plan what is needed, and delete the rest step by step.

        Raises RefLost, RefsUnknown, ExpiryError (TABLE_CHANGES_TOO_OFTEN), FilesNotDeleted and the errors of catalog,
        guards and stores.
        """
        looks, plan = self._looks, self._plan
        # Before any wait: the metadata file from before the commit may be deleted by a later one.
        self._compare_refs(table := looks.load())
        if not plan.left(*STEPS):
            return
        while (subtracted := self._subtract_others(table)) is None:
            # A commit that was sent before, or another expiry, removed more of the planned snapshots meanwhile.
            self._compare_refs(table := looks.load())
        location, manifests = subtracted
        number, is_permitted = 0, False
        for step in STEPS:
            if not plan.left(step):
                continue
            while canonical((table := looks.load()).metadata_location) != location:
                number += 1
                if number > looks.ctx.settings.most_looks:
                    raise table_changes_too_often(looks.ctx.identifier, number)
                with self._needed() as needed:
                    read = partial(self._subtract, needed, known=manifests)
                    location, manifests = looks.followed(table, read)[1]
            if not is_permitted and not looks.permit_deleting(table, plan.notes.get(OwnCommit)):
                return
            is_permitted = True
            plan.begin()
            self._delete(step)

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

    def _subtract_others(self, table: LoadedTable) -> tuple[str, frozenset[str]] | None:
        """Take out of the plan what other tables and the table need; return what `_subtract` does.

        Other tables are compared as of a pass over the catalog that began after the commit: no reference that was
        committed before it is missed. None if snapshots of the plan are gone whose refs are not compared yet: from here
        on their files could be deleted, and no ref that was lost with them be restored.
        """
        with self._needed() as needed:
            self._add_others(needed, table)
            read = partial(self._subtract_if_compared, needed)
            return self._looks.followed(self._looks.load(), read)[1]

    def _needed(self) -> NeededFiles:
        ctx = self._looks.ctx
        return NeededFiles(ctx, self._engine.needed(ctx), self._lists)

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

    def _subtract_if_compared(self, needed: NeededFiles, table: LoadedTable) -> tuple[str, frozenset[str]] | None:
        if not gone_of(self._plan.index.removal, table) <= {*self.removed.snapshot_ids}:
            return None
        return self._subtract(needed, table)

    def _subtract(
        self, needed: NeededFiles, table: LoadedTable, known: frozenset[str] = frozenset()
    ) -> tuple[str, frozenset[str]]:
        """Take out of the plan what is needed; return the metadata file of the table and its manifests then.

        The entries of the manifests `known` were subtracted before. Raises ManifestMissing if the table changed.
        """
        ctx, plan = self._looks.ctx, self._plan
        needed.add_table(table, known)
        if versions_kept(metadata_of(table)) is None:
            needed.add_former_metadata(plan.index)
        found = needed.reduced(plan.index, plan.segment)
        if found is not None:
            fresh, own = found
            plan.use(ctx.attempt.replace_plan(own, files_planned=fresh.files_planned))
        return canonical(table.metadata_location), needed.manifests

    def _delete(self, step: DeleteStep) -> None:
        """Delete what is left of a step; raise FilesNotDeleted if a file remains, so that no later step begins."""
        ctx = self._looks.ctx

        def report(now: Deleted, failed: int) -> None:
            self.reported = now
            ctx.attempt.progress(files_deleted=now.files, files_failed=failed, bytes_deleted=now.bytes)

        def delete(work: Sequence[Work], add: Callable[[Tally], None]) -> None:
            self._engine.delete(ctx, work, add)

        delete_or_raise(self._plan.left(step), self._plan.deleted(), delete, report)
        if self._plan.left(step):
            raise EngineFailed(f"step {step} ended without failures, but some of its chunks have no mark")
