"""Finds metadata files in a listing, and reads their beginnings and ends within bounds."""

import json
import re
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple

from delegation.iceberg.metadata import parse_former_metadata
from delegation.iceberg.reach import Fetcher
from delegation.polaris.model import comparable_uuid
from delegation.storage.base import FileTooLarge, ObjectNotFound
from delegation.storage.listing.model import ListableStore, ListedObject
from delegation.storage.locations import ObjectLocation, parse
from polaris_common.errors import DelegationError

HEAD: Final = 64 * 1024
"""Bytes of a metadata file that contain its uuid, at the beginning, and its log, at the end as Iceberg writes it."""
LARGEST: Final = 64 * 1024 * 1024
_ENDS: Final = (".metadata.json", ".metadata.json.gz")
HINT: Final = "version-hint.text"
FORMATS: Final = {"_delta_log": "Delta Lake", ".hoodie": "Apache Hudi"}
_MARKS: Final = (_ENDS[0], HINT, *(f"/{name}/" for name in FORMATS))
_TOKEN: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?|[{}\[\]]')
_NAMED: Final = re.compile(r'"metadata-file"\s*:\s*("(?:[^"\\]|\\.)*")')
_LOG_LAST: Final = re.compile(_NAMED.pattern + r'\s*(?:,\s*"timestamp-ms"\s*:\s*\d+\s*)?\}\s*\]\s*\}\s*\Z')
_VERSION_1: Final = re.compile(r'"format-version"\s*:\s*1\b')
_LOG_KEPT: Final = 16
"""Predecessors of a file that are kept: a fork's files name one another, and thousands have a hundred each."""


class SeenFile(NamedTuple):
    """A listed object: canonical path, size in bytes, ETag, seconds since 1970. The path of a folder ends in `/`."""

    path: str
    size: int
    etag: str = ""
    modified: int = 0

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0] + "/"


def signs(bucket_uri: str, location: str, objects: Sequence[ListedObject]) -> list[SeenFile]:
    """Return the metadata files and version hints in a page, and its folders that are roots of other formats.
    `location` is the key prefix of the place, with a trailing slash; only the rest of a key counts."""
    keys = "\n".join([listed.key for listed in objects])
    if not any(mark in keys for mark in _MARKS):
        return []
    signs_by_key: dict[str, SeenFile] = {}
    for key, size, etag, modified in objects:
        below = key.removeprefix(location).split("/")
        depth = next((at for at, part in enumerate(below[:-1]) if part in FORMATS), None)
        if depth is not None:
            folder = f"{bucket_uri}{location}{'/'.join(below[: depth + 1])}/"
            signs_by_key.setdefault(folder, SeenFile(folder, 0))
        elif below[-1].endswith(_ENDS) or below[-1] == HINT:
            signs_by_key[key] = SeenFile(bucket_uri + key, size, etag, modified)
    return list(signs_by_key.values())


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """Bounds of the reads: beginnings of metadata files, files of other tables, and their bytes."""

    heads: int = 20_000
    files: int = 1_000
    size: int = 1024 * 1024 * 1024


class MetadataHead(NamedTuple):
    """The beginning of a metadata file: its uuid, None if unreadable, "" in a file of format version 1 without one.
    `log` is None if unknown."""

    uuid: str | None
    log: tuple[str, ...] | None = None
    gone: bool = False


HeadsRead = dict[tuple[str, str], MetadataHead]
"""What was read of metadata files, by path and ETag."""


class MetadataReads:
    """Reads parts of metadata files, or whole ones as an ObjectStore, within the bounds."""

    def __init__(
        self, store: ListableStore, checkpoint: Callable[[], None], threads: int, bounds: ReadBounds, known: HeadsRead
    ) -> None:
        self._store = store
        self.checkpoint = checkpoint
        self._threads = threads
        self._lock = Lock()
        self._known = known
        self.heads, self.files, self.size = bounds.heads, bounds.files, bounds.size
        self._most_bytes = bounds.size

    def heads_of(self, some: Sequence[SeenFile]) -> list[MetadataHead]:
        self.checkpoint()
        self.heads -= len(some)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="heads") as pool:
            return list(pool.map(self._head, some))

    def text(self, file: SeenFile) -> str:
        return self._store.part(location_of(file), start=0, length=HEAD).decode("utf-8", "replace")

    def fetcher(self) -> Fetcher:
        return Fetcher(self, threads=self._threads, checkpoint=self.checkpoint)

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        """See ObjectStore.read. Raises FileTooLarge beyond the bounds too."""
        with self._lock:
            if self.size <= 0:
                raise FileTooLarge(
                    f"{location.uri} is not read: the metadata files of the tables there that no catalog lists have "
                    f"more than {self._most_bytes:,} bytes together. Register these tables, or move them elsewhere"
                )
        data = self._store.read(location, limit=min(limit, LARGEST))
        with self._lock:
            self.size -= len(data)
        return data

    def _head(self, file: SeenFile) -> MetadataHead:
        name = (file.path, file.etag)
        if name not in self._known:
            try:
                self._known[name] = self._read_head(file)
            except ObjectNotFound:
                return MetadataHead(None, gone=True)
            except DelegationError as error:
                if error.retryable:
                    raise
                return MetadataHead(None)
        return self._known[name]

    def _read_head(self, file: SeenFile) -> MetadataHead:
        data = self._store.part(location_of(file), start=0, length=HEAD)
        head = _inflated(data)
        may_have_none = _VERSION_1.search(head) is not None
        if file.size > HEAD:
            uuid = _uuid_in(head)
            if uuid is not None or not may_have_none:
                return MetadataHead(uuid)
            data = self.read(location_of(file), limit=LARGEST)
        former = parse_former_metadata(file.path, data)
        if former.table_uuid is None:
            return MetadataHead("" if may_have_none else None, former.former[-_LOG_KEPT:])
        return MetadataHead(comparable_uuid(former.table_uuid), former.former[-_LOG_KEPT:])

    def log_of(self, file: SeenFile, head: MetadataHead) -> tuple[str, ...]:
        """Return the predecessors that a file names, at its end if Iceberg wrote it; otherwise all of it is read."""
        if head.log is None:
            end = self._store.part(location_of(file), start=file.size - HEAD, length=HEAD).decode("utf-8", "replace")
            if _LOG_LAST.search(end):
                log = tuple(json.loads(text, strict=False) for text in _NAMED.findall(end))
            else:
                log = parse_former_metadata(file.path, self.read(location_of(file), limit=LARGEST)).former
            head = self._known[file.path, file.etag] = head._replace(log=log[-_LOG_KEPT:])
        return head.log or ()


def location_of(file: SeenFile) -> ObjectLocation:
    return parse(file.path)


def _inflated(data: bytes) -> str:
    """Return the first HEAD bytes of a file, gzip or plain, decompressed from these first bytes."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = zlib.decompressobj(wbits=31).decompress(data, HEAD)
        except zlib.error:
            return ""
    return data.decode("utf-8", "replace")


def _uuid_in(head: str) -> str | None:
    """Return the value of `table-uuid` in the outermost object of a JSON text that may be cut off."""
    depth, name = 0, ""
    for token in _TOKEN.finditer(head):
        if token[1] is None:
            depth += 1 if token[0] in "{[" else -1
        elif depth == 1 and token[2]:
            name = token[1]
        elif depth == 1 and name == "table-uuid":
            return comparable_uuid(token[1])
    return None
