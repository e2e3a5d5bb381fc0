"""Table metadata as a purge needs it (Iceberg Table Spec, Table Metadata Fields, versions 1 to 3). Fields that name a
file or location are checked strictly, all others ignored."""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from delegation.errors import GuardRefused
from delegation.iceberg.errors import WHOLE_FILE, CorruptMetadata
from delegation.polaris.model import LARGE, properties_of, read_document, read_large, with_uuid

FORMAT_VERSIONS = frozenset({1, 2, 3})
# Enough for millions of snapshots. A larger file is refused as hostile.
MAX_METADATA_BYTES = 512 * 1024 * 1024

# Where a table writes (Iceberg documentation, Configuration; the last two are the names before version 0.14).
WRITE_LOCATIONS = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
PROTECTED = "delegation.protected"
"""The property by which a table's owner forbids the deletion of its files."""
TABLE_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot with its manifest list, maybe `encrypted`, or in version 1 its inline manifests."""

    snapshot_id: int
    manifest_list: str | None
    manifests: tuple[str, ...] = ()
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class SizedFile:
    """A file named in the metadata, with its size in bytes, 0 if not recorded. `snapshot_id` is None if not stated."""

    path: str
    size: int
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedMetadata:
    """The contents of a metadata.json: files, former metadata files, and the table's locations."""

    path: str
    table_uuid: str
    format_version: int
    location: str
    last_updated_ms: int
    properties: Mapping[str, str]
    snapshots: tuple[Snapshot, ...]
    former: tuple[str, ...]
    statistics: tuple[SizedFile, ...]
    partition_statistics: tuple[SizedFile, ...]

    @property
    def gc_enabled(self) -> bool:
        """The property `gc.enabled`, true by default (Iceberg documentation, Configuration). Any text but "true", in
        any case, is false, as in Iceberg's `PropertyUtil.propertyAsBoolean`."""
        return self.properties.get("gc.enabled", "true").lower() == "true"

    @property
    def locations(self) -> tuple[str, ...]:
        """The table's location and the paths in its write properties."""
        return _locations(self.location, self.properties)

    def of_snapshots(self, wanted: Callable[[int], bool]) -> "ParsedMetadata":
        """Return the metadata with only the wanted snapshots, their statistics, and statistics without a snapshot."""
        return replace(
            self,
            snapshots=tuple(snapshot for snapshot in self.snapshots if wanted(snapshot.snapshot_id)),
            statistics=_of(self.statistics, wanted),
            partition_statistics=_of(self.partition_statistics, wanted),
        )


def _of(files: tuple[SizedFile, ...], wanted: Callable[[int], bool]) -> tuple[SizedFile, ...]:
    return tuple(file for file in files if file.snapshot_id is None or wanted(file.snapshot_id))


def parse_metadata(path: str, metadata: Mapping[str, Any], *, experimental: bool = False) -> ParsedMetadata:
    """Read the parsed current metadata. `experimental` accepts format versions beyond 3. Raises CorruptMetadata or
    GuardRefused (UNSUPPORTED_FORMAT_VERSION)."""
    fields = _Fields(path, metadata)
    version = fields.integer("format-version")
    if version not in FORMAT_VERSIONS and not (experimental and version > max(FORMAT_VERSIONS)):
        raise GuardRefused(
            f"Iceberg format version {version} is not supported; versions 1 to 3 are", code="UNSUPPORTED_FORMAT_VERSION"
        )
    fields = _Fields(path, with_uuid(metadata, "", path))
    table_uuid = fields.text("table-uuid").lower()
    if not TABLE_UUID.fullmatch(table_uuid):
        raise CorruptMetadata(path, "table-uuid", "it is not a UUID")
    return ParsedMetadata(
        path=path,
        table_uuid=table_uuid,
        format_version=version,
        location=fields.text("location"),
        last_updated_ms=fields.integer("last-updated-ms"),
        properties=fields.properties(),
        snapshots=tuple(_snapshot(snapshot) for snapshot in fields.objects("snapshots")),
        former=tuple(entry.text("metadata-file") for entry in fields.objects("metadata-log")),
        statistics=tuple(_sized(entry) for entry in fields.objects("statistics")),
        partition_statistics=tuple(_sized(entry) for entry in fields.objects("partition-statistics")),
    )


@dataclass(frozen=True, slots=True)
class FormerMetadata:
    """The contents of a former metadata file: its table, locations, earlier metadata files, and statistics."""

    table_uuid: str | None
    locations: tuple[str, ...]
    former: tuple[str, ...]
    statistics: tuple[SizedFile, ...] = ()
    partition_statistics: tuple[SizedFile, ...] = ()


def parse_former_metadata(path: str, data: bytes) -> FormerMetadata:
    """Read a former metadata file, gzip or plain; in version 1 table-uuid may be missing. Raises CorruptMetadata."""
    fields = _Fields(path, decode_metadata(path, data))
    table_uuid = fields.source.get("table-uuid")
    return FormerMetadata(
        table_uuid=None if table_uuid is None else fields.text("table-uuid").lower(),
        locations=_locations(fields.text("location"), fields.properties()),
        former=tuple(entry.text("metadata-file") for entry in fields.objects("metadata-log")),
        statistics=_readable(fields, "statistics"),
        partition_statistics=_readable(fields, "partition-statistics"),
    )


def _readable(fields: "_Fields", name: str) -> tuple[SizedFile, ...]:
    """Return the well-formed statistics; others are skipped, as no reader needs those of a former file."""
    readable: list[SizedFile] = []
    with suppress(CorruptMetadata):
        for statistics in fields.objects(name):
            with suppress(CorruptMetadata):
                readable.append(_sized(statistics))
    return tuple(readable)


def _locations(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    return (location, *(properties[name] for name in WRITE_LOCATIONS if properties.get(name)))


def decode_metadata(path: str, data: bytes) -> Mapping[str, Any]:
    """Return a metadata file's JSON object, plain or gzip (detected by its first bytes). Of a large file only the
    needed fields are returned. Raises CorruptMetadata, also if it decompresses to more than MAX_METADATA_BYTES."""
    try:
        parsed = _read_inflated(path, data) if data[:2] == b"\x1f\x8b" else read_document(data)
    except (ValueError, RecursionError) as error:
        raise CorruptMetadata(path, WHOLE_FILE, "it is not JSON") from error
    if not isinstance(parsed, dict):
        raise CorruptMetadata(path, WHOLE_FILE, "it is not a JSON object")
    return parsed


def _read_inflated(path: str, data: bytes) -> Any:
    pieces = _inflate(path, data)
    begin = next(pieces, b"")
    if len(begin) < LARGE or json.detect_encoding(begin[:4]) != "utf-8":
        return json.loads(b"".join([begin, *pieces]))
    return read_large(chain([begin], pieces))


def _inflate(path: str, data: bytes) -> Iterator[bytes]:
    """Yield a gzip file's contents, LARGE bytes at a time."""
    inflater = zlib.decompressobj(wbits=31)
    size = 0
    while not inflater.eof:
        try:
            piece = inflater.decompress(data, LARGE)
        except zlib.error as error:
            raise CorruptMetadata(path, WHOLE_FILE, "its gzip stream is corrupt") from error
        size, data = size + len(piece), inflater.unconsumed_tail
        if size > MAX_METADATA_BYTES:
            raise CorruptMetadata(path, WHOLE_FILE, "it is too large when decompressed")
        if not piece and not inflater.eof:
            raise CorruptMetadata(path, WHOLE_FILE, "its gzip stream is cut off")
        yield piece


def _snapshot(fields: "_Fields") -> Snapshot:
    snapshot_id = fields.integer("snapshot-id")
    if fields.source.get("manifest-list") is not None:
        # `key-id` names the key that encrypts the list's own key (Iceberg Table Spec, Snapshots, version 3).
        return Snapshot(snapshot_id, fields.text("manifest-list"), encrypted=fields.source.get("key-id") is not None)
    manifests = fields.source.get("manifests")
    if not isinstance(manifests, list) or not all(isinstance(path, str) and path for path in manifests):
        raise CorruptMetadata(fields.path, f"snapshot {snapshot_id}", "it has neither manifest-list nor manifests")
    return Snapshot(snapshot_id, None, tuple(manifests))


def _sized(fields: "_Fields") -> SizedFile:
    # No decision depends on the size.
    size = fields.source.get("file-size-in-bytes")
    size = max(0, size) if type(size) is int else 0
    snapshot_id = fields.integer("snapshot-id") if "snapshot-id" in fields.source else None
    return SizedFile(fields.text("statistics-path"), size, snapshot_id)


@dataclass(frozen=True, slots=True)
class _Fields:
    """Typed access to a JSON object. Errors name the file and the field."""

    path: str
    source: Mapping[str, Any]

    def text(self, name: str) -> str:
        value = self.source.get(name)
        if not isinstance(value, str) or not value:
            raise CorruptMetadata(self.path, name, "it is missing or not a string")
        return value

    def integer(self, name: str) -> int:
        value = self.source.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise CorruptMetadata(self.path, name, "it is missing or not an integer")
        return value

    def properties(self) -> Mapping[str, str]:
        value = self.source.get("properties")
        if value is not None and not isinstance(value, dict):
            raise CorruptMetadata(self.path, "properties", "it is not a map of strings")
        return properties_of(self.source)

    def objects(self, name: str) -> "list[_Fields]":
        value = self.source.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise CorruptMetadata(self.path, name, "it is not a list of objects")
        return [_Fields(self.path, item) for item in value]
