"""Requirements and updates of a commit to a view, as Iceberg validates and applies them (Iceberg's ViewMetadata)."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from polaris_persistence.iceberg.layout import VIEW, Json
from polaris_persistence.iceberg.updates.change import LAST_ADDED
from polaris_persistence.iceberg.updates.columns import read_schema
from polaris_persistence.iceberg.updates.edits import DocumentSource, Edits, MetadataSource
from polaris_persistence.iceberg.updates.schemas import ParsedSchema, next_schema_id
from polaris_persistence.iceberg.updates.settings import (
    read_location,
    read_removals,
    read_updates,
    read_uuid,
    read_version,
)
from polaris_persistence.iceberg.updates.tables import action_of, check_depth, error_of, read_requirements, validate
from polaris_persistence.iceberg.updates.values import (
    UpdateRefusal,
    check,
    integer,
    is_int,
    long,
    node,
    number_from,
    object_of,
    string,
    string_map,
    string_or_none,
    text_of,
    unknown,
)

NEWEST_VIEW_VERSION: Final = 1
HISTORY_SIZE: Final = "version.history.num-entries"
DEFAULT_HISTORY_SIZE: Final = 10
DROP_DIALECT_ALLOWED: Final = "replace.drop-dialect.allowed"
_VERSION: Final = frozenset(
    {"version-id", "timestamp-ms", "schema-id", "summary", "default-catalog", "default-namespace", "representations"}
)
_OF_TABLES: Final = {
    "set-current-schema": "SetCurrentSchema",
    "remove-schemas": "RemoveSchemas",
    "add-spec": "AddPartitionSpec",
    "set-default-spec": "SetDefaultPartitionSpec",
    "remove-partition-specs": "RemovePartitionSpecs",
    "add-sort-order": "AddSortOrder",
    "set-default-sort-order": "SetDefaultSortOrder",
    "add-snapshot": "AddSnapshot",
    "remove-snapshots": "RemoveSnapshots",
    "set-snapshot-ref": "SetSnapshotRef",
    "remove-snapshot-ref": "RemoveSnapshotRef",
    "set-statistics": "SetStatistics",
    "remove-statistics": "RemoveStatistics",
    "set-partition-statistics": "SetPartitionStatistics",
    "remove-partition-statistics": "RemovePartitionStatistics",
    "add-encryption-key": "AddEncryptionKey",
    "remove-encryption-key": "RemoveEncryptionKey",
}
"""The updates that only tables have, with their names in Iceberg's messages."""


class ViewChange:
    """The state of a commit to a view while its updates are applied."""

    def __init__(self, source: MetadataSource, *, now_ms: int) -> None:
        self.edits = Edits(source, VIEW)
        self.now_ms = now_ms
        self.last_version: int | None = None
        self.last_schema: int | None = None
        self.schemas: list[ParsedSchema] | None = None
        self.added: set[int] = set()
        self.entry: Json | None = None

    def current(self) -> int:
        """The id of the current version, 0 for a new view."""
        return int(self.edits.field("current-version-id") or 0)


def updated_view(
    base: Mapping[str, Any] | None,
    requirements: Iterable[Any],
    updates: Iterable[Any],
    *,
    now_ms: int,
    new_uuid: str | None = None,
) -> Json:
    """Return the metadata of a view after a commit; `base` is not altered, and returned if nothing changes.

    `base` is None for a view to be created. Raises IcebergConflict and InvalidIcebergUpdate.
    """
    source = None if base is None else DocumentSource(base, VIEW)
    change = changed_view(source, requirements, updates, now_ms=now_ms, new_uuid=new_uuid)
    if base is not None and not change.edits.changed:
        return dict(base)
    return change.edits.document({}, dropped(change))


def dropped(change: ViewChange) -> list[str]:
    """Return the fields that the document must not have after the commit."""
    return [] if change.edits.properties else ["properties"]


def changed_view(
    source: MetadataSource | None,
    requirements: Iterable[Any],
    updates: Iterable[Any],
    *,
    now_ms: int,
    new_uuid: str | None = None,
) -> ViewChange:
    """Return the changes of a commit to a view that is read in parts; see `updated_view`."""
    conditions = read_requirements(requirements, kind="view")
    parsed = [_read(update) for update in updates]
    validate(conditions, source)
    empty: Json = {"view-uuid": None, "format-version": 1, "schemas": [], "versions": [], "version-log": []}
    change = ViewChange(DocumentSource(empty, VIEW) if source is None else source, now_ms=now_ms)
    for action, apply, value in parsed:
        try:
            apply(change, value)
        except UpdateRefusal as refused:
            raise error_of(action, refused) from None
    try:
        _finish(change, source, new_uuid)
    except UpdateRefusal as refused:
        raise error_of("commit", refused) from None
    return change


def _read(update: Any) -> tuple[str, Callable[[ViewChange, Any], None], Any]:
    action = "update"
    try:
        action = action_of(update)
        check_depth(update)
        if action in _OF_TABLES:
            # A malformed one is refused either way.
            return action, partial(_refuse, f"Cannot apply update {_OF_TABLES[action]} to a view"), update
        check(action in _HANDLERS, f"Cannot convert metadata update action to json: {action}")
        read, apply = _HANDLERS[action]
        return action, apply, read(update)
    except UpdateRefusal as refused:
        raise error_of(action, refused) from None


def _refuse(reason: str, _change: ViewChange, _value: Any) -> None:
    raise UpdateRefusal(reason)


def _assign_uuid(change: ViewChange, uuid: str) -> None:
    known = change.edits.field("view-uuid")
    check(known is None or known == uuid, "Cannot reassign uuid")
    if known is None:
        change.edits.set_field("view-uuid", uuid)
        change.edits.changed = True


def _upgrade(change: ViewChange, version: int) -> None:
    known = change.edits.field("format-version")
    check(version >= known, f"Cannot downgrade v{known} view to v{version}")
    if version != known:
        change.edits.set_field("format-version", version)
        change.edits.changed = True


def _set_location(change: ViewChange, location: str) -> None:
    if change.edits.field("location") != location:
        change.edits.set_field("location", location)
        change.edits.changed = True


def _set_properties(change: ViewChange, updates: dict[str, str]) -> None:
    if updates:
        change.edits.set_properties({**change.edits.properties, **updates})
        change.edits.changed = True


def _remove_properties(change: ViewChange, removals: list[str]) -> None:
    if removals:
        properties = change.edits.properties
        change.edits.set_properties({name: value for name, value in properties.items() if name not in removals})
        change.edits.changed = True


def _add_schema(change: ViewChange, schema: ParsedSchema) -> None:
    if change.schemas is None:
        change.schemas = [ParsedSchema(value) for value in change.edits.parts("schemas")]
    schema_id = next_schema_id(schema, change.schemas, first=0)
    if change.edits.has("schemas", schema_id):
        return
    value = schema.value(schema_id)
    change.edits.put("schemas", schema_id, value)
    change.schemas.append(ParsedSchema(value))
    change.edits.changed = True
    change.last_schema = schema_id


def _read_version(update: Any) -> Json:
    given = object_of(node("view-version", update), "Cannot parse view version from a non-object")
    version: Json = {"version-id": integer("version-id", given), "schema-id": integer("schema-id", given)}
    version["timestamp-ms"] = long("timestamp-ms", given)
    version["summary"] = string_map("summary", given)
    representations = node("representations", given)
    is_array = isinstance(representations, list)
    check(is_array, f"Cannot parse representations from non-array: {text_of(representations)}")
    version["representations"] = [_representation(representation) for representation in representations]
    catalog = string_or_none("default-catalog", given)
    namespace = node("default-namespace", given)
    check(isinstance(namespace, list), f"Cannot parse string array from non-array: {text_of(namespace)}")
    namespace = [_level(level) for level in namespace]
    check("\0" not in "".join(namespace), "Cannot create a namespace with the null-byte character")
    version |= {} if catalog is None else {"default-catalog": catalog}
    return {**version, "default-namespace": namespace, **dict(unknown(given, _VERSION))}


def _level(given: Any) -> str:
    """Return a level of a namespace; Iceberg takes numbers as texts, and lists and objects as empty ones."""
    if isinstance(given, list | dict):
        return ""
    return given if isinstance(given, str) else text_of(given)


def _representation(given: Any) -> Json:
    object_of(given, "Cannot parse view representation from non-object")
    type_ = string("type", given).lower()
    check(type_ == "sql", f"Cannot serialize unsupported view representation: {type_}")
    found: Json = {"type": type_, "sql": string("sql", given), "dialect": string("dialect", given)}
    return found | dict(unknown(given, frozenset(found)))


def _add_version(change: ViewChange, version: Json) -> None:
    version_id = version["version-id"]
    for known in change.edits.parts("versions"):
        if _content(known) == _content(version):
            known_id = known["version-id"]
            change.last_version = known_id if known_id in change.added else None
            return
        if known["version-id"] >= version_id:
            version_id = known["version-id"] + 1
    check(is_int(version_id), "There is no version id left")
    schema_id = version["schema-id"]
    if schema_id == LAST_ADDED:
        check(change.last_schema is not None, "Cannot set last added schema: no schema has been added")
        schema_id = change.last_schema
    check(change.edits.has("schemas", schema_id), f"Cannot add version with unknown schema: {schema_id}")
    dialects: set[str] = set()
    for representation in version["representations"]:
        dialect = representation["dialect"].lower()
        check(dialect not in dialects, f"Invalid view version: Cannot add multiple queries for dialect {dialect}")
        dialects.add(dialect)
    change.edits.put("versions", version_id, {**version, "version-id": version_id, "schema-id": schema_id})
    change.edits.changed = True
    change.added.add(version_id)
    change.last_version = version_id


def _read_version_id(update: Any) -> int:
    return integer("view-version-id", update)


def _set_current(change: ViewChange, version_id: int) -> None:
    if version_id == LAST_ADDED:
        reason = "Cannot set last version id: no current version id has been set"
        check(change.last_version is not None, reason)
    wanted = change.last_version if version_id == LAST_ADDED else version_id
    if change.current() == wanted:
        return
    version = change.edits.part("versions", wanted)
    check(version is not None, f"Cannot set current version to unknown version: {wanted}")
    change.edits.set_field("current-version-id", wanted)
    timestamp = version["timestamp-ms"] if wanted in change.added else change.now_ms
    change.entry = {"timestamp-ms": timestamp, "version-id": wanted}
    change.edits.changed = True


_HANDLERS: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[ViewChange, Any], None]]]] = {
    "assign-uuid": (read_uuid, _assign_uuid),
    "upgrade-format-version": (read_version, _upgrade),
    "set-location": (read_location, _set_location),
    "set-properties": (read_updates, _set_properties),
    "remove-properties": (read_removals, _remove_properties),
    "add-schema": (read_schema, _add_schema),
    "add-view-version": (_read_version, _add_version),
    "set-current-view-version": (_read_version_id, _set_current),
}


def _finish(change: ViewChange, base: MetadataSource | None, new_uuid: str | None) -> None:
    """Check and complete the result as Iceberg's builder does. Raises UpdateRefusal."""
    edits = change.edits
    check(edits.field("location") is not None, "Invalid location: null")
    check(edits.ids("versions"), "Invalid view: no versions were added")
    current = edits.part("versions", change.current())
    if current is None:
        raise UpdateRefusal(f"Cannot find current version {change.current()} in view versions: {edits.ids('versions')}")
    if change.entry is not None:
        edits.log("version-log", change.entry)
    if base is not None and str(edits.properties.get(DROP_DIALECT_ALLOWED)).lower() != "true":
        _check_dialects(base.part("versions", base.field("current-version-id")), current)
    _expire_versions(change, current)
    version = edits.field("format-version")
    check(0 < version <= NEWEST_VIEW_VERSION, f"Unsupported format version: {version}")
    known = edits.has("schemas", current["schema-id"])
    check(known, f"Cannot find current schema with id {current['schema-id']} in schemas: {edits.ids('schemas')}")
    if edits.field("view-uuid") is None:
        edits.set_field("view-uuid", new_uuid)


def _check_dialects(before: Json, after: Json) -> None:
    old, new = ([part["dialect"].lower() for part in version["representations"]] for version in (before, after))
    shown = [f"[{', '.join(dict.fromkeys(dialects))}]" for dialects in (old, new)]
    lost = f"Cannot replace view due to loss of view dialects ({DROP_DIALECT_ALLOWED}=false):"
    check(set(old) <= set(new), f"{lost}\nPrevious dialects: {shown[0]}\nNew dialects: {shown[1]}")


def _expire_versions(change: ViewChange, current: Json) -> None:
    """Keep the current version, those of this commit, and the newest up to HISTORY_SIZE, and the log since a gap."""
    edits = change.edits
    limit = edits.properties.get(HISTORY_SIZE)
    size = DEFAULT_HISTORY_SIZE if limit is None else number_from(limit)
    check(size > 0, f"{HISTORY_SIZE} must be positive but was {size}")
    most = max(len({*change.added, current["version-id"]}), size)
    ids = edits.ids("versions")
    if len(ids) <= most:
        return
    newest = sorted(ids, reverse=True)[:most]
    kept = [current["version-id"], *(id_ for id_ in newest if id_ != current["version-id"])][:most]
    edits.keep_only("versions", kept)
    log: list[Json] = []
    for entry in edits.entries("version-log"):
        if entry["version-id"] in kept:
            log.append(entry)
        else:
            log = []
    edits.replace_log("version-log", log)


def _content(version: Json) -> tuple[Any, ...]:
    """Return what makes two versions the same (Iceberg's ViewMetadata.Builder)."""
    representations = [(part["sql"], part["dialect"]) for part in version["representations"]]
    optional = version.get("default-catalog"), version["default-namespace"]
    return version["summary"], representations, *optional, version["schema-id"]
