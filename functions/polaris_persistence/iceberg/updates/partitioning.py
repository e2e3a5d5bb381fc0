"""The updates of partition specs and sort orders (Iceberg's PartitionSpec, SortOrder, TableMetadata.Builder)."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from polaris_persistence.iceberg.layout import FIRST_PARTITION_ID, Json
from polaris_persistence.iceberg.updates.change import LAST_ADDED, TableChange
from polaris_persistence.iceberg.updates.schemas import ParsedSchema
from polaris_persistence.iceberg.updates.types import (
    VOID,
    check_binding,
    is_primitive,
    kind_of,
    transform_text,
    transforms,
    type_name,
)
from polaris_persistence.iceberg.updates.values import (
    INT,
    UpdateRefusal,
    check,
    integer,
    integers,
    node,
    object_of,
    string,
    text_of,
    unknown,
)

_SPEC_FIELD: Final = frozenset({"name", "transform", "source-id", "field-id"})
_ORDER_FIELD: Final = frozenset({"transform", "source-id", "direction", "null-order"})
_DIRECTIONS: Final = frozenset({"ASC", "DESC"})
_NULL_ORDERS: Final = frozenset({"nulls-first", "nulls-last"})


@dataclass(frozen=True)
class Parsed:
    """A partition spec or sort order: its id, its fields as Iceberg writes them, and fields unknown to this release."""

    id: int
    fields: list[Json]
    unknown: Json


class KnownParts:
    """The specs or sort orders of a table, read once for all that a commit adds.

    `ids` has the first one with the same fields, `next_id` follows the largest, `owners` are the ids of partition
    fields by source and transform.
    """

    def __init__(self, parts: Iterable[Parsed], same: Callable[[Json], Hashable], *, first_id: int) -> None:
        self._same = same
        self.ids: dict[tuple[Hashable, ...], int] = {}
        self.next_id = first_id
        self.owners: dict[tuple[Any, ...], int] = {}
        for part in parts:
            self.add(part)

    def equal_to(self, fields: Sequence[Json]) -> int | None:
        """Return the id of the first part with equal fields, None if there is none."""
        return self.ids.get(tuple(self._same(field) for field in fields))

    def add(self, part: Parsed) -> None:
        self.ids.setdefault(tuple(self._same(field) for field in part.fields), part.id)
        self.next_id = max(self.next_id, part.id + 1)
        self.owners |= {_identity(field)[1:]: field["field-id"] for field in part.fields if "field-id" in field}


def read_spec(value: Any) -> Parsed:
    """Parse a partition spec. Raises UpdateRefusal."""
    object_of(value, "Cannot parse spec from non-object")
    spec_id, fields = integer("spec-id", value), node("fields", value)
    check(isinstance(fields, list), f"Cannot parse partition spec fields, not an array: {text_of(fields)}")
    parsed: list[Json] = []
    for raw in fields:
        object_of(raw, "Cannot parse partition field, not an object")
        field: Json = {"name": string("name", raw), "transform": string("transform", raw)}
        field["source-id"] = integer("source-id", raw)
        field["transform"] = transform_text(field["transform"])
        if "field-id" in raw:
            field["field-id"] = integer("field-id", raw)
        parsed.append(field | dict(unknown(raw, _SPEC_FIELD)))
    given = sum("field-id" in field for field in parsed)
    missing = f"Cannot parse spec with missing field IDs: {len(parsed) - given} missing of {len(parsed)} fields."
    check(given in (0, len(parsed)), missing)
    return Parsed(spec_id, parsed, dict(unknown(value, frozenset({"spec-id", "fields"}))))


def check_names(fields: Sequence[Json], schema: ParsedSchema, *, binds: bool = False) -> None:
    """Raise UpdateRefusal if the names of partition fields repeat, are empty, or belong to other columns.

    With `binds` also if Iceberg cannot read a transform of a column of its type.
    """
    names: set[str] = set()
    for field in fields:
        name, source = field["name"], field["source-id"]
        if binds and source in schema.fields.by_id:
            check_binding(field["transform"], schema.fields.type_of(source))
        column = schema.fields.find(name)
        if source in schema.fields.by_id:
            reason = f"Cannot create identity partition sourced from different field in schema: {name}"
            check(column is None or column["id"] == source, reason)
        check(name not in names, f"Cannot use partition name more than once: {name}")
        names.add(name)


def check_spec(fields: Sequence[Json], schema: ParsedSchema, *, bound_to: ParsedSchema | None = None) -> None:
    """Raise UpdateRefusal if the partition fields do not fit the columns of a schema."""
    for field in fields:
        if field["transform"] == VOID:
            continue
        type_ = schema.fields.type_of(field["source-id"])
        check(type_ is not None, f"Cannot find source column for partition field: {_spec_field(field)}")
        check(is_primitive(type_), f"Cannot partition by non-primitive source field: {type_name(type_)}")
        bound_type = bound_to and bound_to.fields.type_of(field["source-id"])
        reason = f"Invalid source type {type_name(type_)} for transform: {field['transform']}"
        check(transforms(field["transform"], type_, bound_type), reason)
        parent = schema.fields.parents.get(field["source-id"])
        while parent is not None:
            around = schema.fields.type_of(parent)
            check(kind_of(around) == "struct", f"Invalid partition field parent: {type_name(around)}")
            parent = schema.fields.parents.get(parent)


def read_new_spec(update: Any) -> Parsed:
    """Parse an add-spec."""
    return read_spec(node("spec", update))


def add_spec(change: TableChange, spec: Parsed) -> None:
    """Add a partition spec under the next id; an equal one only becomes the last added."""
    schema = change.current_schema()
    check_names(spec.fields, schema, binds=True)
    check_spec(spec.fields, schema, bound_to=schema)
    known = _known(change, "partition-specs", read_spec, _identity, first_id=0)
    same = known.equal_to(spec.fields)
    spec_id = known.next_id if same is None else same
    if change.stored("partition-specs", spec_id) is not None:
        added = change.last_added.get("partition-specs") in change.added["partition-specs"]
        change.note_reused("partition-specs", spec_id, was_added=added)
        return
    _check_found_by_name(spec.fields, schema)
    last = change.edits.field("last-partition-id") or 0
    fields = _with_ids(spec.fields, known.owners, version=change.version, last=last)
    ids = [field["field-id"] for field in fields]
    sequential = ids == list(range(FIRST_PARTITION_ID, FIRST_PARTITION_ID + len(ids)))
    listed = "".join(f"\n  {_spec_field(field)}" for field in fields) + "\n" * bool(fields)
    check(change.version > 1 or sequential, f"Spec does not use sequential IDs that are required in v1: [{listed}]")
    change.edits.put("partition-specs", spec_id, {"spec-id": spec_id, "fields": fields, **spec.unknown})
    change.edits.set_field("last-partition-id", max(last, FIRST_PARTITION_ID - 1, *ids))
    known.add(Parsed(spec_id, fields, spec.unknown))
    change.bound["partition-specs", spec_id] = schema
    change.note_added("partition-specs", spec_id)
    change.did()


def read_spec_id(update: Any) -> int:
    """Parse a set-default-spec."""
    return integer("spec-id", update)


def set_default_spec(change: TableChange, spec_id: int) -> None:
    """Make a partition spec the default; the end of the commit checks that it exists and fits."""
    change.set_default("default-spec-id", change.last("partition-specs", "spec") if spec_id == LAST_ADDED else spec_id)


def read_spec_ids(update: Any) -> list[int]:
    """Parse a remove-partition-specs."""
    return integers("spec-ids", update, "set")


def remove_specs(change: TableChange, spec_ids: list[int]) -> None:
    """Remove partition specs except the default one."""
    default = change.edits.field("default-spec-id")
    check(default not in spec_ids, "Cannot remove the default partition spec")
    change.remove("partition-specs", spec_ids)


def read_order(value: Any) -> Parsed:
    """Parse a sort order. Raises UpdateRefusal."""
    object_of(value, "Cannot parse sort order from non-object")
    order_id, fields = integer("order-id", value), node("fields", value)
    check(isinstance(fields, list), f"Cannot parse sort order fields, not an array: {text_of(fields)}")
    parsed: list[Json] = []
    for raw in fields:
        object_of(raw, "Cannot parse sort field, not an object")
        field: Json = {"transform": string("transform", raw), "source-id": integer("source-id", raw)}
        direction = string("direction", raw)
        check(direction.upper() in _DIRECTIONS, f"Invalid sort direction: {direction}")
        nulls = string("null-order", raw)
        check(nulls.lower() in _NULL_ORDERS, f"Unexpected null order: {nulls}")
        field["transform"] = transform_text(field["transform"])
        parsed.append(
            {**field, "direction": direction.lower(), "null-order": nulls.lower(), **dict(unknown(raw, _ORDER_FIELD))}
        )
    check(parsed or order_id == 0, "Unsorted order ID must be 0")
    check(not parsed or order_id != 0, "Sort order ID 0 is reserved for unsorted order")
    return Parsed(order_id, parsed, dict(unknown(value, frozenset({"order-id", "fields"}))))


def check_order(fields: Sequence[Json], schema: ParsedSchema, *, bound_to: ParsedSchema | None = None) -> None:
    """Raise UpdateRefusal if the fields of a sort order do not fit the columns of a schema."""
    for field in fields:
        type_ = schema.fields.type_of(field["source-id"])
        check(type_ is not None, f"Cannot find source column for sort field: {_order_field(field)}")
        check(is_primitive(type_), f"Cannot sort by non-primitive source field: {type_name(type_)}")
        bound_type = bound_to and bound_to.fields.type_of(field["source-id"])
        reason = f"Invalid source type {type_name(type_)} for transform: {field['transform']}"
        check(transforms(field["transform"], type_, bound_type), reason)


def check_readable_order(fields: Sequence[Json], schema: ParsedSchema) -> None:
    """Raise UpdateRefusal if Iceberg cannot read a default sort order along with this current schema."""
    for field in fields:
        type_ = schema.fields.type_of(field["source-id"])
        if type_ is not None:
            check_binding(field["transform"], type_)
    check_order(fields, schema, bound_to=schema)


def read_new_order(update: Any) -> Parsed:
    """Parse an add-sort-order."""
    return read_order(node("sort-order", update))


def add_order(change: TableChange, order: Parsed) -> None:
    """Add a sort order under the next id; an equal one only becomes the last added."""
    schema = change.current_schema()
    check_readable_order(order.fields, schema)
    known = _known(change, "sort-orders", read_order, _core, first_id=1)
    same = known.equal_to(order.fields)
    order_id = 0 if not order.fields else known.next_id if same is None else same
    if change.edits.has("sort-orders", order_id):
        added = change.last_added.get("sort-orders") in change.added["sort-orders"]
        change.note_reused("sort-orders", order_id, was_added=added)
        return
    _check_found_by_name(order.fields, schema)
    change.edits.put("sort-orders", order_id, {"order-id": order_id, "fields": order.fields, **order.unknown})
    known.add(Parsed(order_id, order.fields, order.unknown))
    change.bound["sort-orders", order_id] = schema
    change.note_added("sort-orders", order_id)
    change.did()


def read_order_id(update: Any) -> int:
    """Parse a set-default-sort-order."""
    return integer("sort-order-id", update)


def set_default_order(change: TableChange, order_id: int) -> None:
    """Make a sort order the default; the end of the commit checks that it exists and fits."""
    wanted = change.last("sort-orders", "sort order") if order_id == LAST_ADDED else order_id
    change.set_default("default-sort-order-id", wanted)


def check_defaults(change: TableChange) -> None:
    """Raise UpdateRefusal unless the default spec and sort order exist and fit the current schema."""
    schema = change.current_schema()
    spec_id, order_id = change.edits.field("default-spec-id"), change.edits.field("default-sort-order-id")
    spec, order = change.stored("partition-specs", spec_id), change.edits.part("sort-orders", order_id)
    if spec is None:
        raise UpdateRefusal(f"Cannot set default spec to unknown spec: {spec_id}")
    check_spec(read_spec(spec).fields, schema, bound_to=change.bound_schema("partition-specs", spec_id))
    if order is None:
        raise UpdateRefusal(f"Cannot set default sort order to unknown sort order: {order_id}")
    check_order(read_order(order).fields, schema, bound_to=change.bound_schema("sort-orders", order_id))


def check_readable(change: TableChange) -> None:
    """Raise UpdateRefusal unless Iceberg reads specs and orders with the current schema, and finds the defaults."""
    edits = change.edits
    schema_id, spec_id = edits.field("current-schema-id"), edits.field("default-spec-id")
    found = edits.has("schemas", schema_id)
    check(found, f"Cannot find schema with current-schema-id={schema_id} from schemas")
    schema = change.current_schema()
    for part in edits.parts("partition-specs"):
        spec = read_spec(part)
        check_names(spec.fields, schema, binds=True)
        if spec.id == spec_id:
            check_spec(spec.fields, schema, bound_to=schema)
    check(edits.has("partition-specs", spec_id), f"Cannot find the default spec {spec_id} among partition-specs")
    check_readable_order(read_order(edits.part("sort-orders", edits.field("default-sort-order-id"))).fields, schema)


def _known(
    change: TableChange,
    section: str,
    read: Callable[[Any], Parsed],
    same: Callable[[Json], Hashable],
    *,
    first_id: int,
) -> KnownParts:
    if section not in change.known:
        change.known[section] = KnownParts(map(read, change.edits.parts(section)), same, first_id=first_id)
    found: KnownParts = change.known[section]
    return found


def _with_ids(fields: Sequence[Json], owners: Mapping[tuple[Any, ...], int], *, version: int, last: int) -> list[Json]:
    """Return the fields with ids: the client's, otherwise that of the same field in a known spec, or a new one.

    Iceberg's builder numbers a spec without ids from FIRST_PARTITION_ID, whatever the other specs of the table use. Two
    fields of one id break readers of the table's metadata tables, so only version 1 is numbered so here (Iceberg Table
    Spec, Partition Evolution).
    """
    free = max(last, FIRST_PARTITION_ID - 1) if version > 1 else FIRST_PARTITION_ID - 1
    numbered: list[Json] = []
    for field in fields:
        field_id = field.get("field-id")
        if field_id is None and version > 1:
            field_id = owners.get(_identity(field)[1:])
        if field_id is None:
            free += 1
            check(free in INT, "There is no partition field id left")
            field_id = free
        numbered.append({**field, "field-id": field_id})
    return numbered


def _check_found_by_name(fields: Sequence[Json], schema: ParsedSchema) -> None:
    """Raise UpdateRefusal for a source column that has no name: Iceberg finds it by its name."""
    for field in fields:
        if (name := schema.fields.name_of.get(field["source-id"])) is not None:
            schema.fields.find(name)


def _identity(field: Json) -> tuple[Any, ...]:
    """Return what makes two specs compatible (Iceberg's PartitionSpec.compatibleWith)."""
    return field["name"], field["source-id"], field["transform"]


def _core(field: Json) -> Hashable:
    """Return what makes two sort orders equal."""
    return tuple(sorted((name, part) for name, part in field.items() if name in _ORDER_FIELD))


def _spec_field(field: Json) -> str:
    return f"{field.get('field-id')}: {field['name']}: {field['transform']}({field['source-id']})"


def _order_field(field: Json) -> str:
    nulls = "NULLS FIRST" if field["null-order"] == "nulls-first" else "NULLS LAST"
    return f"{field['transform']}({field['source-id']}) {field['direction'].upper()} {nulls}"
