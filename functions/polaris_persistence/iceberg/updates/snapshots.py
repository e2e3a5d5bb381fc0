"""The updates of snapshots and refs, and the snapshot log (Iceberg's TableMetadata.Builder, SnapshotParser)."""

import itertools
from typing import Any, Final

from polaris_persistence.iceberg.layout import Json
from polaris_persistence.iceberg.updates.change import MAIN, NO_SNAPSHOT, ROW_LINEAGE_SINCE, TableChange
from polaris_persistence.iceberg.updates.values import (
    LONG,
    UpdateRefusal,
    array,
    check,
    integer_or_none,
    long,
    long_or_none,
    longs,
    node,
    object_of,
    string,
    string_or_none,
    text_of,
    unknown,
)

CLOCK_TOLERANCE_MS: Final = 60_000
"""By how much a clock may be behind the newest entry of a log, because writers' clocks differ."""
_SNAPSHOT: Final = frozenset(
    {
        "sequence-number", "snapshot-id", "parent-snapshot-id", "timestamp-ms", "summary", "manifests", "manifest-list",
        "schema-id", "first-row-id", "added-rows", "key-id",
    }
)  # fmt: skip
_REF: Final = ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms")
_LOG: Final = "snapshot-log"
_FIRST: Final = (("schemas", "schema"), ("partition-specs", "partition spec"), ("sort-orders", "sort order"))


def read_snapshot(update: Any) -> Json:
    """Parse an add-snapshot and return the snapshot as Iceberg writes it, with fields unknown to this release."""
    given = object_of(node("snapshot", update), "Cannot parse table version from a non-object")
    sequence = long("sequence-number", given) if "sequence-number" in given else 0
    snapshot: Json = {"sequence-number": sequence} if sequence > 0 else {}
    snapshot["snapshot-id"] = long("snapshot-id", given)
    if "parent-snapshot-id" in given:
        snapshot["parent-snapshot-id"] = long("parent-snapshot-id", given)
    snapshot["timestamp-ms"] = long("timestamp-ms", given)
    if "summary" in given:
        summary = object_of(given["summary"], "Cannot parse summary from non-object value")
        texts = {name: string(name, summary) for name in summary}
        if texts:
            snapshot["summary"] = {"operation": texts.pop("operation", "overwrite"), **texts}
    schema_id = integer_or_none("schema-id", given)
    first_row, rows = long_or_none("first-row-id", given), long_or_none("added-rows", given)
    key_id = string_or_none("key-id", given)
    if "manifest-list" not in given:
        paths = array("manifests", given, "list")
        for path in paths:
            check(isinstance(path, str), f"Cannot parse string from non-text value in manifests: {text_of(path)}")
        snapshot["manifests"] = paths
        first_row = key_id = None
    else:
        snapshot["manifest-list"] = string("manifest-list", given)
        check(first_row is None or first_row >= 0, f"Invalid first-row-id (cannot be negative): {first_row}")
        check(rows is None or rows >= 0, f"Invalid added-rows (cannot be negative): {rows}")
        check(first_row is None or rows is not None, "Invalid added-rows (required when first-row-id is set): null")
    lineage = {"first-row-id": first_row, "added-rows": None if first_row is None else rows}
    optional = {"schema-id": schema_id, **lineage, "key-id": key_id}
    snapshot |= {name: value for name, value in optional.items() if value is not None}
    return snapshot | dict(unknown(given, _SNAPSHOT))


def add_snapshot(change: TableChange, snapshot: Json) -> None:
    """Add a snapshot without a ref to it."""
    edits = change.edits
    if change.is_new:
        for section, what in _FIRST:
            check(edits.ids(section), f"Attempting to add a snapshot before a {what} is added")
    snapshot_id, sequence = snapshot["snapshot-id"], snapshot.get("sequence-number", 0)
    check(not edits.has("snapshots", snapshot_id), f"Snapshot already exists for id: {snapshot_id}")
    last = edits.field("last-sequence-number") or 0
    if change.version > 1 and sequence <= last and "parent-snapshot-id" in snapshot:
        reason = f"Cannot add snapshot with sequence number {sequence} older than last sequence number {last}"
        raise UpdateRefusal(reason, stale=True)
    edits.set_field("last-sequence-number", sequence)
    edits.put("snapshots", snapshot_id, snapshot)
    change.added_snapshots[snapshot_id] = snapshot["timestamp-ms"]
    change.did()
    if change.version < ROW_LINEAGE_SINCE:
        return
    first, following = snapshot.get("first-row-id"), edits.field("next-row-id") or 0
    if first is None:
        raise UpdateRefusal("Cannot add a snapshot: first-row-id is null")
    if first < following:
        reason = f"Cannot add a snapshot, first-row-id is behind table next-row-id: {first} < {following}"
        raise UpdateRefusal(reason, stale=True)
    check(following + snapshot["added-rows"] in LONG, "There are no row ids left")
    edits.set_field("next-row-id", following + snapshot["added-rows"])


def read_snapshot_ids(update: Any) -> list[int]:
    """Parse a remove-snapshots."""
    given = update.get("snapshot-ids") if isinstance(update, dict) else None
    check(given is not None, "Invalid set of snapshot ids to remove: must be non-null")
    return longs("snapshot-ids", update, "set")


def remove_snapshots(change: TableChange, snapshot_ids: list[int]) -> None:
    """Remove snapshots with their statistics and the refs to them."""
    edits = change.edits
    count = len(edits.ids("snapshots"))
    check(len(snapshot_ids) <= count, f"arraySize cannot be negative but was: {count - len(snapshot_ids)}")
    removed = {snapshot_id for snapshot_id in snapshot_ids if edits.remove("snapshots", snapshot_id)}
    if not removed:
        return
    change.snapshots_removed = True
    change.did()
    for snapshot_id in removed:
        for section in ("statistics", "partition-statistics"):
            edits.remove(section, snapshot_id)
    for name, ref in change.refs().items():
        if not edits.has("snapshots", ref["snapshot-id"]):
            remove_ref(change, name)


def read_ref(update: Any) -> tuple[str, Json]:
    """Parse a set-snapshot-ref and return the ref's name, and the ref as Iceberg writes it."""
    name, snapshot_id, type_ = string("ref-name", update), long("snapshot-id", update), string("type", update)
    check(type_.upper() in ("BRANCH", "TAG"), f"Invalid snapshot ref type: {type_}")
    limits = {
        "min-snapshots-to-keep": integer_or_none("min-snapshots-to-keep", update),
        "max-snapshot-age-ms": long_or_none("max-snapshot-age-ms", update),
        "max-ref-age-ms": long_or_none("max-ref-age-ms", update),
    }
    kept = {limit: value for limit, value in limits.items() if value is not None}
    return name, {"snapshot-id": snapshot_id, "type": type_.lower(), **kept}


def set_ref(change: TableChange, named: tuple[str, Json]) -> None:
    """Point a branch or tag to a snapshot; a move of MAIN is logged.

    The time of a move is that of the snapshot if this commit added it, otherwise now: for a rollback, and for a
    snapshot that was staged earlier and is published now.
    """
    name, ref = named
    _check_limits(ref)
    edits = change.edits
    before = edits.part("refs", name)
    if before is not None and {limit: value for limit, value in before.items() if value is not None} == ref:
        return
    snapshot_id = ref["snapshot-id"]
    check(edits.has("snapshots", snapshot_id), f"Cannot set {name} to unknown snapshot: {snapshot_id}")
    if name == MAIN:
        edits.set_field("current-snapshot-id", snapshot_id)
        timestamp = change.added_snapshots.get(snapshot_id, change.now_ms)
        edits.log(_LOG, {"timestamp-ms": timestamp, "snapshot-id": snapshot_id})
        if snapshot_id in change.added_snapshots:
            change.published.append(snapshot_id)
    edits.put("refs", name, ref)
    change.did()


def read_ref_name(update: Any) -> str:
    """Parse a remove-snapshot-ref."""
    return string("ref-name", update)


def remove_ref(change: TableChange, name: str) -> None:
    """Remove a branch or tag; an absent one is no error. The snapshot log stays."""
    if name == MAIN:
        change.edits.set_field("current-snapshot-id", NO_SNAPSHOT)
    if change.edits.remove("refs", name):
        change.did()


def finish_log(change: TableChange) -> None:
    """Drop what was never current after the commit, and the history before a removed snapshot. Raises UpdateRefusal."""
    edits, current = change.edits, change.current_snapshot
    intermediate = {snapshot_id for snapshot_id in change.published if snapshot_id != current}
    if not intermediate and not change.snapshots_removed:
        return
    kept: list[Json] = []
    for entry in edits.entries(_LOG):
        if edits.has("snapshots", entry["snapshot-id"]):
            if entry["snapshot-id"] not in intermediate:
                kept.append(entry)
        elif change.snapshots_removed:
            kept = []
    if edits.has("snapshots", current):
        last = kept[-1]["snapshot-id"] if kept else None
        check(last == current, "Cannot set invalid snapshot log: latest entry is not the current snapshot")
    edits.replace_log(_LOG, kept)


def check_snapshots(change: TableChange) -> None:
    """Raise UpdateRefusal for snapshots, refs and times of the logs that a reader would not accept."""
    edits = change.edits
    last = edits.field("last-sequence-number") or 0
    is_lower = last < (edits.source.field("last-sequence-number") or 0)
    added = [edits.part("snapshots", id_) for id_ in change.added_snapshots if edits.has("snapshots", id_)]
    for snapshot in edits.parts("snapshots") if is_lower else added:
        sequence = snapshot.get("sequence-number", 0)
        reason = f"Invalid snapshot with sequence number {sequence} greater than last sequence number {last}"
        check(sequence <= last, reason)
    _check_main(change)
    _check_times(change)


def _check_main(change: TableChange) -> None:
    main, current = change.edits.part("refs", MAIN), change.current_snapshot
    if current == NO_SNAPSHOT:
        check(main is None, f"Current snapshot is not set, but main branch exists: {main}")
        return
    if main is not None:
        reason = f"Current snapshot ID does not match main branch ({current} != {main['snapshot-id']})"
        check(main["snapshot-id"] == current, reason)
    found = current < 0 or change.edits.has("snapshots", current)
    check(found, "Invalid table metadata: Cannot find current version")


def _check_times(change: TableChange) -> None:
    """Check the order of the snapshot log where it changed: all of a rewritten one, otherwise from its end on."""
    edits = change.edits
    if _LOG in edits.logs:
        entries = edits.entries(_LOG)
    else:
        newest = edits.source.newest(_LOG)
        entries = [*([] if newest is None else [newest]), *edits.appended.get(_LOG, [])]
    for before, after in itertools.pairwise(entries):
        in_order = after["timestamp-ms"] - before["timestamp-ms"] >= -CLOCK_TOLERANCE_MS
        check(in_order, "[BUG] Expected sorted snapshot log entries.")
    if entries:
        logged = entries[-1]["timestamp-ms"]
        reason = f"Invalid update timestamp {change.now_ms}: before last snapshot log entry at {logged}"
        check(change.now_ms - logged >= -CLOCK_TOLERANCE_MS, reason)
    previous = edits.newest("metadata-log")
    if previous is not None:
        logged = previous["timestamp-ms"]
        reason = f"Invalid update timestamp {change.now_ms}: before the latest metadata log entry timestamp {logged}"
        check(change.now_ms - logged >= -CLOCK_TOLERANCE_MS, reason)


def _check_limits(ref: Json) -> None:
    keep, age, ref_age = (ref.get(name) for name in _REF)
    is_tag = ref["type"] == "tag"
    check(keep is None or not is_tag, "Tags do not support setting minSnapshotsToKeep")
    check(keep is None or keep > 0, "Min snapshots to keep must be greater than 0")
    check(age is None or not is_tag, "Tags do not support setting maxSnapshotAgeMs")
    check(age is None or age > 0, "Max snapshot age must be greater than 0 ms")
    check(ref_age is None or ref_age > 0, "Max reference age must be greater than 0")
