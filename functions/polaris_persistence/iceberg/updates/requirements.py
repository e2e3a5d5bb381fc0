"""The requirements of a commit (Iceberg's UpdateRequirement; Iceberg REST specification, TableRequirement)."""

from collections.abc import Callable
from typing import Any, Final

from polaris_persistence.iceberg.updates.change import old_ref
from polaris_persistence.iceberg.updates.edits import MetadataSource
from polaris_persistence.iceberg.updates.values import (
    UpdateRefusal,
    check,
    integer,
    long_or_none,
    object_of,
    string,
)

Requirement = Callable[[MetadataSource | None], None]
"""Raises UpdateRefusal, stale, if a document (None for no table or view) does not meet the requirement."""

_COUNTERS: Final = {
    "assert-last-assigned-field-id": ("last-assigned-field-id", "last-column-id", "last assigned field id"),
    "assert-last-assigned-partition-id": (
        "last-assigned-partition-id",
        "last-partition-id",
        "last assigned partition id",
    ),
}
"""Requirements that a missing table also meets: the requirement's field, the document's, the name in a message."""
_CURRENT: Final = {
    "assert-current-schema-id": ("current-schema-id", "current-schema-id", "current schema"),
    "assert-default-spec-id": ("default-spec-id", "default-spec-id", "default partition spec"),
    "assert-default-sort-order-id": ("default-sort-order-id", "default-sort-order-id", "default sort order"),
}
_CLASSES: Final = {
    "assert-create": "AssertTableDoesNotExist",
    "assert-table-uuid": "AssertTableUUID",
    "assert-view-uuid": "AssertViewUUID",
    "assert-ref-snapshot-id": "AssertRefSnapshotID",
    "assert-last-assigned-field-id": "AssertLastAssignedFieldId",
    "assert-last-assigned-partition-id": "AssertLastAssignedPartitionId",
    "assert-current-schema-id": "AssertCurrentSchemaID",
    "assert-default-spec-id": "AssertDefaultSpecID",
    "assert-default-sort-order-id": "AssertDefaultSortOrderID",
}


def type_of(requirement: Any) -> str:
    """Return the type of a requirement in lower case. Raises UpdateRefusal."""
    object_of(requirement, "Cannot parse update requirement from non-object value")
    check(requirement.get("type") is not None, "Cannot parse update requirement. Missing field: type")
    return string("type", requirement).lower()


def read_requirement(requirement: Any, *, kind: str) -> Requirement:
    """Parse a requirement on a table or view, which `kind` names. Raises UpdateRefusal."""
    type_ = type_of(requirement)
    if type_ not in _CLASSES:
        raise UpdateRefusal(f"Unrecognized update requirement. Cannot convert to json: {type_}")
    found = _read(type_, requirement)
    if (type_ == "assert-view-uuid") != (kind == "view"):
        return _not_for(f"Cannot validate {_CLASSES[type_]} against a {kind}")
    return found


def _read(type_: str, requirement: Any) -> Requirement:
    if type_ == "assert-create":
        return _no_table
    if type_ in ("assert-table-uuid", "assert-view-uuid"):
        return _has_uuid(string("uuid", requirement), kind="view" if type_ == "assert-view-uuid" else "table")
    if type_ == "assert-ref-snapshot-id":
        return _has_ref(string("ref", requirement), long_or_none("snapshot-id", requirement))
    field, stored, what = (_COUNTERS | _CURRENT)[type_]
    return _has(integer(field, requirement), stored, what, needs_table=type_ in _CURRENT)


def _not_for(reason: str) -> Requirement:
    def validate(_base: MetadataSource | None) -> None:
        raise UpdateRefusal(reason)

    return validate


def _fail(reason: str) -> UpdateRefusal:
    return UpdateRefusal(f"Requirement failed: {reason}", stale=True)


def _no_table(base: MetadataSource | None) -> None:
    if base is not None:
        raise _fail("table already exists")


def _has_uuid(uuid: str, *, kind: str) -> Requirement:
    def validate(base: MetadataSource | None) -> None:
        if base is None:
            raise _fail(f"{kind} does not exist")
        found = base.field(f"{kind}-uuid")
        if not isinstance(found, str) or found.lower() != uuid.lower():
            name = "UUID" if kind == "table" else "view UUID"
            raise _fail(f"{name} does not match: expected {found} != {uuid}")

    return validate


def _has_ref(name: str, snapshot_id: int | None) -> Requirement:
    def validate(base: MetadataSource | None) -> None:
        if base is None:
            raise _fail("table does not exist")
        ref = old_ref(base, name)
        if ref is None:
            if snapshot_id is not None:
                raise _fail(f"branch or tag {name} is missing, expected {snapshot_id}")
        elif snapshot_id is None:
            raise _fail(f"{ref['type'].lower()} {name} was created concurrently")
        elif snapshot_id != ref["snapshot-id"]:
            changed = f"{ref['type'].lower()} {name} has changed"
            raise _fail(f"{changed}: expected id {snapshot_id} != {ref['snapshot-id']}")

    return validate


def _has(wanted: int, stored: str, what: str, *, needs_table: bool) -> Requirement:
    def validate(base: MetadataSource | None) -> None:
        if base is None:
            if needs_table:
                raise _fail("table does not exist")
            return
        found = base.field(stored)
        if found != wanted:
            raise _fail(f"{what} changed: expected id {wanted} != {found}")

    return validate
