"""One commit to a table while its updates are applied: the document with its edits, and what the updates refer to."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from polaris_persistence.iceberg.layout import FIRST_PARTITION_ID, TABLE, Json
from polaris_persistence.iceberg.updates.edits import Edits, MetadataSource
from polaris_persistence.iceberg.updates.schemas import ParsedSchema
from polaris_persistence.iceberg.updates.values import UpdateRefusal

LAST_ADDED: Final = -1
"""The id in a `set-...` update that means the last part added by the commit."""
MAIN: Final = "main"
NO_SNAPSHOT: Final = -1
ROW_LINEAGE_SINCE: Final = 3


class TableChange:
    """The state of a commit. Ids of removed schemas and specs stay known until its end, as in Iceberg's builder."""

    def __init__(self, source: MetadataSource, *, now_ms: int) -> None:
        self.edits = Edits(source, TABLE)
        self.now_ms = now_ms
        self.last_added: dict[str, int | None] = {}
        self.added: dict[str, list[int]] = {"schemas": [], "partition-specs": [], "sort-orders": []}
        self.removed: dict[str, dict[int, Json]] = {"schemas": {}, "partition-specs": {}}
        self.added_snapshots: dict[int, int] = {}
        self.published: list[int] = []
        self.snapshots_removed = False
        self.bound: dict[tuple[str, int], ParsedSchema] = {}
        self.known: dict[str, Any] = {}
        """What is known of the parts of a section, kept while parts are only added to it."""
        self._parsed: dict[int, ParsedSchema] = {}
        _modernise(self.edits)
        self._base_schema_id = self.edits.field("current-schema-id")

    @property
    def is_new(self) -> bool:
        return self.edits.source.field("last-updated-ms") is None

    @property
    def version(self) -> int:
        return int(self.edits.field("format-version"))

    @property
    def current_snapshot(self) -> int:
        """The id of the current snapshot, NO_SNAPSHOT for none."""
        found = self.edits.field("current-snapshot-id")
        return NO_SNAPSHOT if found is None else int(found)

    def did(self) -> None:
        self.edits.changed = True

    def stored(self, section: str, id_: int) -> Any:
        """Return a part by id, also a removed one; None if there is none."""
        found = self.edits.part(section, id_)
        return self.removed.get(section, {}).get(id_) if found is None else found

    def schema(self, schema_id: int) -> ParsedSchema | None:
        """Return a schema by id, also a removed one; None if there is none. Raises UpdateRefusal."""
        if schema_id not in self._parsed:
            value = self.stored("schemas", schema_id)
            if value is None:
                return None
            self._parsed[schema_id] = ParsedSchema(value)
        return self._parsed[schema_id]

    def schemas(self) -> list[ParsedSchema]:
        found = (self.schema(schema_id) for schema_id in self.edits.ids("schemas"))
        return [schema for schema in found if schema is not None]

    def current_schema(self) -> ParsedSchema:
        """Return the current schema. Raises UpdateRefusal if there is none."""
        schema_id = self.edits.field("current-schema-id")
        schema = self.schema(schema_id)
        if schema is None:
            raise UpdateRefusal(f"Cannot find the current schema {schema_id}: add a schema first")
        return schema

    def bound_schema(self, section: str, id_: int) -> ParsedSchema | None:
        """Return the schema to which Iceberg bound a spec or sort order when it read or added it."""
        return self.bound.get((section, id_)) or self.schema(self._base_schema_id)

    def note_added(self, section: str, id_: int) -> None:
        """Note what LAST_ADDED means from now on."""
        self.added[section].append(id_)
        self.last_added[section] = id_

    def note_reused(self, section: str, id_: int, *, was_added: bool) -> None:
        """Note that an added part equals a known one. LAST_ADDED means it only if this commit added it."""
        self.last_added[section] = id_ if was_added and self.last_added.get(section) is not None else None

    def last(self, section: str, what: str) -> int:
        """Return the id that LAST_ADDED means. Raises UpdateRefusal if it means none."""
        found = self.last_added.get(section)
        if found is None:
            raise UpdateRefusal(f"Cannot set last added {what}: no {what.removeprefix('partition ')} has been added")
        return found

    def set_default(self, field: str, id_: int) -> None:
        """Make a part the default of its section; `field` holds its id."""
        if self.edits.field(field) != id_:
            self.edits.set_field(field, id_)
            self.did()

    def remove(self, section: str, ids: Sequence[int]) -> None:
        """Remove parts of a section, which stay readable; absent ids are an effect too, as in Iceberg."""
        self.known.pop(section, None)
        for id_ in ids:
            value = self.edits.part(section, id_)
            if value is not None:
                self.removed[section][id_] = value
                self.edits.remove(section, id_)
            self.did()

    def refs(self) -> Mapping[str, Json]:
        return dict(zip(self.edits.ids("refs"), self.edits.parts("refs"), strict=True))


def old_ref(source: MetadataSource, name: str) -> Any:
    """Return a ref of a document; one without refs has a branch `main` at its current snapshot."""
    if source.has_section("refs"):
        return source.part("refs", name)
    current = source.field("current-snapshot-id")
    if name != MAIN or current in (None, NO_SNAPSHOT):
        return None
    return {"snapshot-id": current, "type": "branch"}


def _modernise(edits: Edits) -> None:
    """Give a document of an early writer of version 1 the lists that it lacks, as Iceberg's parser does."""
    source = edits.source
    if not source.has_section("refs") and (main := old_ref(source, MAIN)) is not None:
        edits.put("refs", MAIN, main)
    if source.field("format-version") != 1:
        return
    if not source.has_section("schemas") and source.field("schema") is not None:
        schema = ParsedSchema(source.field("schema"))
        edits.put("schemas", schema.schema_id, schema.value(schema.schema_id))
        edits.set_field("current-schema-id", schema.schema_id)
    if not source.has_section("partition-specs") and source.field("partition-spec") is not None:
        fields = _numbered(source.field("partition-spec"))
        edits.put("partition-specs", 0, {"spec-id": 0, "fields": fields})
        edits.set_field("default-spec-id", 0)
    if source.field("last-partition-id") is None:
        ids = [field["field-id"] for spec in edits.parts("partition-specs") for field in spec["fields"]]
        edits.set_field("last-partition-id", max(ids, default=FIRST_PARTITION_ID - 1))
    if not source.has_section("sort-orders"):
        edits.put("sort-orders", 0, {"order-id": 0, "fields": []})
        edits.set_field("default-sort-order-id", 0)


def _numbered(fields: Sequence[Json]) -> list[Json]:
    return [{**field, "field-id": field.get("field-id", FIRST_PARTITION_ID + at)} for at, field in enumerate(fields)]
