"""Ids assigned by the catalog, not by clients (NoSQL persistence proposal, Iceberg REST - Fine Granular Updates).

The functions take and return JSON values as a REST layer has them, alter no argument and keep unknown fields.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from delegation.persistence.backends.base import MAX_ID
from delegation.persistence.errors import IcebergConflict, InvalidIcebergMetadata
from delegation.persistence.iceberg.layout import Json
from delegation.persistence.iceberg.log import same

FIRST_PARTITION_ID: Final = 1000
_NESTED: Final = (("element", "element-id"), ("key", "key-id"), ("value", "value-id"))


Renumbered = tuple[Json, dict[int, int], int]
"""A schema with new field ids, the map from its old ids to the new ones, and the last id given."""


class TableIds(NamedTuple):
    """Schema, spec and sort order of a new table with their ids, and the counters for the ids after them."""

    schema: Json
    spec: Json
    order: Json
    last_column_id: int
    last_partition_id: int


def fresh_field_ids(schema: Mapping[str, Any], *, last: int = 0) -> Renumbered:
    """Number the fields of a schema anew from `last` + 1 on.

    A struct's direct fields come before what is nested in them, as in Iceberg's TypeUtil.assignFreshIds. Raises
    InvalidIcebergMetadata for a schema that gives one id to two fields.
    """
    return _renumbered(schema, {}, last)


def evolved_field_ids(schema: Mapping[str, Any], base: Mapping[str, Any], *, last: int) -> Renumbered:
    """Give a field the id that `base` gives to its full name, otherwise a new one after `last`.

    So two clients that each added a column need not agree on ids, and a client that knows an old schema loses nothing.
    """
    return _renumbered(schema, names(base), last)


def names(schema: Mapping[str, Any]) -> dict[tuple[str, ...], int]:
    """Return the ids of all fields by full name; list elements, map keys and values have the names of the spec."""
    found: dict[tuple[str, ...], int] = {}

    def collect(value: Any, path: tuple[str, ...]) -> None:
        if not isinstance(value, dict):
            return
        for field in value.get("fields", ()):
            found[*path, field["name"]] = field["id"]
            collect(field["type"], (*path, field["name"]))
        for name, id_name in _NESTED:
            if id_name in value:
                found[*path, name] = value[id_name]
                collect(value[name], (*path, name))

    collect(schema, ())
    return found


def highest_field_id(schema: Mapping[str, Any]) -> int:
    """Return the highest id in a schema, 0 for none."""
    return max(names(schema).values(), default=0)


def schema_id(schema: Mapping[str, Any], known: Iterable[Mapping[str, Any]]) -> int:
    """Return the id of an equal schema among `known` (same struct and identifier fields), else the next: 0, 1, 2…"""
    return _id_among(schema, list(known), "schema-id", first=0)


def sort_order_id(order: Mapping[str, Any], known: Iterable[Mapping[str, Any]]) -> int:
    """Return 0 for an order without fields, the id of an equal order among `known`, else the next: 1, 2…"""
    if not order.get("fields"):
        return 0
    return _id_among(order, [one for one in known if one.get("fields")], "order-id", first=1)


def partition_spec(
    spec: Mapping[str, Any], known: Sequence[Mapping[str, Any]], *, last: int = FIRST_PARTITION_ID - 1
) -> tuple[Json, int]:
    """Return a spec with its ids, and the last partition field id.

    A known spec that differs in field ids only is returned as it is. Otherwise a field keeps the id that the client
    sent; without one it has that of the same source and transform in a known spec, else the next after `last` (Iceberg
    Table Spec, Partition Evolution). Raises IcebergConflict for a sent id that belongs to another field.
    """
    for one in known:
        if _without_field_ids(one) == _without_field_ids(spec):
            return dict(one), last
    owners = {field["field-id"]: field for one in known for field in one["fields"] if "field-id" in field}
    ids = {_field_identity(field): id_ for id_, field in owners.items()}
    sent = [field for field in spec.get("fields", ()) if field.get("field-id") is not None]
    for field in sent:
        owner = owners.setdefault(field["field-id"], field)
        if _field_identity(owner) != _field_identity(field):
            raise IcebergConflict(
                f"partition field id {field['field-id']} of {field.get('name')!r} belongs to another field, "
                f"{owner.get('name')!r}; load the table again and assign the next id"
            )
    last = max([last, *(field["field-id"] for field in sent)])
    fields: list[Json] = []
    for field in spec.get("fields", ()):
        field_id = field.get("field-id")
        if field_id is None:
            field_id = ids.get(_field_identity(field))
        if field_id is None:
            last += 1
            field_id = last
        fields.append({**field, "field-id": field_id})
    numbered: Json = {**spec, "fields": fields}
    return {**numbered, "spec-id": _id_among(numbered, list(known), "spec-id", first=0)}, last


def rebound(fields: Iterable[Mapping[str, Any]], ids: Mapping[int, int]) -> list[Json]:
    """Return the fields with their sources under new ids. Raises InvalidIcebergMetadata for an unknown source."""
    try:
        return [
            {
                **field,
                **({"source-id": ids[field["source-id"]]} if "source-id" in field else {}),
                **({"source-ids": [ids[one] for one in field["source-ids"]]} if "source-ids" in field else {}),
            }
            for field in fields
        ]
    except KeyError as error:
        raise InvalidIcebergMetadata(f"source {error} is not in the schema") from error


def new_table_ids(
    schema: Mapping[str, Any], spec: Mapping[str, Any] | None, order: Mapping[str, Any] | None
) -> TableIds:
    """Return the parts of a new table under ids of the catalog. Raises InvalidIcebergMetadata for invalid parts."""
    fresh, ids, last_column = fresh_field_ids(schema)
    sources = [
        {name: value for name, value in one.items() if name != "field-id"} for one in (spec or {}).get("fields", ())
    ]
    numbered, last_partition = partition_spec({"fields": rebound(sources, ids)}, [])
    sorting: Json = {"fields": rebound((order or {}).get("fields", ()), ids)}
    return TableIds(
        schema={**fresh, "schema-id": 0},
        spec=numbered,
        order={**sorting, "order-id": sort_order_id(sorting, [])},
        last_column_id=last_column,
        last_partition_id=last_partition,
    )


def new_snapshot_id(draw: Callable[[], int], used: Callable[[int], bool]) -> int:
    """Return an id that no snapshot of the table has; `draw` returns random integers of at least 63 bits."""
    while True:
        drawn = draw() & MAX_ID
        if drawn and not used(drawn):
            return drawn


def _renumbered(schema: Mapping[str, Any], given: Mapping[tuple[str, ...], int], last: int) -> Renumbered:
    ids: dict[int, int] = {}

    def number(old: int, path: tuple[str, ...]) -> int:
        nonlocal last
        if old in ids:
            raise InvalidIcebergMetadata(f"field id {old} is given twice")
        if path in given:
            ids[old] = given[path]
        else:
            last += 1
            ids[old] = last
        return ids[old]

    def renumbered(value: Any, path: tuple[str, ...]) -> Any:
        if not isinstance(value, Mapping):
            return value
        result = dict(value)
        if "fields" in value:
            fields = [{**one, "id": number(one["id"], (*path, one["name"]))} for one in value["fields"]]
            result["fields"] = [{**one, "type": renumbered(one["type"], (*path, one["name"]))} for one in fields]
        nested = [(name, id_name) for name, id_name in _NESTED if id_name in value]
        result |= {id_name: number(value[id_name], (*path, name)) for name, id_name in nested}
        return result | {name: renumbered(value[name], (*path, name)) for name, _ in nested}

    try:
        result: Json = renumbered(schema, ())
        if "identifier-field-ids" in schema:
            result["identifier-field-ids"] = [ids[old] for old in schema["identifier-field-ids"]]
    except (KeyError, TypeError) as error:
        raise InvalidIcebergMetadata(f"not a schema: {error}") from error
    return result, ids, last


def _id_among(value: Mapping[str, Any], known: Sequence[Mapping[str, Any]], id_name: str, *, first: int) -> int:
    content = {name: part for name, part in value.items() if name != id_name and part not in (None, [])}
    for one in known:
        if same(content, {name: part for name, part in one.items() if name != id_name and part not in (None, [])}):
            return int(one[id_name])
    return max((int(one[id_name]) for one in known), default=first - 1) + 1


def _without_field_ids(spec: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return what makes two specs compatible (Iceberg's PartitionSpec.compatibleWith)."""
    return [(field.get("name"), *_field_identity(field)) for field in spec.get("fields", ())]


def _field_identity(field: Mapping[str, Any]) -> tuple[Any, ...]:
    sources = field.get("source-ids") or [field.get("source-id")]
    return (*sources, field.get("transform"))
