"""Bringing one table's entry up to date: load it on a condition, read what changed, record what cannot be read."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

from delegation.errors import DelegationError, GuardRefused
from delegation.iceberg.errors import IcebergError
from delegation.identifiers import TableIdentifier
from delegation.polaris.errors import (
    CredentialVendingFailed,
    NoSuchNamespace,
    NoSuchTable,
    PolarisForbidden,
    PolarisUnexpectedAnswer,
    TableMetadataMissing,
)
from delegation.polaris.model import LoadedTable
from delegation.references.blocking import Subject
from delegation.references.model import TableEntry
from delegation.references.reading import outline, problem_of
from delegation.references.store import ReferenceStore
from delegation.storage.base import ObjectStoreError

LOADS: Final = 3
"""Of a table whose manifests disappear while they are read, because it is written to and its snapshots expire."""
ABSENT: Final = (NoSuchTable, NoSuchNamespace, TableMetadataMissing)
LASTING: Final = (
    PolarisForbidden,
    PolarisUnexpectedAnswer,
    CredentialVendingFailed,
    ObjectStoreError,
    IcebergError,
    GuardRefused,
)
"""Errors that another try would meet again unless they are retryable, so that the entry records them."""
_NOT_VENDED: Final = (PolarisForbidden, CredentialVendingFailed)

ReadTable = Callable[[LoadedTable, TableEntry | None], TableEntry]
"""Reads what a table loaded with vended credentials references; see `read_references`."""


class VisitedCatalog(Protocol):
    """As much of a catalog as a visit needs; PolarisClient is one and says what each method raises."""

    def load_if_changed(self, identifier: TableIdentifier, etag: str | None) -> LoadedTable | None: ...

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable: ...


@dataclass(frozen=True, slots=True)
class Visitor:
    """Visits tables for the index of their catalog; `pace` returns when the next request to the catalog may go."""

    store: ReferenceStore
    catalog: VisitedCatalog
    read: ReadTable
    clock: Callable[[], datetime]
    pace: Callable[[], None]

    def visit(self, identifier: TableIdentifier, known: TableEntry | None) -> bool:
        """Bring one table's entry up to date; return False if there is no such table.

        A table that cannot be read keeps the areas that it had, and gets those of what can be read. Raises PassLost and
        the retryable errors of the catalog and of the stores.
        """
        try:
            entry = self._changed(identifier, known)
        except ABSENT:
            return False
        if entry is not None:
            self.store.put(entry)
            if entry.problem is None and known is not None and known.problem is not None:
                # An exemption ends when the table can be read; what cannot be read later is another decision.
                self.store.remove_exemption(Subject.of(identifier))
        return True

    def _changed(self, identifier: TableIdentifier, known: TableEntry | None) -> TableEntry | None:
        """Return the table's entry as it is to be stored, None if the known one is as new."""
        etag = known.etag if known is not None and known.problem is None else None
        missed_at = known.problem_location if known is not None and known.lacks_a_manifest else None
        stored, entry = known, known
        for _ in range(LOADS):
            self.pace()
            try:
                table = self.catalog.load_if_changed(identifier, etag)
            except LASTING as error:
                _raise_retryable(error)
                stored = self.store.get(identifier)
                entry = self._not_loaded(identifier, stored, error)
                break
            if table is None or (known is not None and _is_read(known, table)):
                return None
            stored = self.store.get(identifier)
            entry = self._read(table, stored)
            if not entry.lacks_a_manifest or entry.problem_location == missed_at:
                break
            # It may have expired after the load: then the table has newer metadata, which does not name it.
            missed_at, etag = entry.problem_location, None
        return None if entry is None else self._following(stored, entry)

    def _read(self, table: LoadedTable, stored: TableEntry | None) -> TableEntry:
        try:
            return self.read(table, stored)
        except LASTING as error:
            _raise_retryable(error)
            return outline(table, stored, problem_of(error))

    def _not_loaded(self, identifier: TableIdentifier, stored: TableEntry | None, error: DelegationError) -> TableEntry:
        """Return the entry of a table for which no credentials are vended, or that cannot be loaded at all."""
        if isinstance(error, _NOT_VENDED):
            self.pace()
            try:
                return outline(self.catalog.load_table(identifier, vend=False), stored, problem_of(error))
            except LASTING as again:
                _raise_retryable(again)
        base = stored or TableEntry(identifier, "", "")
        return replace(base, problem=problem_of(error), problem_location=None, etag=None)

    def _following(self, stored: TableEntry | None, entry: TableEntry) -> TableEntry:
        """Return an entry as the next one after the stored one; a problem has lasted since it was met first."""
        before = None if stored is None or stored.problem is None else stored.problem_since
        since = None if entry.problem is None else before or self.clock()
        return replace(entry, revision=0 if stored is None else stored.revision, problem_since=since)


def _is_read(known: TableEntry, table: LoadedTable) -> bool:
    return known.problem is None and known.metadata_location == table.metadata_location


def _raise_retryable(error: DelegationError) -> None:
    if error.retryable:
        raise error
