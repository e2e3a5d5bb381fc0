"""Updates one table's entry: loads the table conditionally, and reads what changed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Final, Protocol

from delegation.errors import GuardRefused
from delegation.iceberg.errors import IcebergError
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import (
    CredentialVendingFailed,
    NoSuchNamespace,
    NoSuchTable,
    PolarisForbidden,
    PolarisUnexpectedAnswer,
    TableMetadataMissing,
)
from delegation.polaris.model import LoadedTable
from delegation.references.blocking import Subject
from delegation.references.errors import PassLost
from delegation.references.model import UNANSWERED_PASSES, TableEntry, fold
from delegation.references.reading import ReadOnce, outline, problem_of
from delegation.references.store import ReferenceStore
from delegation.storage.base import ObjectStoreError, ReadableStore
from polaris_common.errors import DelegationError, ErrorScope

LOADS: Final = 3
"""Loads of a table whose manifests disappear during the read, because it is written and its snapshots expire."""
_GONE: Final = (NoSuchTable, NoSuchNamespace)
LASTING: Final = (
    PolarisForbidden,
    PolarisUnexpectedAnswer,
    CredentialVendingFailed,
    ObjectStoreError,
    IcebergError,
    GuardRefused,
)
"""Errors that a retry would repeat, unless they are retryable. The entry records them."""
_NOT_VENDED: Final = (PolarisForbidden, CredentialVendingFailed)


def _nothing() -> None:
    """Do nothing."""


class Absence(Enum):
    """Why a name has no table with known references."""

    GONE = "dropped or renamed"
    LOST = "without a metadata file"
    EMPTIED = "without the metadata file that the index knows"


OpenStore = Callable[[LoadedTable], ReadableStore]
"""Opens the files of a table that was loaded with vended credentials."""
ReadTable = Callable[[LoadedTable, ReadableStore, TableEntry | None], TableEntry]
"""Reads what a loaded table references; see `read_references`."""
TableVisited = Callable[[LoadedTable, ReadableStore, datetime], object]
"""Called with a table whose new entry is stored, its files, and a time before its load. Must not raise."""


class VisitedCatalog(Protocol):
    """The methods of a catalog that a visit needs; PolarisClient documents the errors."""

    def load_if_changed(self, identifier: TableIdentifier, etag: str | None) -> LoadedTable | None: ...

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable: ...


@dataclass(frozen=True, slots=True)
class Visitor:
    """Visits tables for their catalog's index. `pace` returns when the next request to the catalog may be sent.
    `visited` is called after a changed table's entry is stored, so its outcome neither loses nor repeats the visit."""

    store: ReferenceStore
    catalog: VisitedCatalog
    open_store: OpenStore
    read: ReadTable
    clock: Callable[[], datetime]
    pace: Callable[[], None]
    visited: TableVisited | None = None

    def visit(
        self,
        identifier: TableIdentifier,
        known: TableEntry | None,
        displacing: frozenset[str] = frozenset(),
        *,
        cloned: bool = False,
    ) -> TableEntry | Absence:
        """Update one table's entry; return it without digests, or why there is none. An unreadable table keeps its
        areas, and gets those that can be read. `displacing` are uuids seen under this name in the same pass. Their
        areas stay in the entry unless the name still has the table. With `cloned` another name has a table with the
        known table's uuid. Raises PassLost and the retryable errors of the catalog and the stores."""
        entry, visited = self.read_once(identifier, known, displacing, cloned=cloned)
        visited()
        return entry

    def read_once(
        self, identifier: TableIdentifier, known: TableEntry | None, displacing: frozenset[str], *, cloned: bool
    ) -> tuple[TableEntry | Absence, Callable[[], object]]:
        """As `visit`, but returns the call of `visited` for the caller to make."""
        try:
            answer = self._changed(identifier, known)
        except _GONE:
            return Absence.GONE, _nothing
        except TableMetadataMissing as error:
            # Polaris names the file; the table was purged but not dropped yet.
            answered = error.answered or str(error)
            same = known is not None and known.metadata_location and known.metadata_location in answered
            return Absence.EMPTIED if same else Absence.LOST, _nothing
        if isinstance(answer, _Changed):
            return self._stored(answer, displacing, cloned=cloned), answer.visited
        return answer, _nothing

    def unanswered(
        self,
        identifier: TableIdentifier,
        error: Exception,
        number: int,
        displacing: frozenset[str] = frozenset(),
        *,
        cloned: bool = False,
    ) -> TableEntry:
        """Record that a visit in pass `number` had no answer although others had one; return the entry. If the table
        loads without credentials, at least its current state is known."""
        stored = self.store.get(identifier)
        base = stored or TableEntry(identifier, "", "")
        entry = replace(base, problem=problem_of(error), problem_location=None, unread=None)
        if isinstance(error, DelegationError):
            self.pace()
            try:
                entry = outline(self.catalog.load_table(identifier, vend=False), stored, problem_of(error))
            except DelegationError as again:
                if again.scope > ErrorScope.ITEM:
                    raise
        # A table already unreadable need not wait for three passes: it protects no less.
        is_new = base.problem is None or bool(base.unanswered)
        passes = tuple(dict.fromkeys((*base.unanswered, number)))[:UNANSWERED_PASSES] if is_new else ()
        return self._stored(self._following(stored, replace(entry, unanswered=passes)), displacing, cloned=cloned)

    def _stored(self, change: "_Changed", displacing: frozenset[str], *, cloned: bool) -> TableEntry:
        after = with_displaced(change.after, change.before, displacing - {change.after.table_uuid})
        after = _with_clone(after, change.before, cloned=cloned)
        self.store.put(after)
        if after.problem is None and change.before is not None and change.before.problem is not None:
            # An exemption ends when the table is readable. A later problem needs another decision.
            self.store.remove_exemption(Subject.of(after.identifier))
        elif after.unread is not None and (change.before is None or change.before.unread != after.unread):
            self._narrow_exemption(after, after.unread)
        return replace(after, seen=frozenset(), revision=after.revision + 1)

    def _narrow_exemption(self, entry: TableEntry, unread: frozenset[bytes]) -> None:
        """Remove the files that are readable now from an exemption. If lost again, they need another decision."""
        subject = Subject.of(entry.identifier)
        for exemption in self.store.exemptions(subject.catalog):
            same = (exemption.subject, exemption.table_uuid) == (subject, entry.table_uuid)
            if same and exemption.unread is not None and unread < exemption.unread:
                self.store.put_exemption(replace(exemption, unread=unread))

    def _changed(self, identifier: TableIdentifier, known: TableEntry | None) -> "TableEntry | _Changed":
        missed_at = known.problem_location if known is not None and known.lacks_a_manifest else None
        etag = _etag_of(known)
        changed: _Changed | None = None
        for _ in range(LOADS):
            self.pace()
            asked = self.clock()
            try:
                table = self.catalog.load_if_changed(identifier, etag)
            except LASTING as error:
                _raise_retryable(error)
                stored = self.store.get(identifier)
                return self._following(stored, self._not_loaded(identifier, stored, error))
            if known is not None and (table is None or _is_read(known, table)):
                return known if known.problem is None else self._answered(known)
            if table is None:
                raise PolarisUnexpectedAnswer(
                    f"Polaris answered 304 (not modified) for {identifier}, but no copy of the table is known",
                    status=304,
                )
            stored = self.store.get(identifier)
            if _revision(stored) != _revision(known):
                # Another process wrote it, perhaps from a later load than this one.
                known, etag, changed = stored, _etag_of(stored), None
                continue
            entry, visited = self._read(table, None if stored is not None and stored.displaced else stored, asked)
            changed = replace(self._following(stored, entry), visited=visited)
            if not entry.lacks_a_manifest or entry.problem_location == missed_at:
                return changed
            # The file may have expired after the load. Then newer metadata does not name it.
            missed_at, etag = entry.problem_location, None
        if changed is None:
            raise PassLost(f"other processes keep writing the references of {identifier}")
        return changed

    def _answered(self, known: TableEntry) -> "_Changed":
        stored = self.store.get(known.identifier)
        if stored is None or stored.revision != known.revision:
            raise PassLost(f"another process wrote the references of {known.identifier}")
        read = replace(stored, problem=None, problem_location=None, unanswered=(), unread=None)
        return self._following(stored, read)

    def _read(
        self, table: LoadedTable, stored: TableEntry | None, asked: datetime
    ) -> tuple[TableEntry, Callable[[], object]]:
        """Return a table's entry, and the call to make when it is stored."""
        try:
            files = self.open_store(table)
            if self.visited is None:
                return self.read(table, files, stored), _nothing
            files = ReadOnce(files)
            return self.read(table, files, stored), partial(self.visited, table, files, asked)
        except LASTING as error:
            _raise_retryable(error)
            return outline(table, stored, problem_of(error)), _nothing

    def _not_loaded(self, identifier: TableIdentifier, stored: TableEntry | None, error: DelegationError) -> TableEntry:
        """Return the entry of a table that has no vended credentials or cannot be loaded."""
        if isinstance(error, _NOT_VENDED):
            self.pace()
            try:
                return outline(self.catalog.load_table(identifier, vend=False), stored, problem_of(error))
            except LASTING as again:
                _raise_retryable(again)
        base = stored or TableEntry(identifier, "", "")
        return replace(base, problem=problem_of(error), problem_location=None, etag=None, unanswered=(), unread=None)

    def _following(self, stored: TableEntry | None, entry: TableEntry) -> "_Changed":
        """Return an entry as the successor of the stored one. A continuing problem keeps its first time."""
        before = None if stored is None or stored.problem is None else stored.problem_since
        since = None if entry.problem is None else before or self.clock()
        return _Changed(stored, replace(entry, revision=_revision(stored), problem_since=since, absent=False))


@dataclass(frozen=True, slots=True)
class _Changed:
    """A table's stored entry and its replacement. `visited` is called when the replacement is stored."""

    before: TableEntry | None
    after: TableEntry
    visited: Callable[[], object] = _nothing


def _etag_of(known: TableEntry | None) -> str | None:
    """Return the ETag for a conditional load, None if the entry must be rebuilt."""
    if known is None or known.displaced or known.absent:
        return None
    return known.etag if known.problem is None or known.unanswered else None


def _is_whole(known: TableEntry) -> bool:
    return known.problem is None and not known.displaced and not known.absent


def _revision(entry: TableEntry | None) -> int:
    return 0 if entry is None else entry.revision


def with_displaced(entry: TableEntry, stored: TableEntry | None, displaced: frozenset[str]) -> TableEntry:
    """Return an entry with the areas of tables that had its name before in the same pass. If these are not all areas of
    such a table, its problem stays too."""
    if stored is None or not displaced:
        return entry
    both = replace(entry, areas=fold((*entry.areas, *stored.areas)), displaced=displaced, etag=None, unread=None)
    if entry.problem is not None or stored.problem is None:
        return both
    location, since = stored.problem_location, stored.problem_since
    passes = stored.unanswered
    return replace(both, problem=stored.problem, problem_location=location, problem_since=since, unanswered=passes)


def _with_clone(entry: TableEntry, stored: TableEntry | None, *, cloned: bool) -> TableEntry:
    """Return an entry that states whether areas kept from the stored entry may be a clone's."""
    if stored is None or stored.displaced or stored.table_uuid != entry.table_uuid:
        return entry
    return replace(entry, cloned=cloned or stored.cloned)


def _is_read(known: TableEntry, table: LoadedTable) -> bool:
    return _is_whole(known) and (known.metadata_location, known.table_uuid) == (
        table.metadata_location,
        table.table_uuid,
    )


def _raise_retryable(error: DelegationError) -> None:
    if error.retryable:
        raise error
