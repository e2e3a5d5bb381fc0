"""The files that a table's metadata references, without listing (docs/architecture/purging.md). They are in every
snapshot's manifest list, its manifests and ALL their entries: a DELETED entry may be the last to name a file after an
expiry that kept the files. Statistics, partition statistics and former metadata files are included. Former metadata
files are read for older files and locations, not for snapshots."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from delegation.iceberg.avro.manifests import ManifestFile, mismatch_of, read_manifest_list, read_paths
from delegation.iceberg.errors import EncryptedMetadataFile, ManifestMismatchError, ManifestMissing
from delegation.iceberg.metadata import ParsedMetadata
from delegation.iceberg.paths import CANONICAL, LEFT, RANK, FileType, Row, Spelling, TableFile
from delegation.storage.base import ObjectNotFound, ReadableStore
from delegation.storage.locations import parse
from polaris_common.errors import DelegationError

# By the field `content` (id 134) of a data file (Iceberg Table Spec, Manifests).
_CONTENT_RANK = (RANK[FileType.DATA], RANK[FileType.POSITION_DELETES], RANK[FileType.EQUALITY_DELETES])

_DELETED: Final = 2
"""The status (field id 0) of an entry whose file was removed by its snapshot (Iceberg Table Spec, Manifests)."""
_ENCRYPTED = b"AGS1"  # Iceberg Table Spec, AES GCM Stream

# An object's content, None if it does not exist, or an error that a retry would repeat.
Content = bytes | None | DelegationError
Unreadable = Callable[[str, DelegationError], None]


def refuse(_path: str, error: DelegationError) -> None:
    raise error


def refuse_cut_off(_path: str, error: DelegationError) -> None:
    """Raise the error, unless all entries of its manifest are returned: then no file is missing."""
    if not is_whole_otherwise(error):
        raise error


def is_whole_otherwise(error: DelegationError) -> bool:
    """Return whether a manifest mismatches without being cut off, so that all its files are known."""
    return isinstance(error, ManifestMismatchError) and not error.cut_off


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What happens to unreadable files. `unreadable` is called with the path and the error, and may raise. It is also
    called for a manifest that differs from its list's description, before its contents are returned. With `whole` no
    entry of a manifest is returned before all are decoded; the decodable entries of a damaged manifest get the rank
    LEFT. A path that `spelling` marks is returned but not read."""

    unreadable: Unreadable = refuse
    spelling: Spelling = CANONICAL
    whole: bool = False


STRICT = Tolerance()


class Fetcher:
    """Reads objects ahead of their use, with at most `threads` of them in memory."""

    def __init__(self, store: ReadableStore, *, threads: int, checkpoint: Callable[[], None]) -> None:
        self._store = store
        self._threads = threads
        self.checkpoint = checkpoint

    def fetch(self, paths: Iterable[tuple[str, int]]) -> Iterator[tuple[str, Content]]:
        """Read (path, limit in bytes) pairs; yield (path, content) in order. Raises the store's retryable errors and
        those of `checkpoint`, which is called before each read."""
        if self._threads == 1:
            for path, limit in paths:
                self.checkpoint()
                yield self._read(path, limit)
            return
        with ThreadPoolExecutor(self._threads, thread_name_prefix="read") as pool:
            ahead: deque[Future[tuple[str, Content]]] = deque()
            try:
                for path, limit in paths:
                    self.checkpoint()
                    ahead.append(pool.submit(self._read, path, limit))
                    if len(ahead) >= self._threads:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()

    def _read(self, path: str, limit: int) -> tuple[str, Content]:
        try:
            return path, self._store.read(parse(path), limit=limit)
        except ObjectNotFound:
            return path, None
        except DelegationError as error:
            if error.retryable:
                raise
            return path, error


def content_of(path: str, content: Content) -> bytes:
    """Return a manifest list's or manifest's content. Raises ManifestMissing, EncryptedMetadataFile or its error."""
    if content is None:
        raise ManifestMissing(path)
    if not isinstance(content, bytes):
        raise content
    if content.startswith(_ENCRYPTED):
        raise EncryptedMetadataFile(path)
    return content


def named_by_metadata(metadata: ParsedMetadata, spelling: Spelling = CANONICAL) -> Iterator[TableFile]:
    """Yield the current metadata.json, statistics and partition statistics."""
    yield TableFile(spelling.one(metadata.path), RANK[FileType.ROOT], 0)
    for file in metadata.statistics:
        yield TableFile(spelling.one(file.path), RANK[FileType.STATISTICS], file.size)
    for file in metadata.partition_statistics:
        yield TableFile(spelling.one(file.path), RANK[FileType.PARTITION_STATISTICS], file.size)


@dataclass(slots=True)
class Manifests:
    """The distinct manifests of all snapshots, by path, and the manifest lists."""

    lists: list[TableFile] = field(default_factory=list)
    manifests: dict[str, ManifestFile] = field(default_factory=dict)


class ListsRead:
    """The contents of manifest lists, kept for other tables: clones share most lists, and a list never changes. The
    size is bounded; lists beyond it are read again."""

    _MOST: Final = 100_000

    def __init__(self) -> None:
        self._named: dict[str, list[ManifestFile]] = {}
        self._left = self._MOST

    def note(self, path: str, manifests: list[ManifestFile]) -> None:
        if path not in self._named and len(manifests) <= self._left:
            self._named[path] = manifests
            self._left -= len(manifests) + 1

    def of(self, path: str) -> list[ManifestFile] | None:
        return self._named.get(path)


def read_manifest_lists(
    metadata: ParsedMetadata,
    fetcher: Fetcher,
    *,
    limit: int,
    readable: Callable[[str], bool],
    tolerance: Tolerance = STRICT,
    enough: Callable[["Manifests"], bool] = lambda _found: False,
    read: ListsRead | None = None,
) -> Manifests:
    """Read the manifest lists of all snapshots. Raises the errors that `tolerance` does not accept. Encrypted and
    damaged lists, and those that are not `readable`, are returned unread. `enough` may end the reading after any list.
    Lists in `read` are not read again, and others are added to it."""
    read = read or ListsRead()
    manifests = Manifests()
    rank = RANK[FileType.MANIFEST_LIST]
    lists: dict[str, bool] = {}
    for snapshot in metadata.snapshots:
        if snapshot.manifest_list is not None:
            path = tolerance.spelling.one(snapshot.manifest_list)
            lists[path] = snapshot.encrypted or lists.get(path, False)
    for path in (path for path, encrypted in lists.items() if encrypted and readable(path)):
        tolerance.unreadable(path, EncryptedMetadataFile(path))
    unread = {path for path, encrypted in lists.items() if encrypted or not readable(path)}
    manifests.lists.extend(TableFile(path, rank, 0) for path in lists if path in unread)
    for path in (path for path in lists if path not in unread and read.of(path) is not None):
        manifests.lists.append(TableFile(path, rank, 0))
        for manifest in read.of(path) or ():
            _add(manifests.manifests, manifest, tolerance)
    for path, content in fetcher.fetch((path, limit) for path in lists if path not in unread and read.of(path) is None):
        manifests.lists.append(TableFile(path, rank, len(content) if isinstance(content, bytes) else 0))
        listed = _listed(path, content, tolerance.unreadable)
        if listed is not None:
            read.note(path, listed)
        for manifest in listed or ():
            _add(manifests.manifests, manifest, tolerance)
        if enough(manifests):
            break
    for snapshot in metadata.snapshots:
        for manifest_path in snapshot.manifests:
            _add(manifests.manifests, ManifestFile(manifest_path, None), tolerance)
    return manifests


def _listed(path: str, content: Content, unreadable: Unreadable) -> list[ManifestFile] | None:
    try:
        return list(read_manifest_list(content_of(path, content), path))
    except DelegationError as error:
        unreadable(path, error)
        return None


def _add(manifests: dict[str, ManifestFile], manifest: ManifestFile, tolerance: Tolerance) -> None:
    path = tolerance.spelling.one(manifest.manifest_path)
    known = manifests.get(path)
    # If two lists differ, one is stale. The description with all counts can still be compared.
    if known is None or known.manifest_length is None or (known.entries is None and manifest.entries is not None):
        manifests[path] = manifest


def entries(path: str, data: bytes, spelling: Spelling = CANONICAL, *, live: bool = False) -> Iterator[list[Row]]:
    """Yield the files of a manifest's entries in batches, in order; `live` leaves out DELETED entries. Raises
    CorruptManifestError, EncryptedMetadataFile, AmbiguousPath or UnsupportedLocation, often only at the end: nothing
    may be deleted before the last entry of the last manifest is read."""
    for batch in read_paths(data, path):
        if live:
            batch = [entry for entry in batch if entry[0] != _DELETED]  # noqa: PLW2901 - the rest of it is not needed
        paths = spelling.all([entry[2] for entry in batch])
        yield [
            (file_path, _CONTENT_RANK[content], size)
            for file_path, (_, content, _, size) in zip(paths, batch, strict=True)
        ]


def tolerated_entries(
    path: str, manifest: ManifestFile, content: Content, tolerance: Tolerance, *, live: bool = False
) -> Iterator[list[Row]]:
    """As `entries`. For an unreadable manifest `tolerance` accepts or raises its error."""
    error: DelegationError | None = None
    try:
        data = content_of(path, content)
        error = mismatch_of(manifest, data, path)
        if error is None and tolerance.whole:
            for _ in entries(path, data, tolerance.spelling):
                pass
    except DelegationError as problem:
        error = problem
    if error is not None:
        tolerance.unreadable(path, error)
    if not isinstance(content, bytes):
        return
    try:
        for rows in entries(path, content, tolerance.spelling, live=live):
            is_left = tolerance.whole and error is not None
            yield [(path, rank + LEFT, size) for path, rank, size in rows] if is_left else rows
    except DelegationError as problem:
        if error is None or is_whole_otherwise(error):
            tolerance.unreadable(path, problem)


def all_entries(
    fetcher: Fetcher,
    manifests: dict[str, ManifestFile],
    wanted: Iterable[tuple[str, int]],
    tolerance: Tolerance = STRICT,
    *,
    live: bool = False,
) -> Iterator[Row]:
    """Yield the files of the wanted manifests' entries, unsorted and with duplicates. `live` as for `entries`."""
    for path, content in fetcher.fetch(wanted):
        for rows in tolerated_entries(path, manifests[path], content, tolerance, live=live):
            yield from rows


def manifest_record(path: str, manifest: ManifestFile) -> TableFile:
    return TableFile(path, RANK[FileType.MANIFEST], max(0, manifest.manifest_length or 0))
