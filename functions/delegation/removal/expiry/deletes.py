"""After the commit of an expiry: comparing again, taking out of the plan what is needed, and deleting the rest.

A commit can assert the refs that are known, and no name that somebody creates meanwhile. A catalog removes such a ref
silently with its snapshot (Iceberg's TableMetadata.Builder.removeSnapshots). The metadata file from before the
commit shows it: the log of the table's metadata names that file.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from delegation.iceberg.metadata import MAX_METADATA_BYTES, decode_metadata
from delegation.polaris.model import LoadedTable
from delegation.removal.asking import AskedAnew, AskedReferences, look_at_others
from delegation.removal.chunks import DeleteStep
from delegation.removal.deletes import MOST_SEEN, Work, delete_in_lots, delete_or_raise
from delegation.removal.expiry.commit import ExpiryPlan, TableLooks
from delegation.removal.expiry.context import ExpiryContext
from delegation.removal.expiry.errors import RefLost, RefsUnknown
from delegation.removal.expiry.history import Ref, history
from delegation.removal.expiry.index import ComparedRefs, OwnCommit, Removal
from delegation.removal.expiry.planning import metadata_of, versions_kept
from delegation.removal.expiry.reduction import ExpiryEngine, NeededFiles, SortedRows
from delegation.removal.marks import Deleted
from delegation.removal.unlisted import UnlistedTables
from delegation.removal.unread import UnreadNeighbours
from delegation.storage.base import ObjectNotFound
from delegation.storage.deleter import AdaptiveRate
from delegation.storage.locations import Roots, parse
from polaris_common.errors import DelegationError


def gone_of(removal: Removal, table: LoadedTable) -> frozenset[int]:
    """Return which snapshots of the removal the table has no more; raise CorruptMetadata."""
    return frozenset(removal.snapshot_ids) - history(table.metadata).snapshots.keys()


def check_no_ref_lost(
    ctx: ExpiryContext,
    table: LoadedTable,
    removal: Removal,
    own: OwnCommit | None = None,
    looked: frozenset[int] = frozenset(),
) -> None:
    """Raise RefLost or RefsUnknown for the snapshots of the removal that the table has no more, or errors of the store.

    For what the `own` commit removed the file before it is read, also if the table has it again, as a clone that took
    the table's name does. For others, which a commit removed whose answer was lost, or another expiry, it is the newest
    file in the log that still has the snapshot. Those `looked` at before are not looked at again: the file may be gone
    since. Before RefLost is raised, what the lost refs need is kept.
    """
    left = set(gone_of(removal, table) - looked)
    unread: str | None = None
    refs_lost = _Lost(ctx, removal, history(table.metadata).refs)
    unknown: RefsUnknown | None = None
    paths: Iterable[str] = reversed([str(one["metadata-file"]) for one in table.metadata.get("metadata-log") or ()])
    ours = set(own.snapshot_ids) - looked if own is not None else set[int]()
    if own is not None and ours and (document := _document(ctx, own.before)) is not None:
        left -= refs_lost.had(own.before, document, ours)
    for path in paths:
        if not left:
            break
        document = _document(ctx, path)
        if document is None:
            unread = unread or path
            continue
        if str(document.get("table-uuid", ctx.table_uuid)).lower() != ctx.table_uuid.lower():
            continue
        here = left & history(document).snapshots.keys()
        if here and unread is not None:
            unknown = unknown or RefsUnknown(ctx.identifier, unread)
        # A file from long before does not show that a ref was at the snapshot until the end: main has moved since.
        moved = frozenset[str]() if unread is None else history(table.metadata).refs.keys()
        left -= refs_lost.had(path, document, here, moved)
    if refs_lost.first is not None:
        raise refs_lost.first
    if unknown is not None or left:
        raise unknown or RefsUnknown(ctx.identifier, unread or "it is not in the table's metadata log")


class _Lost:
    """The refs that were lost with snapshots of a removal; `first` is the first error that names some."""

    def __init__(self, ctx: ExpiryContext, removal: Removal, present: Mapping[str, Ref]) -> None:
        self._ctx = ctx
        self._removal = removal
        self._at = {name: ref.snapshot_id for name, ref in present.items()}
        self.first: RefLost | None = None

    def had(self, path: str, document: Mapping[str, Any], gone: Set[int], moved: Set[str] = frozenset()) -> Set[int]:
        """Return those of the snapshots that a former metadata file has; if it has a ref to one of them, that is lost.

        A ref that was planned to go, at the snapshot that it was at then, is no loss, nor is one that has `moved` or is
        there. What a lost one needs is kept; the errors of the stores are raised.
        """
        former, planned = history(document), self._removal.refs
        refs = {
            ref.name: ref.snapshot_id
            for ref in former.refs.values()
            if ref.snapshot_id in gone
            and ref.snapshot_id not in (planned.get(ref.name), self._at.get(ref.name))
            and ref.name not in moved
        }
        if refs:
            until = self._kept(path, refs)
            self.first = self.first or RefLost(self._ctx.identifier, refs, path, kept_until=until)
        return gone & former.snapshots.keys()

    def _kept(self, path: str, refs: Mapping[str, int]) -> datetime | None:
        keeper = self._ctx.lost_refs
        if keeper is None:
            return None
        return keeper.keep(refs, path, _read(self._ctx, path), self._ctx.store, self._ctx.attempt.checkpoint)


def _read(ctx: ExpiryContext, path: str) -> bytes:
    return ctx.store.read(parse(path), limit=MAX_METADATA_BYTES)


def _document(ctx: ExpiryContext, path: str) -> Mapping[str, Any] | None:
    """Return a metadata file's document, None if it is gone or damaged; raise the store's retryable errors."""
    ctx.attempt.checkpoint()
    try:
        return decode_metadata(path, _read(ctx, path))
    except ObjectNotFound:
        return None
    except DelegationError as error:
        if error.retryable:
            raise
        return None


STEPS: Final = (DeleteStep.DATA, DeleteStep.META, DeleteStep.LISTS)
"""The steps in which files are deleted, in order."""


class DeleteSteps:
    """Deletes what is left of a plan whose snapshots are gone, and takes out of it what any state seen meanwhile names.

    `removed` is what of the plan the table has no more, `reported` what was deleted as of the last report, `unlisted`
    the tables beside its metadata that no catalog lists.
    """

    def __init__(self, looks: TableLooks, plan: ExpiryPlan, engine: ExpiryEngine) -> None:
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
        left = partial(self._left, step)
        if not left():
            return
        ctx = self._looks.ctx

        def report(now: Deleted, failed: int) -> None:
            self.reported = now
            ctx.attempt.progress(files_deleted=now.files, files_failed=failed, bytes_deleted=now.bytes)

        delete = partial(self._engine.delete, replace(ctx, rate=self._rate))
        paths, most_slow = ctx.settings.lot_paths, ctx.settings.most_looks
        in_lots = partial(delete_in_lots, left, paths, self._may_delete, delete, now=ctx.now, most_slow=most_slow)
        delete_or_raise(left, self._plan.deleted(), in_lots, report)

    def _left(self, step: DeleteStep) -> Sequence[Work]:
        return self._plan.left(step) if self._looks.withdrawn is None else ()
