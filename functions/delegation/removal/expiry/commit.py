"""The commit of an expiry, and the check whether a ref was lost with the removed snapshots.

A commit can assert the known refs, but not a name that is created meanwhile. A catalog silently removes such a ref with
its snapshot (Iceberg's TableMetadata.Builder.removeSnapshots). The metadata file from before the commit shows the ref,
and the log of the table's metadata names that file.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, TypeVar

from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.metadata import MAX_METADATA_BYTES, decode_metadata
from delegation.polaris.answers import (
    CommitConflict,
    PolarisError,
    PolarisOutcomeUnknown,
    PolarisUnavailable,
    PolarisUnexpectedAnswer,
)
from delegation.polaris.model import LoadedTable
from delegation.removal.expiry.context import (
    ExpiryContext,
    ExpiryIndex,
    Notes,
    OwnCommit,
    Removal,
    SentCommit,
    SentCommits,
    removal,
)
from delegation.removal.expiry.errors import (
    WORK,
    RefLost,
    RefsUnknown,
    commit_refused,
    commits_forestalled,
    table_changes_too_often,
)
from delegation.removal.expiry.planning import covered_of, decided
from delegation.removal.expiry.retention import Expired, Withdrawn, keeps_more
from delegation.removal.expiry.snapshots import MAIN, Ref, history
from delegation.removal.path_guard import check_can_delete
from delegation.removal.run import ExecutedPlan
from delegation.storage.base import ObjectNotFound
from delegation.storage.locations import canonical, parse
from polaris_common.errors import DelegationError

T = TypeVar("T")


class TableLoads:
    """Loads the table for one attempt. `ctx` has the last permitted retention, `withdrawn` why none is permitted."""

    def __init__(self, ctx: ExpiryContext) -> None:
        self.ctx = ctx
        self.withdrawn: str | None = None

    def load(self) -> LoadedTable:
        """Load the current table. Raises errors of the catalog and guards, and GuardRefused (TABLE_UUID_MISMATCH)."""
        table = self.ctx.load_table(WORK)
        self.ctx.check(table)
        return table

    def followed(self, table: LoadedTable, read: Callable[[LoadedTable], T]) -> tuple[LoadedTable, T]:
        """Return a table that could be read, and the result of `read`. Another expiry may delete manifests during the
        read; then the table is loaded again. Raises ExpiryError (TABLE_CHANGES_TOO_OFTEN), ManifestMissing."""
        for _ in range(self.ctx.settings.most_looks):
            try:
                return table, read(table)
            except ManifestMissing:
                now = self.load()
                if canonical(now.metadata_location) == canonical(table.metadata_location):
                    raise
                table = now
        raise table_changes_too_often(self.ctx.identifier, self.ctx.settings.most_looks)

    def permit(self, table: LoadedTable) -> bool:
        """Use what may be expired now from here on. Returns whether anything may."""
        if self.ctx.permitted is None:
            return True
        permitted = self.ctx.permitted(table)
        if isinstance(permitted, Withdrawn):
            self.withdrawn = permitted.reason
            return False
        self.ctx = replace(self.ctx, retention=permitted)
        return True

    def permit_deleting(self, table: LoadedTable, noted: OwnCommit | None) -> bool:
        """Return whether the files of the removed snapshots may be deleted: not if less might be removed now."""
        # After a commit whose outcome is unknown: the retention that this attempt found permitted before.
        used = (noted and noted.retention) or asdict(self.ctx.retention)
        if not self.permit(table):
            return False
        if self.ctx.permitted is not None and keeps_more(asdict(self.ctx.retention), used):
            self.withdrawn = "the table must now keep more than when its snapshots were removed"
        return self.withdrawn is None


class ExpiryPlan(ExecutedPlan[ExpiryIndex]):
    """The plan of one attempt at an expiry."""

    @property
    def notes(self) -> Notes:
        """The notes beside the plan as it was before reductions."""
        return Notes(self._ctx.plans, self.index.origin)


UNANSWERED_FOR: Final = timedelta(hours=24)
"""No proxy or catalog holds a request this long."""
_MOST_SENT: Final = 50
_MOST_REFS: Final = 100


def still_expired(ctx: ExpiryContext, index: ExpiryIndex, table: LoadedTable) -> Expired:
    """Return the part of the plan that the table still has and that is still expired: never more than the plan. A ref
    that was created or moved since the plan is kept, even if it is already too old, because a catalog would silently
    remove it with its snapshot."""
    planned = index.removal
    refs = {name: ref.snapshot_id for name, ref in history(table.metadata).refs.items()}
    others = {name for name, snapshot_id in refs.items() if planned.refs.get(name) != snapshot_id}
    now = decided(ctx, table, others)
    return Expired(
        now.snapshot_ids & frozenset(planned.snapshot_ids),
        frozenset(name for name in now.refs if planned.refs.get(name) == refs[name]),
        now.schema_ids & frozenset(planned.schema_ids),
        now.spec_ids & frozenset(planned.spec_ids),
    )


def lacks_any(index: ExpiryIndex, table: LoadedTable) -> bool:
    """Return whether the table lacks anything that the plan removes."""
    present = history(table.metadata)
    refs = {name: ref.snapshot_id for name, ref in present.refs.items()}
    planned = index.removal
    return (
        not set(planned.snapshot_ids) <= present.snapshots.keys()
        or any(refs.get(name) != snapshot_id for name, snapshot_id in planned.refs.items())
        or not {*planned.schema_ids} <= {*present.schema_ids}
        or not {*planned.spec_ids} <= {*present.spec_ids}
    )


class Unanswered:
    """The sent commits of a plan whose outcome is unknown, noted beside the plan. One of them may be applied hours
    later, with a new ref that it does not know. Until then the plan must be kept, because nothing else would compare
    the refs."""

    def __init__(self, ctx: ExpiryContext, notes: Notes) -> None:
        self._ctx = ctx
        self._notes = notes

    def sending(self, table: LoadedTable) -> None:
        """Record a commit before it is sent, for the loaded table."""
        refs = history(table.metadata).refs
        names = [*(name for name in (MAIN,) if name in refs), *(name for name in refs if name != MAIN)]
        asserted = {name: refs[name].snapshot_id for name in islice(names, _MOST_REFS)}
        sent = (*self._sent(), SentCommit(at=self._ctx.clock(), refs=asserted))
        self._notes.put(SentCommits(commits=sent[-_MOST_SENT:]))

    def refused(self) -> None:
        """Record that the last commit was not applied."""
        self._notes.put(SentCommits(commits=self._sent()[:-1]))

    def may_be_applied(self, table: LoadedTable) -> bool:
        """Return whether one of them can still be applied: every ref of the table is where the commit asserts it."""
        now, refs = self._ctx.clock(), history(table.metadata).refs
        return any(
            now - commit.at < UNANSWERED_FOR
            and all(name in refs and refs[name].snapshot_id == at for name, at in commit.refs.items())
            for commit in self._sent()
        )

    def error(self) -> PolarisOutcomeUnknown:
        """Return the error for an attempt that ends while one of them may still be applied."""
        return PolarisOutcomeUnknown(
            f"an earlier commit to {self._ctx.identifier} got no answer and may still be applied, so its plan is "
            "kept. The next attempt loads the table again"
        )

    def _sent(self) -> tuple[SentCommit, ...]:
        noted = self._notes.get(SentCommits)
        return () if noted is None else noted.commits


class CommitStep:
    """Removes the contents of its plan from the table."""

    def __init__(self, looks: TableLoads, plan: ExpiryPlan) -> None:
        self._looks = looks
        self._plan = plan

    def commit(self) -> Removal | None:
        """Remove what is still expired of the plan from the table. Returns the part of the plan that is gone, None if
        none is. After another writer's commit only what is still expired is removed. After an unclear answer the table
        is loaded. Raises ExpiryError (COMMIT_REFUSED, COMMITS_FORESTALLED) and the errors of the catalog."""
        ctx, index, notes = self._looks.ctx, self._plan.index, self._plan.notes
        own = notes.get(OwnCommit)
        if own is not None:
            return own.removed or Removal(snapshot_ids=own.snapshot_ids)
        unanswered = Unanswered(ctx, notes)
        for _ in range(ctx.settings.most_commits):
            table = self._looks.load()
            if not self._looks.permit(table):
                return self._ended_without(index, table, unanswered)
            gone = still_expired(self._looks.ctx, index, table)
            if not gone:
                return self._ended_without(index, table, unanswered)
            covered = covered_of(ctx, table)
            if ctx.settings.probe and covered is not None:
                check_can_delete(ctx.store, covered.uris)
            ctx.attempt.checkpoint()
            self._plan.begin()
            is_followed, removed = self._sent(index, table, gone, unanswered)
            if not is_followed:
                return removed
        if unanswered.may_be_applied(table):
            raise unanswered.error()
        raise commits_forestalled(ctx.identifier, ctx.settings.most_commits)

    def _sent(
        self, index: ExpiryIndex, table: LoadedTable, gone: Expired, unanswered: Unanswered
    ) -> tuple[bool, Removal | None]:
        """Send one commit. Returns whether another commit was first, and otherwise the result of `commit`."""
        ctx, commit = self._looks.ctx, removal(table.metadata, gone)
        unanswered.sending(table)
        try:
            after = ctx.commits.commit_table(ctx.identifier, commit.requirements, commit.updates)
        except CommitConflict:
            unanswered.refused()
            return True, None
        except PolarisUnavailable as error:
            if not isinstance(error, PolarisOutcomeUnknown):
                unanswered.refused()
            now = self._looks.load()
            if still_expired(ctx, index, now):
                raise
            return False, self._ended_without(index, now, unanswered)
        except PolarisError as error:
            unanswered.refused()
            if isinstance(error, PolarisUnexpectedAnswer):
                # Iceberg refuses to remove more snapshots than exist: another expiry may have been first.
                table = self._looks.load()
                if still_expired(ctx, index, table) != gone:
                    return True, None
            if unanswered.may_be_applied(table):
                raise
            raise commit_refused(ctx.identifier, error) from error
        return False, self._record(gone, table, after)

    def _ended_without(self, index: ExpiryIndex, table: LoadedTable, unanswered: Unanswered) -> Removal | None:
        """Return the part of the plan that is gone, None if the table still has everything. Raises
        PolarisOutcomeUnknown if an earlier commit may still be applied."""
        if lacks_any(index, table):
            return index.removal.gone_from(table.metadata)
        if unanswered.may_be_applied(table):
            raise unanswered.error()
        return None

    def _record(self, gone: Expired, before: LoadedTable, after: LoadedTable) -> Removal:
        """Record the commit, and the metadata file from before it, which is the last in its log."""
        log = after.metadata.get("metadata-log") or ()
        previous = str(log[-1]["metadata-file"]) if log else before.metadata_location
        removed = Removal.of(before.metadata, gone)
        note = OwnCommit(
            metadata_location=after.metadata_location,
            before=previous,
            snapshot_ids=removed.snapshot_ids,
            retention=asdict(self._looks.ctx.retention),
            removed=removed,
        )
        self._plan.notes.put(note)
        return removed


def gone_of(removal: Removal, table: LoadedTable) -> frozenset[int]:
    """Return the removal's snapshots that the table no longer has. Raises CorruptMetadata."""
    return frozenset(removal.snapshot_ids) - history(table.metadata).snapshots.keys()


def check_no_ref_lost(
    ctx: ExpiryContext,
    table: LoadedTable,
    removal: Removal,
    own: OwnCommit | None = None,
    looked: frozenset[int] = frozenset(),
) -> None:
    """Raise RefLost or RefsUnknown for the removal's snapshots that the table no longer has, or errors of the store.

    For snapshots removed by the `own` commit, the file from before it is read, even if the table has the snapshot
    again, as a clone with the table's name may. For snapshots removed by a commit with an unknown outcome or another
    expiry, it is the newest file in the log that still has the snapshot. Snapshots in `looked` are not checked again,
    because their file may be gone. Before RefLost is raised, what the lost refs need is kept.
    """
    left = set(gone_of(removal, table) - looked)
    unread: str | None = None
    refs_lost = _Lost(ctx, removal, history(table.metadata).refs)
    unknown: RefsUnknown | None = None
    paths: Iterable[str] = reversed([str(entry["metadata-file"]) for entry in table.metadata.get("metadata-log") or ()])
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
        # An old file does not show that a ref stayed at the snapshot: main has moved since.
        moved = frozenset[str]() if unread is None else history(table.metadata).refs.keys()
        left -= refs_lost.had(path, document, here, moved)
    if refs_lost.first is not None:
        raise refs_lost.first
    if unknown is not None or left:
        raise unknown or RefsUnknown(ctx.identifier, unread or "it is not in the table's metadata log")


class _Lost:
    """The refs that were lost with the removal's snapshots. `first` is the first error that names some."""

    def __init__(self, ctx: ExpiryContext, removal: Removal, present: Mapping[str, Ref]) -> None:
        self._ctx = ctx
        self._removal = removal
        self._at = {name: ref.snapshot_id for name, ref in present.items()}
        self.first: RefLost | None = None

    def had(self, path: str, document: Mapping[str, Any], gone: Set[int], moved: Set[str] = frozenset()) -> Set[int]:
        """Return which of the `gone` snapshots a former metadata file has, and record its refs to them as lost. A ref
        is not lost if the plan removes it at that snapshot, if it has `moved`, or if it still exists. What a lost ref
        needs is kept; raises the errors of the stores."""
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
    """Return a metadata file's document, None if it is missing or damaged. Raises the store's retryable errors."""
    ctx.attempt.checkpoint()
    try:
        return decode_metadata(path, _read(ctx, path))
    except ObjectNotFound:
        return None
    except DelegationError as error:
        if error.retryable:
            raise
        return None
