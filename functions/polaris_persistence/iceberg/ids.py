"""Ids assigned by the catalog, not by clients (NoSQL persistence proposal, Iceberg REST - Fine Granular Updates).

The functions take and return JSON values as a REST layer has them, alter no argument and keep unknown fields.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from polaris_persistence.backends.base import MAX_ID
from polaris_persistence.errors import InvalidIcebergMetadata
from polaris_persistence.iceberg.layout import FIRST_PARTITION_ID, Json

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
    """Number the fields of a schema again, from `last` + 1 on.

    A struct's direct fields come before nested ones, as in Iceberg's TypeUtil.assignFreshIds. Raises
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


def rebound(fields: Iterable[Mapping[str, Any]], ids: Mapping[int, int]) -> list[Json]:
    """Return the fields with their sources under new ids. Raises InvalidIcebergMetadata for an unknown source."""
    try:
        return [
            {
                **field,
                **({"source-id": ids[field["source-id"]]} if "source-id" in field else {}),
                **({"source-ids": [ids[source] for source in field["source-ids"]]} if "source-ids" in field else {}),
            }
            for field in fields
        ]
    except KeyError as error:
        raise InvalidIcebergMetadata(f"source {error} is not in the schema") from error


def new_table_ids(
    schema: Mapping[str, Any], spec: Mapping[str, Any] | None, order: Mapping[str, Any] | None
) -> TableIds:
    """Return the parts of a new table under the catalog's ids. Raises InvalidIcebergMetadata for invalid parts."""
    fresh, ids, last_column = fresh_field_ids(schema)
    sources = rebound((spec or {}).get("fields", ()), ids)
    partitions = [{**field, "field-id": FIRST_PARTITION_ID + at} for at, field in enumerate(sources)]
    sorting = rebound((order or {}).get("fields", ()), ids)
    return TableIds(
        schema={**fresh, "schema-id": 0},
        spec={"fields": partitions, "spec-id": 0},
        order={"fields": sorting, "order-id": 1 if sorting else 0},
        last_column_id=last_column,
        last_partition_id=FIRST_PARTITION_ID - 1 + len(partitions),
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
            fields = [{**item, "id": number(item["id"], (*path, item["name"]))} for item in value["fields"]]
            result["fields"] = [{**item, "type": renumbered(item["type"], (*path, item["name"]))} for item in fields]
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
