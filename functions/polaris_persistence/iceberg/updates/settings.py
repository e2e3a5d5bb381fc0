"""The updates of version, UUID, location, properties, statistics and keys (Iceberg's TableMetadata.Builder)."""

import base64
import re
from typing import Any, Final

from polaris_persistence.iceberg.layout import Json
from polaris_persistence.iceberg.updates.change import ROW_LINEAGE_SINCE, TableChange
from polaris_persistence.iceberg.updates.values import (
    UpdateRefusal,
    array,
    check,
    integer,
    is_int,
    long,
    node,
    number_from,
    string,
    string_map,
    string_or_none,
    strings,
    text_of,
    unknown,
)

NEWEST_VERSION: Final = 4
PREVIOUS_VERSIONS: Final = "write.metadata.previous-versions-max"
DEFAULT_PREVIOUS_VERSIONS: Final = 100
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*")


def read_uuid(update: Any) -> str:
    """Parse an assign-uuid."""
    return string("uuid", update)


def assign_uuid(change: TableChange, uuid: str) -> None:
    if change.edits.field("table-uuid") != uuid:
        change.edits.set_field("table-uuid", uuid)
        change.did()


def read_version(update: Any) -> int:
    """Parse an upgrade-format-version."""
    return integer("format-version", update)


def upgrade(change: TableChange, version: int) -> None:
    """Raise the format version."""
    unsupported = f"Cannot upgrade table to unsupported format version: v{version} (supported: v{NEWEST_VERSION})"
    check(version <= NEWEST_VERSION, unsupported)
    check(version >= change.version, f"Cannot downgrade v{change.version} table to v{version}")
    if version == change.version:
        return
    change.edits.set_field("format-version", version)
    if version > 1 and change.edits.field("last-sequence-number") is None:
        change.edits.set_field("last-sequence-number", 0)
    if version >= ROW_LINEAGE_SINCE and change.edits.field("next-row-id") is None:
        change.edits.set_field("next-row-id", 0)
    change.did()


def read_location(update: Any) -> str:
    """Parse a set-location."""
    return string("location", update)


def set_location(change: TableChange, location: str) -> None:
    """Move the table's location."""
    if change.edits.field("location") != location:
        change.edits.set_field("location", location)
        change.did()


def without_trailing_slash(location: str) -> str:
    """Return a location without trailing slashes. Raises UpdateRefusal for an empty one."""
    check(location, "path must not be null or empty")
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    return location


def read_updates(update: Any) -> dict[str, str]:
    """Parse a set-properties; early clients use another field name."""
    return string_map("updates" if "updates" in update or "updated" not in update else "updated", update)


def set_properties(change: TableChange, updates: dict[str, str]) -> None:
    if updates:
        change.edits.set_properties({**change.edits.properties, **updates})
        change.did()


def read_removals(update: Any) -> list[str]:
    """Parse a remove-properties; early clients use another field name."""
    return strings("removals" if "removals" in update or "removed" not in update else "removed", update, "set")


def remove_properties(change: TableChange, removals: list[str]) -> None:
    if removals:
        removed = set(removals)
        left = {name: value for name, value in change.edits.properties.items() if name not in removed}
        change.edits.set_properties(left)
        change.did()


def read_statistics(update: Any) -> Json:
    """Parse a set-statistics and return the statistics file as Iceberg writes it, with unknown fields."""
    given = node("statistics", update)
    found = _statistics_file(given)
    found["file-footer-size-in-bytes"] = long("file-footer-size-in-bytes", given)
    blobs = given.get("blob-metadata")
    check(isinstance(blobs, list), f"Cannot parse blob metadata from non-array: {text_of(blobs)}")
    found["blob-metadata"] = [_blob(blob) for blob in blobs]
    return found | dict(unknown(given, frozenset(found)))


def read_partition_statistics(update: Any) -> Json:
    """Parse a set-partition-statistics and return the file as Iceberg writes it, with unknown fields."""
    given = node("partition-statistics", update)
    found = _statistics_file(given)
    return found | dict(unknown(given, frozenset(found)))


def set_statistics(change: TableChange, statistics: Json, section: str) -> None:
    """Set or replace the statistics file of a snapshot."""
    change.edits.remove(section, statistics["snapshot-id"])
    change.edits.put(section, statistics["snapshot-id"], statistics)
    change.did()


def read_snapshot_id(update: Any) -> int:
    """Parse a removal of statistics."""
    return long("snapshot-id", update)


def remove_statistics(change: TableChange, snapshot_id: int, section: str) -> None:
    """Remove the statistics files of a snapshot; having none is no error."""
    if change.edits.remove(section, snapshot_id):
        change.did()


def read_key(update: Any) -> Json:
    """Parse an add-encryption-key and return the key as Iceberg writes it, with unknown fields."""
    given = update.get("encryption-key")
    check(isinstance(given, dict), f"Invalid encryption key, must be non-null object: {text_of(given)}")
    key: Json = {"key-id": string("key-id", given)}
    key["encrypted-key-metadata"] = _base64(string("encrypted-key-metadata", given))
    by = string_or_none("encrypted-by-id", given)
    properties = string_map("properties", given) if "properties" in given else {}
    key |= ({} if by is None else {"encrypted-by-id": by}) | ({"properties": properties} if properties else {})
    return key | dict(unknown(given, frozenset({*key, "encrypted-by-id", "properties"})))


def add_key(change: TableChange, key: Json) -> None:
    """Add an encryption key unless one has its id."""
    if not change.edits.has("encryption-keys", key["key-id"]):
        change.edits.put("encryption-keys", key["key-id"], key)
        change.did()


def read_key_id(update: Any) -> str:
    """Parse a remove-encryption-key."""
    return string("key-id", update)


def remove_key(change: TableChange, key_id: str) -> None:
    """Remove an encryption key; an absent one is no error."""
    if change.edits.remove("encryption-keys", key_id):
        change.did()


def log_previous_file(change: TableChange, file: str) -> None:
    """Log the metadata file that the commit replaces; PREVIOUS_VERSIONS limits the log. Raises UpdateRefusal."""
    edits = change.edits
    limit = edits.properties.get(PREVIOUS_VERSIONS)
    most = max(1, DEFAULT_PREVIOUS_VERSIONS if limit is None else number_from(limit))
    edits.log("metadata-log", {"timestamp-ms": edits.source.field("last-updated-ms"), "metadata-file": file})
    edits.limit_log("metadata-log", most)


def _statistics_file(given: Any) -> Json:
    found: Json = {"snapshot-id": long("snapshot-id", given), "statistics-path": string("statistics-path", given)}
    return found | {"file-size-in-bytes": long("file-size-in-bytes", given)}


def _blob(given: Any) -> Json:
    blob: Json = {"type": string("type", given), "snapshot-id": long("snapshot-id", given)}
    blob["sequence-number"] = long("sequence-number", given)
    blob["fields"] = array("fields", given, "list")
    for field in blob["fields"]:
        check(is_int(field), f"Cannot parse integer from non-int value in fields: {text_of(field)}")
    properties = string_map("properties", given) if "properties" in given else {}
    known = frozenset({*blob, "properties"})
    return blob | ({"properties": properties} if properties else {}) | dict(unknown(given, known))


def _base64(text: str) -> str:
    """Return Base64 with its optional padding. Raises UpdateRefusal."""
    digits = text.rstrip("=")
    padding = "=" * (-len(digits) % 4)
    whole = _BASE64.fullmatch(digits) and len(digits) % 4 != 1 and text in (digits, digits + padding)
    if not whole:
        raise UpdateRefusal("Cannot decode encrypted-key-metadata as Base64")
    return base64.b64encode(base64.b64decode(digits + padding)).decode()
