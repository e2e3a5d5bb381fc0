"""Creates table metadata as JSON objects, checks a commit's requirements and applies its updates.

Values are not converted, so 64-bit ids and unknown fields stay as the client wrote them.
Iceberg Table Spec, Table Metadata; Iceberg REST specification, TableUpdate and TableRequirement.
"""

import copy
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from infra.local.catalog.errors import bad_request, commit_failed

JsonObject = dict[str, Any]

MAIN = "main"
FIRST_PARTITION_ID = 1000
LAST_ADDED = -1
DEFAULT_FORMAT_VERSION = 2
PREVIOUS_VERSIONS = "write.metadata.previous-versions-max"
DEFAULT_PREVIOUS_VERSIONS = 100


def new_metadata(request: Mapping[str, Any], location: str, *, now_ms: int) -> JsonObject:
    """Return the metadata of a table for a CreateTableRequest, with newly assigned field ids and no snapshot."""
    properties = dict(request.get("properties") or {})
    version = int(properties.pop("format-version", DEFAULT_FORMAT_VERSION))
    schema, fresh = with_fresh_ids(request["schema"])
    spec = request.get("partition-spec") or {"fields": []}
    order = request.get("write-order") or {"fields": []}
    metadata = empty_metadata(location) | {
        "format-version": version,
        "table-uuid": str(uuid.uuid4()),
        "last-updated-ms": now_ms,
        "last-column-id": max(fresh.values(), default=0),
        "schemas": [schema],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": _with_sources(spec["fields"], fresh)}],
        "default-spec-id": 0,
        "properties": properties,
    }
    for number, field in enumerate(metadata["partition-specs"][0]["fields"]):
        field["field-id"] = FIRST_PARTITION_ID + number
        metadata["last-partition-id"] = field["field-id"]
    order_id = 1 if order["fields"] else 0
    metadata["sort-orders"] = [{"order-id": order_id, "fields": _with_sources(order["fields"], fresh)}]
    metadata["default-sort-order-id"] = order_id
    if version == 1:
        del metadata["last-sequence-number"]
        _mirror_for_version_1(metadata)
    if version > 2:
        metadata["next-row-id"] = 0
    return metadata


def with_fresh_ids(schema: Mapping[str, Any]) -> tuple[JsonObject, dict[int, int]]:
    """Return `schema` numbered from 1, a struct's fields before their nested ones, and the map of old to new ids."""
    fresh: dict[int, int] = {}

    def number(old: int) -> int:
        fresh[old] = len(fresh) + 1
        return fresh[old]

    def renumbered(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ids = {name: number(value[name]) for name in ("element-id", "key-id", "value-id") if name in value}
        nested = {name: renumbered(value[name]) for name in ("element", "key", "value") if name in value}
        fields = [{**field, "id": number(field["id"])} for field in value.get("fields", [])]
        if "fields" in value:
            nested["fields"] = [{**field, "type": renumbered(field["type"])} for field in fields]
        return {**value, **ids, **nested}

    result: JsonObject = renumbered(schema) | {"schema-id": 0}
    if "identifier-field-ids" in schema:
        result["identifier-field-ids"] = [fresh[old] for old in schema["identifier-field-ids"]]
    return result, fresh


def _with_sources(fields: Iterable[Mapping[str, Any]], fresh: Mapping[int, int]) -> list[JsonObject]:
    return [{**field, "source-id": fresh[field["source-id"]]} for field in fields]


def empty_metadata(location: str) -> JsonObject:
    """Return the metadata that a staged table's first commit (assert-create) is applied to."""
    return {
        "format-version": 2,
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "schemas": [],
        "partition-specs": [],
        "last-partition-id": FIRST_PARTITION_ID - 1,
        "sort-orders": [],
        "properties": {},
        "snapshots": [],
        "refs": {},
        "snapshot-log": [],
        "metadata-log": [],
    }


def check(requirements: Iterable[Mapping[str, Any]], base: Mapping[str, Any] | None) -> None:
    """Raise RestError 409 CommitFailedException for a requirement that `base` (None for no table) does not meet."""
    for requirement in requirements:
        kind = requirement["type"]
        if kind == "assert-create":
            met = base is None
        elif base is None:
            met = False
        elif kind == "assert-table-uuid":
            met = str(base["table-uuid"]).lower() == str(requirement["uuid"]).lower()
        elif kind == "assert-ref-snapshot-id":
            met = _ref(base, requirement["ref"]) == requirement.get("snapshot-id")
        elif (name := _ASSERTED.get(kind)) is not None:
            met = base.get(name) == requirement[kind.removeprefix("assert-")]
        else:
            raise bad_request(f"Unknown requirement: {kind}")
        if not met:
            raise commit_failed(f"Requirement failed: {kind}")


# requirement -> the metadata field it checks; the requirement's field has its name without `assert-`
_ASSERTED = {
    "assert-current-schema-id": "current-schema-id",
    "assert-last-assigned-field-id": "last-column-id",
    "assert-last-assigned-partition-id": "last-partition-id",
    "assert-default-spec-id": "default-spec-id",
    "assert-default-sort-order-id": "default-sort-order-id",
}


def apply(
    updates: Iterable[Mapping[str, Any]], base: JsonObject, *, now_ms: int, previous_location: str | None
) -> JsonObject:
    """Return a copy of `base` with `updates` applied; raise RestError 400 for an invalid update."""
    metadata = copy.deepcopy(base)
    added: set[int] = set()
    metadata["last-updated-ms"] = now_ms
    for update in updates:
        action = update.get("action")
        if action == "add-snapshot":
            added.add(_add_snapshot(metadata, update["snapshot"]))
        elif action == "set-snapshot-ref":
            _set_ref(metadata, update, added)
        else:
            apply_one = _UPDATES.get(str(action))
            if apply_one is None:
                raise bad_request(f"Unknown update: {action}")
            apply_one(metadata, update)
    if metadata["format-version"] == 1:
        _mirror_for_version_1(metadata)
    if previous_location is not None:
        _log(metadata, previous_location, base["last-updated-ms"])
    return metadata


def _mirror_for_version_1(metadata: JsonObject) -> None:
    """Set the two fields that version 1 readers use; later versions replaced them by lists."""
    metadata["schema"] = _by_id(metadata["schemas"], "schema-id", metadata["current-schema-id"])
    metadata["partition-spec"] = _by_id(metadata["partition-specs"], "spec-id", metadata["default-spec-id"])["fields"]


def _log(metadata: JsonObject, location: str, timestamp_ms: int) -> None:
    keep = int(metadata.get("properties", {}).get(PREVIOUS_VERSIONS, DEFAULT_PREVIOUS_VERSIONS))
    log = [*metadata.get("metadata-log", []), {"metadata-file": location, "timestamp-ms": timestamp_ms}]
    metadata["metadata-log"] = log[-max(1, keep) :]


def _ref(metadata: Mapping[str, Any], name: str) -> int | None:
    ref = (metadata.get("refs") or {}).get(name)
    if ref is None and name == MAIN:
        current = metadata.get("current-snapshot-id")
        return None if current in {None, -1} else int(str(current))
    return None if ref is None else int(ref["snapshot-id"])


def _add_snapshot(metadata: JsonObject, snapshot: JsonObject) -> int:
    snapshot_id = int(snapshot["snapshot-id"])
    if any(known["snapshot-id"] == snapshot_id for known in metadata.get("snapshots", [])):
        raise bad_request(f"Snapshot already exists: {snapshot_id}")
    sequence = snapshot.get("sequence-number", 0)
    if metadata["format-version"] > 1:
        if sequence <= metadata["last-sequence-number"] and snapshot.get("parent-snapshot-id") is not None:
            raise commit_failed(f"Sequence number {sequence} is not after {metadata['last-sequence-number']}")
        metadata["last-sequence-number"] = sequence
    if metadata["format-version"] > 2:
        metadata["next-row-id"] = metadata.get("next-row-id", 0) + snapshot.get("added-rows", 0)
    metadata.setdefault("snapshots", []).append(snapshot)
    metadata["last-updated-ms"] = snapshot["timestamp-ms"]
    return snapshot_id


def _set_ref(metadata: JsonObject, update: Mapping[str, Any], added: set[int]) -> None:
    name, snapshot_id = update["ref-name"], int(update["snapshot-id"])
    snapshot = _by_id(metadata.get("snapshots", []), "snapshot-id", snapshot_id)
    ref = {
        field: update[field] for field in update if field not in {"action", "ref-name"} and update[field] is not None
    }
    metadata.setdefault("refs", {})[name] = ref
    if name == MAIN:
        metadata["current-snapshot-id"] = snapshot_id
        timestamp = snapshot["timestamp-ms"] if snapshot_id in added else metadata["last-updated-ms"]
        metadata.setdefault("snapshot-log", []).append({"snapshot-id": snapshot_id, "timestamp-ms": timestamp})


def _remove_snapshots(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    removed = {int(snapshot_id) for snapshot_id in update["snapshot-ids"]}
    for name in ("snapshots", "snapshot-log", "statistics", "partition-statistics"):
        if name in metadata:
            metadata[name] = [entry for entry in metadata[name] if entry["snapshot-id"] not in removed]
    for name in [name for name, ref in metadata.get("refs", {}).items() if ref["snapshot-id"] in removed]:
        _remove_ref(metadata, {"ref-name": name})


def _remove_ref(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    metadata.get("refs", {}).pop(update["ref-name"], None)
    if update["ref-name"] == MAIN:
        metadata.pop("current-snapshot-id", None)


def _add_schema(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    schema = _add(metadata["schemas"], "schema-id", update["schema"])
    metadata["last-column-id"] = max(metadata["last-column-id"], update.get("last-column-id") or 0, *_field_ids(schema))


def _field_ids(value: object) -> list[int]:
    """Return every id in a schema: of fields, list elements, map keys and values; the first one is 0."""
    ids = [0]
    if isinstance(value, dict):
        ids += [value[name] for name in ("id", "element-id", "key-id", "value-id") if isinstance(value.get(name), int)]
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            ids += _field_ids(part)
    return ids


def _add_spec(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    spec = copy.deepcopy(update["spec"])
    last = metadata["last-partition-id"]
    for field in spec["fields"]:
        last = max(last, field.setdefault("field-id", last + 1))
    _add(metadata["partition-specs"], "spec-id", spec)
    metadata["last-partition-id"] = last


def _add_sort_order(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    _add(metadata["sort-orders"], "order-id", update["sort-order"])


def _add(known: list[JsonObject], id_name: str, value: Mapping[str, Any]) -> JsonObject:
    """Add an object under its id, or under a new one if another object has that; do not add an equal object again.

    The added or equal object is moved to the end of the list, where -1 in the following `set-…` update refers to it.
    """
    content = {name: part for name, part in value.items() if name != id_name}
    for entry in known:
        if {name: part for name, part in entry.items() if name != id_name} == content:
            known.remove(entry)
            known.append(entry)
            return entry
    used = {entry[id_name] for entry in known}
    own = value.get(id_name)
    added = {**value, id_name: own if own is not None and own >= 0 and own not in used else max(used, default=-1) + 1}
    known.append(added)
    return added


def _set_current(list_name: str, id_name: str, current_name: str) -> Callable[[JsonObject, Mapping[str, Any]], None]:
    def set_current(metadata: JsonObject, update: Mapping[str, Any]) -> None:
        wanted = update[id_name] if id_name in update else update["sort-order-id"]
        known = metadata[list_name]
        chosen = known[-1][id_name] if wanted == LAST_ADDED else _by_id(known, id_name, wanted)[id_name]
        known.sort(key=lambda entry: int(entry[id_name]))
        metadata[current_name] = chosen

    return set_current


def _assign_uuid(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    if metadata.setdefault("table-uuid", update["uuid"]) != update["uuid"]:
        raise bad_request("Cannot reassign the table's uuid")


def _upgrade(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    if update["format-version"] < metadata["format-version"]:
        raise bad_request("Cannot downgrade the format version")
    metadata["format-version"] = update["format-version"]
    if metadata["format-version"] > 1:
        metadata.pop("schema", None)
        metadata.pop("partition-spec", None)
        metadata.setdefault("last-sequence-number", 0)
    if metadata["format-version"] > 2:
        metadata.setdefault("next-row-id", 0)


def _replace_statistics(list_name: str, part: str) -> Callable[[JsonObject, Mapping[str, Any]], None]:
    def replace(metadata: JsonObject, update: Mapping[str, Any]) -> None:
        statistics = update[part]
        others = [s for s in metadata.get(list_name, []) if s["snapshot-id"] != statistics["snapshot-id"]]
        metadata[list_name] = [*others, statistics]

    return replace


def _remove(list_name: str, id_name: str, wanted: str) -> Callable[[JsonObject, Mapping[str, Any]], None]:
    def remove(metadata: JsonObject, update: Mapping[str, Any]) -> None:
        removed = update[wanted]
        removed = set(removed) if isinstance(removed, list) else {removed}
        metadata[list_name] = [entry for entry in metadata.get(list_name, []) if entry[id_name] not in removed]

    return remove


def _set_location(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    metadata["location"] = update["location"].rstrip("/")


def _set_properties(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    metadata.setdefault("properties", {}).update(update["updates"])


def _remove_properties(metadata: JsonObject, update: Mapping[str, Any]) -> None:
    for name in update["removals"]:
        metadata.get("properties", {}).pop(name, None)


def _by_id(known: Iterable[JsonObject], id_name: str, wanted: int) -> JsonObject:
    for entry in known:
        if entry[id_name] == wanted:
            return entry
    raise bad_request(f"Unknown {id_name}: {wanted}")


_UPDATES: dict[str, Callable[[JsonObject, Mapping[str, Any]], None]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade,
    "set-location": _set_location,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "add-schema": _add_schema,
    "set-current-schema": _set_current("schemas", "schema-id", "current-schema-id"),
    "remove-schemas": _remove("schemas", "schema-id", "schema-ids"),
    "add-spec": _add_spec,
    "set-default-spec": _set_current("partition-specs", "spec-id", "default-spec-id"),
    "remove-partition-specs": _remove("partition-specs", "spec-id", "spec-ids"),
    "add-sort-order": _add_sort_order,
    "set-default-sort-order": _set_current("sort-orders", "order-id", "default-sort-order-id"),
    "remove-snapshots": _remove_snapshots,
    "remove-snapshot-ref": _remove_ref,
    "set-statistics": _replace_statistics("statistics", "statistics"),
    "remove-statistics": _remove("statistics", "snapshot-id", "snapshot-id"),
    "set-partition-statistics": _replace_statistics("partition-statistics", "partition-statistics"),
    "remove-partition-statistics": _remove("partition-statistics", "snapshot-id", "snapshot-id"),
}
