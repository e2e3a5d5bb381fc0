"""Reads what one table references: its areas, from its metadata and from each of its manifests. An unreadable table is
recorded with what can be read, added to what was known before. Manifests never change, so known digests are not read
again. Areas of manifests that a table no longer has stay until its entry is rebuilt; they cost a nearby purge one more
load."""

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.errors import IcebergError
from delegation.iceberg.history import read_history
from delegation.iceberg.metadata import MAX_METADATA_BYTES, ParsedMetadata, decode_metadata, parse_metadata
from delegation.iceberg.paths import ALL_KINDS, Spelling, is_marked
from delegation.iceberg.reach import (
    Fetcher,
    Tolerance,
    is_whole_otherwise,
    named_by_metadata,
    read_manifest_lists,
    tolerated_entries,
)
from delegation.items import reason_of
from delegation.polaris.answers import NoSuchNamespace, NoSuchTable, TableMetadataMissing
from delegation.polaris.model import LoadedTable
from delegation.references.blocking import DIGEST_BYTES
from delegation.references.model import LONGEST_TEXT, MOST_SEEN, MOST_UNREAD, TableEntry, areas_of, directory_of, fold
from delegation.storage.base import ObjectNotFound, ObjectStoreError, ReadableStore
from delegation.storage.locations import ObjectLocation, Roots, parse
from polaris_common.errors import DelegationError

_GONE: Final = (NoSuchTable, NoSuchNamespace, TableMetadataMissing)
"""A table that was dropped or purged while it was read references nothing."""
_FEW_LISTS: Final = 8
"""Reading this many manifest lists is as fast as finding out which ones were read before."""
_FOLD_AT: Final = 4_096
"""Directories outside a table are folded when there are this many, to bound memory."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The concurrency of reads, and the maximum size of one file in bytes."""

    threads: int = 8
    max_file_bytes: int = 256 * 1024 * 1024


class ReadOnce:
    """A table's files during one visit. Each is read once, as metadata never changes, while `most` bytes hold them.
    Other files are read again, so that many concurrent visits need little memory."""

    def __init__(self, store: ReadableStore, most: int = 8 * 1024 * 1024) -> None:
        self._store = store
        self._read: dict[ObjectLocation, bytes] = {}
        self._left = most
        self._lock = Lock()

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        content = self._read.get(location)
        if content is None or len(content) > limit:
            content = self._store.read(location, limit=limit)
            with self._lock:
                if location not in self._read and len(content) <= self._left:
                    self._read[location] = content
                    self._left -= len(content)
        return content


def read_references(
    table: LoadedTable,
    store: ReadableStore,
    known: TableEntry | None,
    *,
    limits: ReadLimits = ReadLimits(),
    checkpoint: Callable[[], None] = lambda: None,
) -> TableEntry:
    """Return a table's entry from its current metadata. Only manifests that `known` has not seen are read. The entry's
    problem is the first permanent error; everything else is still read. Raises CorruptMetadata, GuardRefused
    (UNSUPPORTED_FORMAT_VERSION), NoSuchTable, NoSuchNamespace, TableMetadataMissing, the store's retryable errors, and
    what `checkpoint` raises before each read and each batch of entries."""
    metadata = parse_metadata(table.metadata_location, table.metadata, experimental=True)
    known = known_of(known, metadata.table_uuid)
    problems = _Problems()
    tolerance = Tolerance(problems.note, Spelling(ALL_KINDS, problems.note))
    fetcher = Fetcher(store, threads=limits.threads, checkpoint=checkpoint)
    outside = _Outside(_usable(metadata.locations))
    former = _lists_read_before(metadata, known, store)
    reached = read_manifest_lists(
        metadata,
        fetcher,
        limit=limits.max_file_bytes,
        readable=lambda path: not is_marked(path) and path not in former,
        tolerance=tolerance,
    )
    history = read_history(metadata, fetcher, lambda _path: False, tolerance)
    named = [*named_by_metadata(metadata, tolerance.spelling), *history.files, *reached.lists]
    outside.add(file.path for file in named)
    outside.add(reached.manifests)
    digests = {path: digest(path) for path in reached.manifests if not is_marked(path)}
    seen = frozenset() if known is None else known.seen
    unread = [path for path, mark in digests.items() if mark not in seen]
    wanted = [(path, limits.max_file_bytes) for path in unread]
    for path, content in fetcher.fetch(wanted):
        before = problems.count
        for rows in tolerated_entries(path, reached.manifests[path], content, tolerance):
            checkpoint()
            outside.add(row[0] for row in rows)
        if problems.count > before:
            del digests[path]
    areas = (*areas_of(metadata.locations, ()), *outside.areas)
    # Skipped lists name manifests already read. The newest list names all old manifests that the next list may name.
    now = frozenset(digests.values())
    all_seen = now | seen if former and len(now | seen) <= MOST_SEEN else now
    entry = entry_of(table, known, areas=areas, seen=all_seen, problem=problems.first)
    return replace(entry, unread=frozenset(problems.unread) or None)


def _lists_read_before(metadata: ParsedMetadata, known: TableEntry | None, store: ReadableStore) -> frozenset[str]:
    """Return the manifest lists of the last read, which contain nothing new; none if they are few. Reading the metadata
    file of that time costs one read instead of one per snapshot. For an unreadable table all lists are read, because
    any may have the missing part."""
    if (
        known is None
        or known.problem is not None
        or known.metadata_location in {"", metadata.path}
        or len(metadata.snapshots) <= _FEW_LISTS
    ):
        return frozenset()
    try:
        content = store.read(parse(known.metadata_location), limit=MAX_METADATA_BYTES)
        document = decode_metadata(known.metadata_location, content)
        former = parse_metadata(known.metadata_location, document, experimental=True)
    except (ObjectNotFound, IcebergError, GuardRefused, ObjectStoreError) as error:
        if error.retryable:
            raise
        return frozenset()
    if former.table_uuid != metadata.table_uuid:
        return frozenset()
    spelling = Spelling(ALL_KINDS)
    lists = (
        snapshot.manifest_list
        for snapshot in former.snapshots
        if snapshot.manifest_list is not None and not snapshot.encrypted
    )
    return frozenset(map(spelling.one, lists))


def outline(table: LoadedTable, known: TableEntry | None, problem: str) -> TableEntry:
    """Return the entry of a table of which only some metadata is known, because of `problem`."""
    known = known_of(known, table.table_uuid)
    areas = areas_of([table.location], ())
    with suppress(IcebergError, GuardRefused):
        metadata = parse_metadata(table.metadata_location, table.metadata, experimental=True)
        areas = areas_of(metadata.locations, ())
        spelling = Spelling(ALL_KINDS)
        lists = (snapshot.manifest_list for snapshot in metadata.snapshots if snapshot.manifest_list is not None)
        named = [*(file.path for file in named_by_metadata(metadata, spelling)), *map(spelling.one, lists)]
        areas = (*areas, *(directory_of(path) for path in named if not is_marked(path)))
    seen = frozenset() if known is None else known.seen
    return entry_of(table, known, areas=areas, seen=seen, problem=problem)


def entry_of(
    table: LoadedTable, known: TableEntry | None, *, areas: Iterable[str], seen: frozenset[bytes], problem: str | None
) -> TableEntry:
    """Return the entry of a table as read now. With a problem it keeps what was read completely before."""
    former = () if known is None else known.areas
    read = "" if known is None else known.metadata_location
    return TableEntry(
        identifier=table.identifier,
        table_uuid=table.table_uuid,
        metadata_location=table.metadata_location if problem is None else read,
        areas=fold((*former, *areas)),
        etag=table.etag if problem is None else None,
        seen=seen,
        problem=problem,
        problem_location=None if problem is None else table.metadata_location,
    )


def known_of(known: TableEntry | None, table_uuid: str) -> TableEntry | None:
    """Return what is known of the table with this uuid. Another table may have taken its name."""
    return known if known is not None and known.table_uuid in {"", table_uuid} else None


class _Problems:
    """Collects what cannot be read of a table, with the first reason."""

    def __init__(self) -> None:
        self.count = 0
        self.unread: set[bytes] = set()
        self.first: str | None = None

    def note(self, path: str, error: DelegationError) -> None:
        if error.retryable or isinstance(error, _GONE):
            raise error
        if is_whole_otherwise(error):
            # All files that it names are read.
            return
        self.count += 1
        if len(self.unread) <= MOST_UNREAD:  # one more means that the entry lists none
            self.unread.add(digest(path))
        self.first = self.first or problem_of(error)


def problem_of(error: Exception) -> str:
    """Return an error in the bounded form that entries record and `recorded_problem` reads."""
    return f"{error.code}: {error}"[:LONGEST_TEXT] if isinstance(error, DelegationError) else reason_of(error)


class _Outside:
    """Directories of referenced files outside a table's locations, folded if there are many."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._folded: tuple[str, ...] = ()
        self.areas: set[str] = set()

    def add(self, paths: Iterable[str]) -> None:
        """Add the directories of canonical paths. Paths that name no object have no directory."""
        for path in paths:
            if not (self._roots.contains(path) or is_marked(path) or path.startswith(self._folded)):
                self.areas.add(directory_of(path))
        if len(self.areas) > _FOLD_AT:
            self._folded = fold(self.areas)
            self.areas = set(self._folded)


def digest(path: str) -> bytes:
    """Return a short digest of a manifest's path. Two of 20,000 paths are equal in one of 10¹¹ tables."""
    return hashlib.blake2b(path.encode(), digest_size=DIGEST_BYTES).digest()


def _usable(locations: Iterable[str]) -> Roots:
    usable = []
    for location in locations:
        try:
            Roots([location])
        except GuardRefused:
            continue
        usable.append(location)
    return Roots(usable)
