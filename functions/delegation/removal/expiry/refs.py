"""After the commit of an expiry: whether a ref was lost with the snapshots that are gone.

A commit can assert the refs that are known, and no name that somebody creates meanwhile. A catalog removes such a ref
silently with its snapshot (Iceberg's TableMetadata.Builder.removeSnapshots). The metadata file from before the
commit shows it: the log of the table's metadata names that file.
"""

from collections.abc import Iterable, Mapping, Set
from datetime import datetime
from typing import Any

from delegation.iceberg.metadata import MAX_METADATA_BYTES, decode_metadata
from delegation.polaris.model import LoadedTable
from delegation.removal.expiry.context import ExpiryContext
from delegation.removal.expiry.errors import RefLost, RefsUnknown
from delegation.removal.expiry.history import Ref, history
from delegation.removal.expiry.index import OwnCommit, Removal
from delegation.storage.base import ObjectNotFound
from delegation.storage.locations import parse
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
