"""Table metadata, as far as a purge needs it (Iceberg table specification, "Table Metadata Fields", versions 1 to 3).

Only what names a file or a location is read, strictly: a purge must not guess. Everything else is passed over, so
that a newer writer's extra fields do no harm.
"""

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from delegation.iceberg.errors import CorruptMetadata, UnsupportedFormat

FORMAT_VERSIONS = frozenset({1, 2, 3})
# A metadata file of this size would hold millions of snapshots; beyond it the bytes are hostile, not a table.
MAX_METADATA_BYTES = 512 * 1024 * 1024

# Where a table may be told to write (Iceberg TableProperties; the last two are the names before 0.14).
WRITE_LOCATIONS = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot: its manifest list, or (version 1 only) its manifests named inline."""

    snapshot_id: int
    manifest_list: str | None
    manifests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SizedFile:
    """A file named by metadata with its length in bytes, 0 when metadata does not tell."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class ParsedMetadata:
    """What a metadata.json names: files, former metadata files, and the locations the table writes to."""

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
        """`gc.enabled`, true unless the table says otherwise (Iceberg TableProperties)."""
        return self.properties.get("gc.enabled", "true").strip().lower() != "false"

    @property
    def locations(self) -> tuple[str, ...]:
        """The table's location and every path it is told to write to."""
        return _locations(self.location, self.properties)


def parse_metadata(path: str, metadata: Mapping[str, Any], *, experimental: bool = False) -> ParsedMetadata:
    """Read parsed metadata of the table's current state; raises CorruptMetadata or UnsupportedFormat.

    `experimental` lets format versions beyond 3 pass.
    """
    fields = _Fields(path, metadata)
    version = fields.integer("format-version")
    if version not in FORMAT_VERSIONS and not (experimental and version > max(FORMAT_VERSIONS)):
        raise UnsupportedFormat(f"format version {version} is not known to be read completely")
    table_uuid = fields.text("table-uuid").lower()
    if not _UUID.fullmatch(table_uuid):
        raise CorruptMetadata(path, "table-uuid", "not a UUID")
    return ParsedMetadata(
        path=path,
        table_uuid=table_uuid,
        format_version=version,
        location=fields.text("location"),
        last_updated_ms=fields.integer("last-updated-ms"),
        properties=fields.properties(),
        snapshots=tuple(_snapshot(one) for one in fields.objects("snapshots")),
        former=tuple(one.text("metadata-file") for one in fields.objects("metadata-log")),
        statistics=tuple(_sized(one) for one in fields.objects("statistics")),
        partition_statistics=tuple(_sized(one) for one in fields.objects("partition-statistics")),
    )


@dataclass(frozen=True, slots=True)
class FormerMetadata:
    """What a superseded metadata file still tells: whose it was, where the table was, what came before."""

    table_uuid: str | None
    locations: tuple[str, ...]
    former: tuple[str, ...]


def parse_former_metadata(path: str, data: bytes) -> FormerMetadata:
    """Read a superseded metadata file, gzip or plain; raises CorruptMetadata.

    Version 1 wrote files without table-uuid, so it may be None here.
    """
    fields = _Fields(path, decode_metadata(path, data))
    table_uuid = fields.source.get("table-uuid")
    return FormerMetadata(
        table_uuid=None if table_uuid is None else fields.text("table-uuid").lower(),
        locations=_locations(fields.text("location"), fields.properties()),
        former=tuple(one.text("metadata-file") for one in fields.objects("metadata-log")),
    )


def _locations(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    return (location, *(properties[name] for name in WRITE_LOCATIONS if properties.get(name)))


def decode_metadata(path: str, data: bytes) -> Mapping[str, Any]:
    """The JSON object in a metadata file; gzip is known by its first bytes, whatever the file is called.

    Raises CorruptMetadata, also for a file that would inflate beyond MAX_METADATA_BYTES.
    """
    if data[:2] == b"\x1f\x8b":
        data = _inflate(path, data)
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptMetadata(path, "file", "not JSON") from error
    if not isinstance(parsed, dict):
        raise CorruptMetadata(path, "file", "not a JSON object")
    return parsed


def _inflate(path: str, data: bytes) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(data, MAX_METADATA_BYTES)
    except zlib.error as error:
        raise CorruptMetadata(path, "file", "broken gzip") from error
    if not inflater.eof:
        reason = "inflates beyond any sensible size" if inflater.unconsumed_tail else "gzip ends too early"
        raise CorruptMetadata(path, "file", reason)
    return plain


def _snapshot(fields: "_Fields") -> Snapshot:
    snapshot_id = fields.integer("snapshot-id")
    if fields.source.get("manifest-list") is not None:
        return Snapshot(snapshot_id, fields.text("manifest-list"))
    manifests = fields.source.get("manifests")
    if not isinstance(manifests, list) or not all(isinstance(one, str) and one for one in manifests):
        raise CorruptMetadata(fields.path, f"snapshot {snapshot_id}", "neither manifest-list nor manifests")
    return Snapshot(snapshot_id, None, tuple(manifests))


def _sized(fields: "_Fields") -> SizedFile:
    size = fields.source.get("file-size-in-bytes", 0)
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise CorruptMetadata(fields.path, "file-size-in-bytes", "not a length")
    return SizedFile(fields.text("statistics-path"), size)


@dataclass(frozen=True, slots=True)
class _Fields:
    """Typed access to a JSON object that names the file and the field when it is not what it must be."""

    path: str
    source: Mapping[str, Any]

    def text(self, name: str) -> str:
        value = self.source.get(name)
        if not isinstance(value, str) or not value:
            raise CorruptMetadata(self.path, name, "missing or not a string")
        return value

    def integer(self, name: str) -> int:
        value = self.source.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise CorruptMetadata(self.path, name, "missing or not an integer")
        return value

    def properties(self) -> Mapping[str, str]:
        value = self.source.get("properties")
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            raise CorruptMetadata(self.path, "properties", "not a map of strings")
        return value

    def objects(self, name: str) -> "list[_Fields]":
        value = self.source.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise CorruptMetadata(self.path, name, "not a list of objects")
        return [_Fields(self.path, one) for one in value]
