"""Schemas as Iceberg parses, checks and writes them (Iceberg Table Spec, Schemas; Iceberg's SchemaParser).

Nested types are walked with an explicit stack: a client chooses how deep they nest.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from polaris_persistence.iceberg.layout import Json
from polaris_persistence.iceberg.log import same
from polaris_persistence.iceberg.updates.defaults import default_value
from polaris_persistence.iceberg.updates.types import (
    SINCE_3,
    field_name,
    is_primitive,
    kind_of,
    type_name,
    type_text,
)
from polaris_persistence.iceberg.updates.values import (
    UpdateRefusal,
    boolean,
    check,
    integer,
    integer_or_none,
    integers,
    node,
    string,
    string_or_none,
    text_of,
    unknown,
)

_NESTED: Final = frozenset({"struct", "list", "map"})
_FIELD: Final = frozenset({"id", "name", "required", "type", "doc", "initial-default", "write-default"})
_STRUCT: Final = frozenset({"type", "schema-id", "identifier-field-ids", "fields"})
_LIST: Final = frozenset({"type", "element-id", "element", "element-required"})
_MAP: Final = frozenset({"type", "key-id", "key", "value-id", "value", "value-required"})
_INITIAL_DEFAULTS_SINCE: Final = 3
MAX_NAMES: Final = 16_000_000
"""The most characters that the full names of a schema's fields may have together: long names multiply by nesting."""

_Child = tuple[Any, Json, str]
"""A type that is still to be parsed, and the object and field that hold it."""


@dataclass(frozen=True)
class Fields:
    """The fields of a schema, with elements, keys and values: by id, by full name, and their parents."""

    by_id: dict[int, Json]
    parents: dict[int, int]
    names: dict[str, int]
    short_names: dict[str, int]

    @cached_property
    def name_of(self) -> dict[int, str]:
        """The full name of each field id. Raises UpdateRefusal for an id that two fields have."""
        found: dict[int, str] = {}
        for name, field_id in self.names.items():
            if field_id in found:
                first = f"{field_id}={found[field_id]}"
                raise UpdateRefusal(f"Multiple entries with same key: {first} and {field_id}={name}")
            found[field_id] = name
        return found

    def find(self, name: str) -> Json | None:
        """Return the field of a name, full or without the elements and values around it. Raises UpdateRefusal."""
        check(name, "Invalid column name: (empty)")
        field_id = self.names.get(name, self.short_names.get(name))
        return None if field_id is None else self.by_id[field_id]

    def type_of(self, field_id: int) -> Any:
        field = self.by_id.get(field_id)
        return None if field is None else field["type"]


class ParsedSchema:
    """A schema that Iceberg reads; `value` is its JSON, with the fields that this release does not know."""

    def __init__(self, given: Any) -> None:
        """Parse a schema. Raises UpdateRefusal."""
        self.core = _parsed(given, keep=False)
        is_struct = isinstance(self.core, dict) and self.core["type"] == "struct"
        check(is_struct, f"Cannot create schema, not a struct type: {type_name(self.core)}")
        self.schema_id = integer_or_none("schema-id", given) or 0
        ids = given.get("identifier-field-ids")
        self.identifiers = [] if ids is None else integers("identifier-field-ids", given, "set")
        self.fields = _index(self.core)
        # Unique ids are checked first: an element with the id of its list is its own parent, and Iceberg's check of
        # identifier fields does not end.
        self.highest = max(self.fields.name_of, default=0)
        for field_id in self.identifiers:
            _check_identifier(field_id, self.fields)
        self._given = given

    @property
    def columns(self) -> list[Json]:
        found: list[Json] = self.core["fields"]
        return found

    def value(self, schema_id: int) -> Json:
        """Return the JSON of the schema under an id, as Iceberg writes it, and with unknown fields."""
        ids = {"identifier-field-ids": self.identifiers} if self.identifiers else {}
        parsed = _parsed(self._given, keep=True)
        return {"type": "struct", "schema-id": schema_id, **ids, **dict(unknown(parsed, _STRUCT)), **_fields_of(parsed)}

    def same(self, other: "ParsedSchema") -> bool:
        """Return whether both have the same fields and identifiers, regardless of their ids."""
        return same(self.core, other.core) and set(self.identifiers) == set(other.identifiers)

    def check_version(self, version: int) -> None:
        """Raise UpdateRefusal for types and defaults that the format version does not have."""
        problems: dict[int, str] = {}
        for field_id, field in self.fields.by_id.items():
            name = self.fields.name_of.get(field_id)
            if kind_of(field["type"]) in SINCE_3 and version < _INITIAL_DEFAULTS_SINCE:
                problems[field_id] = f"Invalid type for {name}: {type_name(field['type'])} is not supported until v3"
            if "initial-default" in field and version < _INITIAL_DEFAULTS_SINCE:
                value = field["initial-default"]
                shown = value if isinstance(value, str) else text_of(value)
                problems[field_id] = (
                    f"Invalid initial default for {name}: non-null default ({shown}) is not supported until v3"
                )
        if problems:
            raise UpdateRefusal(
                f"Invalid schema for v{version}:" + "".join(f"\n- {problems[key]}" for key in sorted(problems))
            )


def next_schema_id(schema: ParsedSchema, known: Iterable[ParsedSchema], *, first: int) -> int:
    """Return the id of the first equal schema, otherwise the one after the highest, at least `first`."""
    free = first
    for other in known:
        if other.same(schema):
            return other.schema_id
        free = max(free, other.schema_id + 1)
    return free


def _fields_of(parsed: Json) -> Json:
    return {"fields": parsed["fields"]}


def _parsed(given: Any, *, keep: bool) -> Any:
    """Return a type as Iceberg writes it; with `keep` also the fields unknown to this release."""
    root: Json = {}
    pending: list[_Child] = [(given, root, "type")]
    while pending:
        value, into, slot = pending.pop()
        into[slot], children = _shallow(value, keep=keep)
        pending += reversed(children)
    return root["type"]


def _shallow(given: Any, *, keep: bool) -> tuple[Any, list[_Child]]:
    """Return a type without its nested types, and these."""
    if isinstance(given, str):
        return type_text(given), []
    kind = given.get("type") if isinstance(given, dict) else None
    if not isinstance(kind, str) or kind not in _NESTED:
        raise UpdateRefusal(f"Cannot parse type from json: {text_of(given)}")
    if kind == "struct":
        return _struct(given, keep=keep)
    if kind == "list":
        parsed: Json = {"type": kind, "element-id": integer("element-id", given), "element": None}
        children: list[_Child] = [(node("element", given), parsed, "element")]
        parsed["element-required"] = boolean("element-required", given)
        _check_unknown("element", given["element"], required=parsed["element-required"])
        known = _LIST
    else:
        parsed = {"type": kind, "key-id": integer("key-id", given), "key": None}
        children = [(node("key", given), parsed, "key")]
        parsed |= {"value-id": integer("value-id", given), "value": None}
        children.append((node("value", given), parsed, "value"))
        parsed["value-required"] = boolean("value-required", given)
        _check_unknown("key", given["key"], required=True)
        _check_unknown("value", given["value"], required=parsed["value-required"])
        known = _MAP
    if keep:
        parsed.update(unknown(given, known))
    return parsed, children


def _struct(given: Json, *, keep: bool) -> tuple[Json, list[_Child]]:
    fields = node("fields", given)
    check(isinstance(fields, list), f"Cannot parse struct fields from non-array: {text_of(fields)}")
    children: list[_Child] = []
    parsed: list[Json] = []
    for raw in fields:
        check(isinstance(raw, dict), f"Cannot parse struct field from non-object: {text_of(raw)}")
        field: Json = {"id": integer("id", raw), "name": string("name", raw), "required": None, "type": None}
        type_ = node("type", raw)
        if isinstance(type_, str):
            field["type"] = type_text(type_)
        else:
            children.append((type_, field, "type"))
        defaults = {
            name: default_value({"type": "struct", "fields": []} if field["type"] is None else field["type"], raw[name])
            for name in ("initial-default", "write-default")
            if name in raw
        }
        doc = string_or_none("doc", raw)
        field["required"] = boolean("required", raw)
        _check_unknown(field["name"], type_, required=field["required"])
        field |= ({} if doc is None else {"doc": doc}) | defaults | (dict(unknown(raw, _FIELD)) if keep else {})
        parsed.append(field)
    struct: Json = {"type": "struct", "fields": parsed}
    return (struct | dict(unknown(given, _STRUCT)) if keep else struct), children


def _check_unknown(name: str, type_: Any, *, required: bool) -> None:
    if required and isinstance(type_, str) and type_.lower() == "unknown":
        raise UpdateRefusal(f"Cannot create required field with unknown type: {name}")


def _check_identifier(field_id: int, fields: Fields) -> None:
    field = fields.by_id.get(field_id)
    if field is None:
        raise UpdateRefusal(f"Cannot add fieldId {field_id} as an identifier field: field does not exist")
    named = f"Cannot add field {field['name']} as an identifier field"
    check(is_primitive(field["type"]), f"{named}: not a primitive type field")
    check(field["required"], f"{named}: not a required field")
    check(field["type"] not in ("double", "float"), f"{named}: must not be float or double field")
    around: list[Json] = []
    parent = fields.parents.get(field_id)
    while parent is not None:
        around.append(fields.by_id[parent])
        parent = fields.parents.get(parent)
    for outer in reversed(around):
        is_struct = kind_of(outer["type"]) == "struct"
        check(is_struct, f"{named}: must not be nested in {field_name(outer)}")
        check(outer["required"], f"{named}: must not be nested in an optional field {field_name(outer)}")


def _index(struct: Json) -> Fields:
    """Return the fields of a struct in the order in which Iceberg visits them. Raises UpdateRefusal."""
    found = Fields({}, {}, {}, {})
    names: list[str] = []
    shorts: list[str] = []
    left = MAX_NAMES

    def add(field: Json) -> None:
        nonlocal left
        left -= sum(map(len, names)) + len(names) + len(field["name"])
        check(left >= 0, f"The full names of the schema's fields have more than {MAX_NAMES} characters")
        full = ".".join([*names, field["name"]])
        if full in found.names:
            both = f"{found.names[full]} and {field['id']}"
            raise UpdateRefusal(f"Invalid schema: multiple fields for name {full}: {both}")
        found.names[full] = field["id"]
        if shorts:
            found.short_names.setdefault(".".join([*shorts, field["name"]]), field["id"])

    pending: list[tuple[str, Json, Any]] = [
        ("enter", field, (None, True, True)) for field in reversed(struct["fields"])
    ]
    while pending:
        step, field, how = pending.pop()
        if step == "add":
            add(field)
            continue
        parent, is_short, is_added = how
        if step == "leave":
            names.pop()
            if is_short:
                shorts.pop()
            if is_added:
                add(field)
            continue
        found.by_id[field["id"]] = field
        if parent is not None:
            found.parents[field["id"]] = parent
        names.append(field["name"])
        if is_short:
            shorts.append(field["name"])
        pending.append(("leave", field, how))
        pending += reversed(_children(field))
    return found


def _children(field: Json) -> list[tuple[str, Json, Any]]:
    type_, parent = field["type"], field["id"]
    if not isinstance(type_, dict):
        return []
    if type_["type"] == "struct":
        return [("enter", field, (parent, True, True)) for field in type_["fields"]]
    if type_["type"] == "list":
        element = _part(type_, "element", required=type_["element-required"])
        return [("enter", element, (parent, kind_of(element["type"]) != "struct", True))]
    key, value = _part(type_, "key", required=True), _part(type_, "value", required=type_["value-required"])
    return [
        ("enter", key, (parent, True, False)),
        ("enter", value, (parent, kind_of(value["type"]) != "struct", False)),
        ("add", key, None),
        ("add", value, None),
    ]


def _part(type_: Json, name: str, *, required: bool) -> Json:
    return {"id": type_[f"{name}-id"], "name": name, "required": required, "type": type_[name]}
