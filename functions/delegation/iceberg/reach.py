"""What a table reaches, from its metadata and nothing else (DESIGN §5): no listing, no guess.

metadata.json → every snapshot's manifest list → manifests → the files of ALL entries, DELETED ones included, for
after an expiry that only touched metadata nothing else names those. Beside them statistics, partition statistics and
the superseded metadata files of the metadata log, which are read for what came before them and for former locations;
their snapshots are not followed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from delegation.iceberg.avro.manifests import ManifestFile, read_manifest_list, read_paths, verify
from delegation.iceberg.errors import CorruptManifestError
from delegation.iceberg.files import RANK, FileType, Row, TableFile
from delegation.iceberg.metadata import MAX_METADATA_BYTES, ParsedMetadata, parse_former_metadata
from delegation.storage.base import ObjectNotFound, ObjectStore
from delegation.storage.locations import canonical, canonical_all, parse

# By the `content` of a data file (Iceberg specification, field 134).
_CONTENT_RANK = (RANK[FileType.DATA], RANK[FileType.POSITION_DELETES], RANK[FileType.EQUALITY_DELETES])

_SMALL = 16 * 1024 * 1024


class Fetcher:
    """Reads objects a few ahead of whoever uses them; at most `threads` of them are in memory."""

    def __init__(self, store: ObjectStore, *, threads: int, checkpoint: Callable[[], None]) -> None:
        self._store = store
        self._threads = threads
        self._checkpoint = checkpoint

    def fetch(self, paths: Iterable[tuple[str, int]]) -> Iterator[tuple[str, bytes | None]]:
        """Paths with the most bytes each may have → (path, content) in the same order, None where there is none.

        Raises what the store raises, and what `checkpoint` raises before each read.
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
    """What the metadata log led to: the superseded files, those of another table among them, former locations."""

    files: list[TableFile] = field(default_factory=list)
    foreign: set[str] = field(default_factory=set)
    locations: list[str] = field(default_factory=list)


def read_history(metadata: ParsedMetadata, fetcher: Fetcher, covers: Callable[[str], bool]) -> History:
    """Follow the metadata log as far back as it leads; each file is read once, so cycles end.

    Missing files are expected, uncovered ones are not read. A file of another table (by its uuid) is noted as foreign
    and gives no location: it must not widen what may be deleted. Raises CorruptMetadata.
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
    """The current metadata.json, statistics and partition statistics."""
    yield TableFile(canonical(metadata.path), RANK[FileType.ROOT], 0)
    for one in metadata.statistics:
        yield TableFile(canonical(one.path), RANK[FileType.STATISTICS], one.size)
    for one in metadata.partition_statistics:
        yield TableFile(canonical(one.path), RANK[FileType.PARTITION_STATISTICS], one.size)


@dataclass(slots=True)
class Manifests:
    """The distinct manifests of all snapshots, and the manifest lists that name them."""

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
    """Every snapshot's manifests. `readable` is asked before a list is read (False: passed over, but reached).

    `missing` is told of a list that is not there, and may raise; `enough` may end the reading after any list. Raises
    CorruptManifestError.
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
        raise CorruptManifestError(path, 0, "two manifest lists give it different lengths")


def entries(path: str, manifest: ManifestFile, data: bytes) -> Iterator[list[Row]]:
    """The files of all entries of a manifest, which must have the size and number of entries its list says.

    In lists of some, in the order of the entries.

    Raises CorruptManifestError, ManifestMismatchError, AmbiguousPath and UnsupportedLocation, the second only at the
    end: nothing may be deleted before the last entry of the last manifest is read.
    """
    counted = 0
    verify(manifest, len(data), manifest.entries or 0)
    for batch in read_paths(data, path):
        counted += len(batch)
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
    """The files of all entries of the wanted manifests, in any order and with duplicates."""
    for path, data in fetcher.fetch(wanted):
        if data is None:
            missing(path)
        else:
            for rows in entries(path, manifests[path], data):
                yield from rows


def manifest_record(path: str, manifest: ManifestFile) -> TableFile:
    return TableFile(path, RANK[FileType.MANIFEST], manifest.manifest_length or 0)


def read_limit(manifest: ManifestFile, limit: int) -> int:
    """The most bytes worth reading of a manifest; a few more than its list says are read, to be found a mismatch."""
    return limit if manifest.manifest_length is None else min(limit, max(manifest.manifest_length, _SMALL))
