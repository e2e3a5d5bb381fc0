"""Changes of the catalog to a managed table, each of a few objects (Iceberg REST Catalog API, TableUpdate).

They raise IcebergConflict for a change that does not fit the metadata. The REST layer checks the requirements that a
client stated, on the same working copy.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from delegation.persistence.errors import IcebergConflict
from delegation.persistence.iceberg.ids import (
    FIRST_PARTITION_ID,
    highest_field_id,
    partition_spec,
    schema_id,
    sort_order_id,
)
from delegation.persistence.iceberg.layout import Json
from delegation.persistence.iceberg.metadata import ManagedMetadata

MAIN: Final = "main"
PREVIOUS_VERSIONS: Final = "write.metadata.previous-versions-max"
DEFAULT_PREVIOUS_VERSIONS: Final = 100


def add_snapshot(table: ManagedMetadata, snapshot: Mapping[str, Any]) -> None:
    """Add a snapshot without a ref to it; one that is refused changes nothing.

    Sequence numbers must ascend (format version 2 and later), and a snapshot needs its row ids (version 3 and later;
    Iceberg Table Spec, Snapshots, Snapshot Row IDs).
    """
    snapshot_id = snapshot["snapshot-id"]
    if table.has("snapshots", snapshot_id):
        raise IcebergConflict(f"snapshot {snapshot_id} already exists")
    version = table.field("format-version")
    sequence = snapshot.get("sequence-number", 0)
    has_parent = snapshot.get("parent-snapshot-id") is not None
    if version > 1 and has_parent and sequence <= table.field("last-sequence-number"):
        raise IcebergConflict(f"sequence number {sequence} is not above {table.field('last-sequence-number')}")
    next_row = _next_row_id(table, snapshot) if version > 2 else None
    if version > 1:
        table.set_field("last-sequence-number", sequence)
    if next_row is not None:
        table.set_field("next-row-id", next_row)
    table.add_snapshot(snapshot_id, dict(snapshot))
    table.set_field("last-updated-ms", snapshot["timestamp-ms"])


def set_ref(table: ManagedMetadata, name: str, ref: Mapping[str, Any], *, now_ms: int) -> None:
    """Point a branch or tag to a snapshot; a move of `main` is logged.

    The time of a move is that of the snapshot if it was added in this commit. Otherwise it is `now_ms`: for a rollback,
    and for a snapshot that was staged earlier and is published now.
    """
    snapshot_id = ref["snapshot-id"]
    if not table.has("snapshots", snapshot_id):
        raise IcebergConflict(f"there is no snapshot {snapshot_id}")
    before = table.part("refs", name)
    if before is not None and before.get("type") != ref.get("type"):
        raise IcebergConflict(f"ref {name!r} is a {before.get('type')}, not a {ref.get('type')}")
    table.put("refs", name, dict(ref))
    if name == MAIN and table.field("current-snapshot-id") != snapshot_id:
        replaced = table.field("current-snapshot-id")
        table.set_field("current-snapshot-id", snapshot_id)
        log = table.log("snapshot-log")
        if replaced in table.added_snapshots:
            # It was never current outside of this commit (Iceberg's TableMetadata, updateSnapshotLog).
            log.drop_newest()
        added = snapshot_id in table.added_snapshots
        timestamp = table.part("snapshots", snapshot_id)["timestamp-ms"] if added else now_ms
        log.append({"timestamp-ms": timestamp, "snapshot-id": snapshot_id})
        table.set_field("last-updated-ms", timestamp)


def remove_ref(table: ManagedMetadata, name: str) -> None:
    """Remove a branch or tag; an absent one is no error."""
    if table.remove("refs", name) and name == MAIN:
        table.set_field("current-snapshot-id", -1 if table.field("format-version") < 3 else None)
        table.log("snapshot-log").replace([])


def remove_snapshots(table: ManagedMetadata, snapshot_ids: Iterable[int]) -> None:
    """Expire snapshots with their statistics, the refs that name them, and the log up to them, as Iceberg does."""
    expired = set(snapshot_ids)
    removed = {snapshot_id for snapshot_id in expired if table.remove("snapshots", snapshot_id)}
    for snapshot_id in removed:
        table.remove("statistics", snapshot_id)
        table.remove("partition-statistics", snapshot_id)
    for name, ref in list(zip(table.ids("refs"), table.parts("refs"), strict=True)):
        if ref["snapshot-id"] in removed:
            remove_ref(table, name)
    log = table.log("snapshot-log")
    # History before an expired snapshot would have gaps and is dropped, as by Iceberg's TableMetadata.
    entries = [number for number, entry in enumerate(log.entries()) if entry["snapshot-id"] in removed]
    log.drop_oldest(entries[-1] + 1 if entries else 0)


def add_schema(table: ManagedMetadata, schema: Mapping[str, Any]) -> int:
    """Add a schema and return the id that the catalog assigns, that of an equal schema if there is one."""
    assigned = schema_id(schema, table.parts("schemas"))
    if not table.has("schemas", assigned):
        table.put("schemas", assigned, {**schema, "schema-id": assigned})
    table.set_field("last-column-id", max(table.field("last-column-id"), highest_field_id(schema)))
    return assigned


def set_current_schema(table: ManagedMetadata, assigned: int) -> None:
    """Make a schema current."""
    _set_current(table, "schemas", "current-schema-id", assigned)


def add_spec(table: ManagedMetadata, spec: Mapping[str, Any]) -> int:
    """Add a partition spec and return the id that the catalog assigns, that of a compatible spec if there is one."""
    last = table.field("last-partition-id")
    numbered, last = partition_spec(
        spec, table.parts("partition-specs"), last=FIRST_PARTITION_ID - 1 if last is None else last
    )
    assigned: int = numbered["spec-id"]
    if not table.has("partition-specs", assigned):
        table.put("partition-specs", assigned, numbered)
    table.set_field("last-partition-id", last)
    return assigned


def set_default_spec(table: ManagedMetadata, assigned: int) -> None:
    """Make a partition spec the default."""
    _set_current(table, "partition-specs", "default-spec-id", assigned)


def add_sort_order(table: ManagedMetadata, order: Mapping[str, Any]) -> int:
    """Add a sort order and return the id that the catalog assigns, that of an equal order if there is one."""
    assigned = sort_order_id(order, table.parts("sort-orders"))
    if not table.has("sort-orders", assigned):
        table.put("sort-orders", assigned, {**order, "order-id": assigned})
    return assigned


def set_default_sort_order(table: ManagedMetadata, assigned: int) -> None:
    """Make a sort order the default."""
    _set_current(table, "sort-orders", "default-sort-order-id", assigned)


def update_properties(table: ManagedMetadata, updates: Mapping[str, str], removals: Iterable[str] = ()) -> None:
    """Set and remove properties."""
    removed = set(removals)
    if clash := removed & updates.keys():
        raise IcebergConflict(f"properties cannot be both set and removed: {', '.join(sorted(clash))}")
    left: Json = {name: value for name, value in table.properties.items() if name not in removed}
    table.set_properties(left | dict(updates))


def set_statistics(table: ManagedMetadata, statistics: Mapping[str, Any], *, of_partitions: bool = False) -> None:
    """Set or replace the statistics file (or the partition statistics file) of a snapshot."""
    section = "partition-statistics" if of_partitions else "statistics"
    table.put(section, statistics["snapshot-id"], dict(statistics))


def log_metadata_file(table: ManagedMetadata, location: str, *, timestamp_ms: int) -> None:
    """Log the metadata file that the next export replaces; PREVIOUS_VERSIONS limits the log."""
    log = table.log("metadata-log")
    log.append({"timestamp-ms": timestamp_ms, "metadata-file": location})
    keep = max(1, int(table.properties.get(PREVIOUS_VERSIONS, DEFAULT_PREVIOUS_VERSIONS)))
    log.drop_oldest(max(0, len(log) - keep))


def _next_row_id(table: ManagedMetadata, snapshot: Mapping[str, Any]) -> int:
    """Return the next row id after a snapshot."""
    for name in ("first-row-id", "added-rows"):
        if snapshot.get(name) is None:
            raise IcebergConflict(f"a snapshot of format version 3 needs {name}; commit it with a writer of version 3")
    following = table.field("next-row-id") or 0
    first: int = snapshot["first-row-id"]
    if first < following:
        raise IcebergConflict(f"row ids from {first} on already belong to other snapshots; the next is {following}")
    added: int = snapshot["added-rows"]
    return first + added


def _set_current(table: ManagedMetadata, section: str, field: str, assigned: int) -> None:
    if not table.has(section, assigned):
        raise IcebergConflict(f"{section} has no id {assigned}")
    table.set_field(field, assigned)
