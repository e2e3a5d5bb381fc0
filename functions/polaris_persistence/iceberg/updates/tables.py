"""Requirements and updates of a commit to a table, as Iceberg validates and applies them (Iceberg's
CatalogHandlers.commit, MetadataUpdate, TableMetadata).

Iceberg accepts and reads again whatever is accepted here. What it refuses is refused here with its message.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from polaris_persistence.errors import IcebergConflict, InvalidIcebergUpdate
from polaris_persistence.iceberg.layout import MAX_JSON_NESTING, TABLE, Json
from polaris_persistence.iceberg.updates import columns, partitioning, settings, snapshots
from polaris_persistence.iceberg.updates.change import NO_SNAPSHOT, ROW_LINEAGE_SINCE, TableChange
from polaris_persistence.iceberg.updates.edits import DocumentSource, Edits, MetadataSource
from polaris_persistence.iceberg.updates.requirements import Requirement, read_requirement, type_of
from polaris_persistence.iceberg.updates.values import UpdateRefusal, check, object_of, string
from polaris_persistence.objects.objects import nests_beyond

DEFAULT_VERSION: Final = 2


class Handler(NamedTuple):
    """How an update is parsed, and how it is applied."""

    read: Callable[[Any], Any]
    apply: Callable[[TableChange, Any], None]


_STATISTICS: Final = "statistics"
_PARTITION_STATISTICS: Final = "partition-statistics"
HANDLERS: Final[Mapping[str, Handler]] = {
    "assign-uuid": Handler(settings.read_uuid, settings.assign_uuid),
    "upgrade-format-version": Handler(settings.read_version, settings.upgrade),
    "add-schema": Handler(columns.read_schema, columns.add_schema),
    "set-current-schema": Handler(columns.read_schema_id, columns.set_current_schema),
    "remove-schemas": Handler(columns.read_schema_ids, columns.remove_schemas),
    "add-spec": Handler(partitioning.read_new_spec, partitioning.add_spec),
    "set-default-spec": Handler(partitioning.read_spec_id, partitioning.set_default_spec),
    "remove-partition-specs": Handler(partitioning.read_spec_ids, partitioning.remove_specs),
    "add-sort-order": Handler(partitioning.read_new_order, partitioning.add_order),
    "set-default-sort-order": Handler(partitioning.read_order_id, partitioning.set_default_order),
    "add-snapshot": Handler(snapshots.read_snapshot, snapshots.add_snapshot),
    "remove-snapshots": Handler(snapshots.read_snapshot_ids, snapshots.remove_snapshots),
    "set-snapshot-ref": Handler(snapshots.read_ref, snapshots.set_ref),
    "remove-snapshot-ref": Handler(snapshots.read_ref_name, snapshots.remove_ref),
    "set-location": Handler(settings.read_location, settings.set_location),
    "set-properties": Handler(settings.read_updates, settings.set_properties),
    "remove-properties": Handler(settings.read_removals, settings.remove_properties),
    "set-statistics": Handler(settings.read_statistics, partial(settings.set_statistics, section=_STATISTICS)),
    "remove-statistics": Handler(settings.read_snapshot_id, partial(settings.remove_statistics, section=_STATISTICS)),
    "set-partition-statistics": Handler(
        settings.read_partition_statistics, partial(settings.set_statistics, section=_PARTITION_STATISTICS)
    ),
    "remove-partition-statistics": Handler(
        settings.read_snapshot_id, partial(settings.remove_statistics, section=_PARTITION_STATISTICS)
    ),
    "add-encryption-key": Handler(settings.read_key, settings.add_key),
    "remove-encryption-key": Handler(settings.read_key_id, settings.remove_key),
}
OF_VIEWS: Final = {"add-view-version": "AddViewVersion", "set-current-view-version": "SetCurrentViewVersion"}
"""The updates that only views have, with their names in Iceberg's messages."""


def updated_table(
    base: Mapping[str, Any] | None,
    requirements: Iterable[Any],
    updates: Iterable[Any],
    *,
    now_ms: int,
    previous_file: str | None = None,
    new_uuid: str | None = None,
) -> Json:
    """Return the metadata of a table after a commit; `base` is not altered, and returned if nothing changes.

    `base` is None for a table to be created, `previous_file` the metadata file that the commit replaces, `new_uuid` the
    UUID of a new table without an assign-uuid. Raises IcebergConflict and InvalidIcebergUpdate.
    """
    source = None if base is None else DocumentSource(base, TABLE)
    change = changed_table(source, requirements, updates, now_ms=now_ms, previous_file=previous_file, new_uuid=new_uuid)
    if base is not None and not change.edits.changed:
        return dict(base)
    return change.edits.document(mirrors(change), dropped(change))


def changed_table(
    source: MetadataSource | None,
    requirements: Iterable[Any],
    updates: Iterable[Any],
    *,
    now_ms: int,
    previous_file: str | None = None,
    new_uuid: str | None = None,
) -> TableChange:
    """Return the changes of a commit to a table that is read in parts; see `updated_table`."""
    conditions = [(type_, condition) for type_, condition in read_requirements(requirements, kind="table")]
    parsed = [read_update(update) for update in updates]
    validate(conditions, source)
    if source is None:
        versions = [value for action, _, value in parsed if action == "upgrade-format-version"]
        source = DocumentSource(_empty(versions[0] if versions else DEFAULT_VERSION, new_uuid), TABLE)
        if not parsed:
            raise InvalidIcebergUpdate("a new table needs updates", update="commit")
    change = _begun(source, now_ms)
    for action, handler, value in parsed:
        try:
            handler.apply(change, value)
        except UpdateRefusal as refused:
            raise error_of(action, refused) from None
    if change.edits.changed:
        try:
            _finish(change, previous_file)
        except UpdateRefusal as refused:
            raise error_of("commit", refused) from None
    return change


def read_requirements(requirements: Iterable[Any], *, kind: str) -> list[tuple[str, Requirement]]:
    """Parse requirements, with their types. Raises InvalidIcebergUpdate."""
    found: list[tuple[str, Requirement]] = []
    for requirement in requirements:
        try:
            found.append((type_of(requirement), read_requirement(requirement, kind=kind)))
        except UpdateRefusal as refused:
            raise error_of("requirement", refused) from None
    return found


def validate(requirements: Iterable[tuple[str, Requirement]], base: MetadataSource | None) -> None:
    """Raise IcebergConflict for a requirement that is not met, InvalidIcebergUpdate for one of the other kind."""
    for type_, requirement in requirements:
        try:
            requirement(base)
        except UpdateRefusal as refused:
            raise error_of(type_, refused) from None


def action_of(update: Any) -> str:
    """Return the action of an update in lower case. Raises UpdateRefusal."""
    object_of(update, "Cannot parse metadata update from non-object value")
    check(update.get("action") is not None, "Cannot parse metadata update. Missing field: action")
    return string("action", update).lower()


def check_depth(update: Any) -> None:
    """Raise UpdateRefusal for an update whose part would nest too deeply in a document."""
    reason = f"the update has more than {MAX_JSON_NESTING - 1} objects and arrays within each other"
    check(not nests_beyond(update, MAX_JSON_NESTING - 1), reason)


def read_update(update: Any) -> tuple[str, Handler, Any]:
    """Parse an update of a table. Raises InvalidIcebergUpdate."""
    action = "update"
    try:
        action = action_of(update)
        check_depth(update)
        if action in OF_VIEWS:
            reason = f"Cannot apply update {OF_VIEWS[action]} to a table"
            return action, Handler(lambda given: given, partial(_refuse, reason)), update
        check(action in HANDLERS, f"Cannot convert metadata update action to json: {action}")
        handler = HANDLERS[action]
        return action, handler, handler.read(update)
    except UpdateRefusal as refused:
        raise error_of(action, refused) from None


def error_of(what: str, refused: UpdateRefusal) -> IcebergConflict | InvalidIcebergUpdate:
    """Return the error of a refused update, requirement or commit."""
    return (IcebergConflict if refused.stale else InvalidIcebergUpdate)(refused.reason, update=what)


def mirrors(change: TableChange) -> Json:
    """Return the fields of version 1 that repeat the current schema and the default spec."""
    if change.version != 1:
        return {}
    edits = change.edits
    spec = edits.part("partition-specs", edits.field("default-spec-id"))
    return {
        "schema": edits.part("schemas", edits.field("current-schema-id")),
        "partition-spec": None if spec is None else spec["fields"],
    }


def dropped(change: TableChange) -> list[str]:
    """Return the fields that the document must not have after the commit."""
    edits = change.edits
    has_keys = "encryption-keys" not in edits.sections or edits.ids("encryption-keys")
    absent = [] if has_keys else ["encryption-keys"]
    absent += [] if change.version > 1 else ["last-sequence-number"]
    # Only for version 1; reading them costs a read of managed metadata.
    return absent + (["schema", "partition-spec"] if edits.source.field("format-version") == 1 < change.version else [])


def _refuse(reason: str, _change: TableChange, _value: Any) -> None:
    raise UpdateRefusal(reason)


def _begun(source: MetadataSource, now_ms: int) -> TableChange:
    try:
        return TableChange(source, now_ms=now_ms)
    except UpdateRefusal as refused:
        raise error_of("metadata", refused) from None


def _empty(version: int, uuid: str | None) -> Json:
    """Return the document from which Iceberg's builder starts a new table."""
    lists = ("schemas", "partition-specs", "sort-orders", "snapshots", "statistics", "partition-statistics")
    return {
        "format-version": version,
        "table-uuid": uuid,
        "last-sequence-number": 0,
        "last-column-id": 0,
        "current-schema-id": 0,
        "default-spec-id": 0,
        "last-partition-id": 0,
        "default-sort-order-id": 0,
        "properties": {},
        "refs": {},
        **{name: [] for name in (*lists, "snapshot-log", "metadata-log")},
    }


def _finish(change: TableChange, previous_file: str | None) -> None:
    """Check the result as Iceberg's builder and parser do, and set what a commit sets. Raises UpdateRefusal."""
    edits = change.edits
    if change.is_new or _describes_columns(edits):
        partitioning.check_defaults(change)
    if previous_file is not None and not change.is_new:
        settings.log_previous_file(change, previous_file)
    snapshots.finish_log(change)
    check(change.version == 1 or edits.field("table-uuid") is not None, f"UUID is required in format v{change.version}")
    sequence = edits.field("last-sequence-number") or 0
    check(change.version > 1 or sequence == 0, f"Sequence number must be 0 in v1: {sequence}")
    location = edits.field("location")
    check(location is not None, "Cannot parse to a string value: location: null")
    if "location" in edits.fields:
        edits.set_field("location", settings.without_trailing_slash(location))
    snapshots.check_snapshots(change)
    if change.is_new or _describes_columns(edits):
        partitioning.check_readable(change)
    edits.set_field("last-updated-ms", change.now_ms)
    if change.current_snapshot == NO_SNAPSHOT:
        edits.set_field("current-snapshot-id", None if change.version >= ROW_LINEAGE_SINCE else NO_SNAPSHOT)
    if change.version >= ROW_LINEAGE_SINCE and edits.field("next-row-id") is None:
        edits.set_field("next-row-id", 0)


def _describes_columns(edits: Edits) -> bool:
    sections = {"schemas", "partition-specs", "sort-orders"}
    fields = {"current-schema-id", "default-spec-id", "default-sort-order-id"}
    return not sections.isdisjoint(edits.sections) or not fields.isdisjoint(edits.fields)
