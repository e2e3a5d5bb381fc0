from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from threading import Lock
from typing import Protocol

from delegation.identifiers import TableIdentifier
from delegation.references.areas import EVERYWHERE, fold, overlap
from delegation.references.blocking.model import BlockingStore, MemoryBlocking
from delegation.references.errors import PassLost
from delegation.references.lost import LostRefsStore, MemoryLostRefs
from delegation.references.model import CatalogPass, TableEntry


class ReferenceStore(BlockingStore, LostRefsStore, Protocol):
    """Entries by catalog and table, found again by area, and one CatalogPass for each catalog. Every method raises
    ReferencesUnavailable; writes may be repeated after any error."""

    def entries(self, catalog: str) -> Iterator[TableEntry]:
        """Yield all entries of a catalog, without manifest digests, in any order."""
        ...

    def get(self, identifier: TableIdentifier) -> TableEntry | None: ...

    def clones(self, catalog: str, table_uuid: str) -> frozenset[TableIdentifier]:
        """Return the tables whose entries have a uuid, several for clones. Reads every entry of the catalog."""
        ...

    def put(self, entry: TableEntry) -> None:
        """Replace a table's entry, bounded, by the next revision, if the stored one has the entry's revision.
        Meanwhile, and after a crash, the table is found by old and new areas. Raises PassLost otherwise: a paused
        process must not hide what another found since."""
        ...

    def remove(self, entry: TableEntry) -> None:
        """Remove a table's entry if it still has this revision; otherwise do nothing."""
        ...

    def overlapping(self, catalog: str, areas: Sequence[str]) -> frozenset[TableIdentifier]:
        """Return the tables with an area at, below or above one of these, and all with EVERYWHERE."""
        ...

    def unreadable(self, catalog: str) -> list[TableEntry]:
        """Return the entries with a problem, without etags, areas and digests."""
        ...

    def pass_of(self, catalog: str) -> CatalogPass:
        """Return the state of the catalog's refreshes, an empty one before the first."""
        ...

    def write_pass(self, before: CatalogPass, after: CatalogPass) -> CatalogPass:
        """Replace the state if it is still `before`, atomically; return the stored one. Raises PassLost if another
        process wrote meanwhile."""
        ...


class MemoryReferenceStore(MemoryBlocking, MemoryLostRefs):
    """ReferenceStore in memory, atomic under threads."""

    def __init__(self) -> None:
        MemoryBlocking.__init__(self)
        MemoryLostRefs.__init__(self)
        self._entries: dict[TableIdentifier, TableEntry] = {}
        self._passes: dict[str, CatalogPass] = {}
        self._lock = Lock()

    def entries(self, catalog: str) -> Iterator[TableEntry]:
        return iter([replace(entry, seen=frozenset()) for entry in self._of(catalog)])

    def get(self, identifier: TableIdentifier) -> TableEntry | None:
        with self._lock:
            return self._entries.get(identifier)

    def clones(self, catalog: str, table_uuid: str) -> frozenset[TableIdentifier]:
        return frozenset(one.identifier for one in self._of(catalog) if one.table_uuid == table_uuid)

    def put(self, entry: TableEntry) -> None:
        with self._lock:
            if self._revision(entry.identifier) != entry.revision:
                raise PassLost(f"another process wrote the references of {entry.identifier}")
            self._entries[entry.identifier] = replace(entry.bounded(), revision=entry.revision + 1)

    def remove(self, entry: TableEntry) -> None:
        with self._lock:
            if self._revision(entry.identifier) == entry.revision:
                self._entries.pop(entry.identifier, None)

    def overlapping(self, catalog: str, areas: Sequence[str]) -> frozenset[TableIdentifier]:
        asked = [one for area in areas for one in fold([area])]
        return frozenset(entry.identifier for entry in self._of(catalog) if _any_overlap(entry.areas, asked))

    def unreadable(self, catalog: str) -> list[TableEntry]:
        found = (entry for entry in self._of(catalog) if entry.problem is not None)
        return [replace(entry, areas=(), etag=None, seen=frozenset()) for entry in found]

    def pass_of(self, catalog: str) -> CatalogPass:
        with self._lock:
            return self._passes.get(catalog, CatalogPass(catalog))

    def write_pass(self, before: CatalogPass, after: CatalogPass) -> CatalogPass:
        with self._lock:
            stored = self._passes.get(before.catalog, CatalogPass(before.catalog))
            if stored.revision != before.revision:
                raise PassLost(f"another process refreshes the references of catalog {before.catalog}")
            written = replace(after, revision=before.revision + 1)
            self._passes[before.catalog] = written
            return written

    def _revision(self, identifier: TableIdentifier) -> int:
        stored = self._entries.get(identifier)
        return 0 if stored is None else stored.revision

    def _of(self, catalog: str) -> list[TableEntry]:
        with self._lock:
            return [entry for entry in self._entries.values() if entry.identifier.catalog == catalog]


def _any_overlap(mine: Iterable[str], theirs: Sequence[str]) -> bool:
    return any(one == EVERYWHERE or any(overlap(one, other) for other in theirs) for one in mine)
