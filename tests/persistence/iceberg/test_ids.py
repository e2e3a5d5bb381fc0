"""Ids that the catalog assigns: as pyiceberg assigns them, kept by schema evolution, the same for equal schemas."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType, TimestampType

from polaris_persistence.errors import InvalidIcebergMetadata
from polaris_persistence.iceberg.ids import (
    evolved_field_ids,
    fresh_field_ids,
    names,
    new_snapshot_id,
    new_table_ids,
    rebound,
)
from polaris_persistence.iceberg.layout import Json

MAP = {"type": "map", "key-id": 0, "value-id": 0, "value-required": True}
PRIMITIVES = st.sampled_from(["long", "string", "timestamp", "decimal(9, 2)", "fixed[4]"])


def renumber(schema: Any, ids: Any) -> Any:
    """Return the schema with every id drawn from `ids`."""
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    for name in ("element-id", "key-id", "value-id"):
        if name in schema:
            result[name] = next(ids)
    if "fields" in schema:
        result["fields"] = [{**one, "id": next(ids), "type": renumber(one["type"], ids)} for one in schema["fields"]]
    return result | {name: renumber(schema[name], ids) for name in ("element", "key", "value") if name in schema}


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(lambda one: {"type": "list", "element-id": 0, "element": one, "element-required": False}, inner),
        st.builds(
            lambda key, value: {**MAP, "key": key, "value": value},
            PRIMITIVES,
            inner,
        ),
        st.lists(inner, min_size=1, max_size=3).map(struct),
    )


def struct(types: list[Any]) -> Json:
    fields = [{"id": 0, "name": f"f{at}", "required": False, "type": one} for at, one in enumerate(types)]
    return {"type": "struct", "fields": fields}


@st.composite
def schemas(draw: st.DrawFn) -> Json:
    shape = struct(draw(st.lists(st.recursive(PRIMITIVES, nested, max_leaves=6), min_size=1, max_size=4)))
    ids = iter(draw(st.lists(st.integers(1, 10_000), min_size=60, max_size=60, unique=True)))
    schema: Json = renumber(shape, ids)
    primitive = [one["id"] for one in schema["fields"] if isinstance(one["type"], str)]
    return {**schema, "schema-id": 7, "identifier-field-ids": primitive[:1]}


@settings(deadline=None)
@given(schemas())
def test_fresh_ids_are_those_that_pyiceberg_assigns(schema: Json) -> None:
    fresh, ids, last = fresh_field_ids(schema)
    # Identifier fields must be required, which does not concern numbering.
    expected = assign_fresh_schema_ids(Schema.model_validate({**schema, "identifier-field-ids": []}))
    assert names(fresh) == names(expected.model_dump(by_alias=True, mode="json"))
    assert sorted(ids.values()) == list(range(1, last + 1))
    assert last == len(names(schema))
    assert fresh["identifier-field-ids"] == [ids[old] for old in schema["identifier-field-ids"]]


@settings(deadline=None)
@given(schemas(), schemas())
def test_known_fields_keep_their_ids_and_others_get_unused_ids(base: Json, evolved: Json) -> None:
    fresh, _, last = fresh_field_ids(base)
    result, ids, new_last = evolved_field_ids(evolved, fresh, last=last + 5)
    before, after = names(fresh), names(result)
    assert after.keys() == names(evolved).keys()
    for path, id_ in after.items():
        assert id_ == before[path] if path in before else last + 5 < id_ <= new_last
    assert len(set(after.values())) == len(after)
    assert {ids[old] for old in names(evolved).values()} == set(after.values())
    assert evolved_field_ids(fresh, fresh, last=last) == (fresh, {id_: id_ for id_ in before.values()}, last)


@pytest.mark.parametrize(
    "schema",
    [
        {"fields": [{"id": 1, "name": "a", "type": "long"}, {"id": 1, "name": "b", "type": "long"}]},
        {"fields": [{"name": "a", "type": "long"}]},
        {"fields": 5},
        {"fields": [], "identifier-field-ids": [3]},
    ],
    ids=["twice", "without an id", "no list", "unknown identifier"],
)
def test_an_invalid_schema_is_refused(schema: Json) -> None:
    with pytest.raises(InvalidIcebergMetadata):
        fresh_field_ids(schema)


def test_sources_are_named_by_their_new_ids() -> None:
    fields = [{"source-id": 5, "transform": "day"}, {"source-ids": [5, 6], "transform": "bucket[4]"}]
    assert rebound(fields, {5: 1, 6: 2}) == [
        {"source-id": 1, "transform": "day"},
        {"source-ids": [1, 2], "transform": "bucket[4]"},
    ]
    with pytest.raises(InvalidIcebergMetadata):
        rebound([{"source-id": 7}], {5: 1})


def test_a_new_table_gets_the_ids_that_pyiceberg_gives_it() -> None:
    """The creator's ids differ from the resulting ones, and so do the field ids of its spec."""
    spec = PartitionSpec(
        PartitionField(4, 7, DayTransform(), "day"), PartitionField(11, 5, BucketTransform(4), "bucket")
    )
    order = SortOrder(SortField(source_id=11, transform=IdentityTransform()))
    schema = Schema(
        NestedField(11, "id", LongType(), required=True),
        NestedField(20, "list", ListType(30, StringType())),
        NestedField(4, "at", TimestampType()),
        identifier_field_ids=[11],
    )
    theirs = new_table_metadata(schema, spec, order, "s3://lake/t").model_dump(by_alias=True, mode="json")
    ours = new_table_ids(*(one.model_dump(by_alias=True, mode="json") for one in (schema, spec, order)))
    assert ours.schema == theirs["schemas"][0]
    assert ours.spec == theirs["partition-specs"][0]
    assert ours.order == theirs["sort-orders"][0]
    assert (ours.last_column_id, ours.last_partition_id) == (theirs["last-column-id"], theirs["last-partition-id"])


def test_a_new_table_needs_neither_spec_nor_order() -> None:
    ours = new_table_ids({"type": "struct", "fields": []}, None, None)
    assert (ours.spec, ours.order) == ({"fields": [], "spec-id": 0}, {"fields": [], "order-id": 0})
    assert (ours.last_column_id, ours.last_partition_id) == (0, 999)
    with pytest.raises(InvalidIcebergMetadata, match="not in the schema"):
        new_table_ids({"type": "struct", "fields": []}, {"fields": [{"source-id": 1, "transform": "day"}]}, None)


def test_a_snapshot_id_is_positive_and_unused() -> None:
    drawn = iter([0, 2**63, 5, 2**64 + 5, 2**63 - 1])
    assert new_snapshot_id(lambda: next(drawn), {5}.__contains__) == 2**63 - 1
