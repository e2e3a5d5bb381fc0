"""The updates of schemas: add, make current, remove (Iceberg's TableMetadata.Builder)."""

from typing import Any

from polaris_persistence.iceberg.updates.change import LAST_ADDED, TableChange
from polaris_persistence.iceberg.updates.partitioning import check_names, read_spec
from polaris_persistence.iceberg.updates.schemas import ParsedSchema, next_schema_id
from polaris_persistence.iceberg.updates.values import UpdateRefusal, check, integer, integers, node


def read_schema(update: Any) -> ParsedSchema:
    """Parse an add-schema."""
    return ParsedSchema(node("schema", update))


def add_schema(change: TableChange, schema: ParsedSchema) -> None:
    """Add a schema under the next id; an equal one only becomes the last added."""
    last = change.edits.field("last-column-id")
    highest = max(last, schema.highest)
    schema.check_version(change.version)
    schema_id = next_schema_id(schema, change.schemas(), first=change.edits.field("current-schema-id"))
    known = change.stored("schemas", schema_id) is not None
    if known and highest == last:
        change.note_reused("schemas", schema_id, was_added=schema_id in change.added["schemas"])
        return
    change.edits.set_field("last-column-id", highest)
    if not known:
        change.edits.put("schemas", schema_id, schema.value(schema_id))
    change.note_added("schemas", schema_id)
    change.did()


def read_schema_id(update: Any) -> int:
    """Parse a set-current-schema."""
    return integer("schema-id", update)


def set_current_schema(change: TableChange, schema_id: int) -> None:
    """Make a schema current; the names of all partition fields must fit its columns."""
    wanted = change.last("schemas", "schema") if schema_id == LAST_ADDED else schema_id
    if change.edits.field("current-schema-id") == wanted:
        return
    schema = change.schema(wanted)
    if schema is None:
        raise UpdateRefusal(f"Cannot set current schema to unknown schema: {wanted}")
    for spec in change.edits.parts("partition-specs"):
        check_names(read_spec(spec).fields, schema)
    change.removed["partition-specs"].clear()
    change.edits.set_field("current-schema-id", wanted)
    change.did()


def read_schema_ids(update: Any) -> list[int]:
    """Parse a remove-schemas."""
    return integers("schema-ids", update, "set")


def remove_schemas(change: TableChange, schema_ids: list[int]) -> None:
    """Remove schemas except the current one."""
    current = change.edits.field("current-schema-id")
    check(current not in schema_ids, "Cannot remove the current schema")
    change.remove("schemas", schema_ids)
