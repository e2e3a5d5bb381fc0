"""The files that a table reaches according to its metadata, without listing (docs/architecture.md, Purging).

They are found through every snapshot's manifest list, its manifests and ALL their entries: an entry with status
DELETED may be the last to name a file after an expiry that kept the files. Statistics, partition statistics and former
metadata files belong to them too; the latter are read for older ones and for former locations, not for snapshots.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from delegation.iceberg.avro.manifests import ManifestFile, read_manifest_list, read_paths, verify
from delegation.iceberg.errors import CorruptManifestError, ManifestMismatchError
from delegation.iceberg.files import RANK, FileType, Row, TableFile
from delegation.iceberg.metadata import MAX_METADATA_BYTES, ParsedMetadata, parse_former_metadata
from delegation.storage.base import ObjectNotFound, ObjectStore
from delegation.storage.locations import canonical, canonical_all, parse

# By the field `content` (134) of a data file (Iceberg Table Spec, Manifests).
_CONTENT_RANK = (RANK[FileType.DATA], RANK[FileType.POSITION_DELETES], RANK[FileType.EQUALITY_DELETES])

_MIN_LIMIT = 16 * 1024 * 1024


class Fetcher:
    """Reads objects ahead of their use; at most `threads` of them are in memory."""

    def __init__(self, store: ObjectStore, *, threads: int, checkpoint: Callable[[], None]) -> None:
        self._store = store
        self._threads = threads
        self._checkpoint = checkpoint

    def fetch(self, paths: Iterable[tuple[str, int]]) -> Iterator[tuple[str, bytes | None]]:
        """Read (path, limit in bytes) pairs; yield (path, content) in their order, with None for a missing object.

        Raises the store's errors and those of `checkpoint`, which is called before each read.
        """
        with ThreadPoolExecutor(self._threads, thread_name_prefix="read") as pool:
            ahead: deque[Future[tuple[str, bytes | None]]] = deque()
            try:
                for path, limit in paths:
                    self._checkpoint()
                    ahead.append(pool.submit(self._read, path, limit))
                    if len(ahead) >= self._threads:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()

    def _read(self, path: str, limit: int) -> tuple[str, bytes | None]:
        try:
            return path, self._store.read(parse(path), limit=limit)
        except ObjectNotFound:
            return path, None


@dataclass(slots=True)
class History:
    """The former metadata files, those of them that are of another table (`foreign`), and former locations."""

    files: list[TableFile] = field(default_factory=list)
    foreign: set[str] = field(default_factory=set)
    locations: list[str] = field(default_factory=list)


def read_history(metadata: ParsedMetadata, fetcher: Fetcher, covers: Callable[[str], bool]) -> History:
    """Follow the metadata log back to its oldest file; each file is read once, so cycles end. Raises CorruptMetadata.

    Files may be missing, and files that the credentials do not cover are not read. The locations of a file with
    another table's uuid are ignored: they must not extend what may be deleted.
    """
    history = History()
    rank = RANK[FileType.FORMER_METADATA]
    seen = {canonical(metadata.path)}
    level = _unseen(metadata.former, seen)
    while level:
        further: list[str] = []
        readable = [path for path in level if covers(path)]
        history.files.extend(TableFile(path, rank, 0) for path in level if not covers(path))
        for path, data in fetcher.fetch((path, MAX_METADATA_BYTES) for path in readable):
            if data is None:
                history.files.append(TableFile(path, rank, 0))
                continue
            former = parse_former_metadata(path, data)
            history.files.append(TableFile(path, rank, len(data)))
            if former.table_uuid not in (None, metadata.table_uuid):
                history.foreign.add(path)
                continue
            history.locations.extend(former.locations)
            further.extend(former.former)
        level = _unseen(further, seen)
    return history


def _unseen(paths: Iterable[str], seen: set[str]) -> list[str]:
    fresh = []
    for path in map(canonical, paths):
        if path not in seen:
            seen.add(path)
            fresh.append(path)
    return fresh


def named_by_metadata(metadata: ParsedMetadata) -> Iterator[TableFile]:
    """Yield the current metadata.json, statistics and partition statistics."""
    yield TableFile(canonical(metadata.path), RANK[FileType.ROOT], 0)
    for one in metadata.statistics:
        yield TableFile(canonical(one.path), RANK[FileType.STATISTICS], one.size)
    for one in metadata.partition_statistics:
        yield TableFile(canonical(one.path), RANK[FileType.PARTITION_STATISTICS], one.size)


@dataclass(slots=True)
class Manifests:
    """The distinct manifests of all snapshots, by path, and the manifest lists that name them."""

    lists: list[TableFile] = field(default_factory=list)
    manifests: dict[str, ManifestFile] = field(default_factory=dict)


def read_manifest_lists(
    metadata: ParsedMetadata,
    fetcher: Fetcher,
    *,
    limit: int,
    readable: Callable[[str], bool],
    missing: Callable[[str], None],
    enough: Callable[["Manifests"], bool] = lambda _found: False,
) -> Manifests:
    """Read the manifest lists of all snapshots. Raises CorruptManifestError.

    Lists that are not `readable` are returned without being read. `missing` is called for each missing list and may
    raise; `enough` may end the reading after any list.
    """
    found = Manifests()
    rank = RANK[FileType.MANIFEST_LIST]
    lists = {canonical(one.manifest_list): None for one in metadata.snapshots if one.manifest_list is not None}
    found.lists.extend(TableFile(path, rank, 0) for path in lists if not readable(path))
    for path, data in fetcher.fetch((path, limit) for path in lists if readable(path)):
        if data is None:
            missing(path)
            found.lists.append(TableFile(path, rank, 0))
            continue
        found.lists.append(TableFile(path, rank, len(data)))
        for manifest in read_manifest_list(data, path):
            _add(found.manifests, manifest)
        if enough(found):
            break
    for snapshot in metadata.snapshots:
        for manifest_path in snapshot.manifests:
            _add(found.manifests, ManifestFile(manifest_path, None))
    return found


def _add(manifests: dict[str, ManifestFile], manifest: ManifestFile) -> None:
    path = canonical(manifest.manifest_path)
    known = manifests.get(path)
    if known is None or known.manifest_length is None:
        manifests[path] = manifest
    elif manifest.manifest_length not in (None, known.manifest_length):
        raise CorruptManifestError(path, 0, "two manifest lists record different lengths for it")


def entries(path: str, manifest: ManifestFile, data: bytes) -> Iterator[list[Row]]:
    """Yield the files of all entries of a manifest in batches, in order, and compare it with its manifest list.

    Raises CorruptManifestError, ManifestMismatchError, AmbiguousPath or UnsupportedLocation, the second often only at
    the end: nothing may be deleted before the last entry of the last manifest is read. No entry beyond the list's
    count is returned, and reading stops there: a small hostile manifest may hold millions.
    """
    counted = 0
    most = manifest.entries
    verify(manifest, len(data), most or 0)
    for batch in read_paths(data, path):
        counted += len(batch)
        if most is not None and counted > most:
            raise ManifestMismatchError(path, "entries or more", most, counted)
        paths = canonical_all([entry[2] for entry in batch])
        yield [
            (file_path, _CONTENT_RANK[content], size)
            for file_path, (_, content, _, size) in zip(paths, batch, strict=True)
        ]
    verify(manifest, len(data), counted)


def all_entries(
    fetcher: Fetcher,
    manifests: dict[str, ManifestFile],
    wanted: Iterable[tuple[str, int]],
    missing: Callable[[str], None],
) -> Iterator[Row]:
    """Yield the files of all entries of the wanted manifests, unsorted and with duplicates."""
    for path, data in fetcher.fetch(wanted):
        if data is None:
            missing(path)
        else:
            for rows in entries(path, manifests[path], data):
                yield from rows


def manifest_record(path: str, manifest: ManifestFile) -> TableFile:
    return TableFile(path, RANK[FileType.MANIFEST], manifest.manifest_length or 0)


def read_limit(manifest: ManifestFile, limit: int) -> int:
    """Return the most bytes to read of a manifest; a small one may exceed its listed length, to be found a mismatch."""
    return limit if manifest.manifest_length is None else min(limit, max(manifest.manifest_length, _MIN_LIMIT))
