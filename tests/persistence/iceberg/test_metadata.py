"""Metadata is exported as it was imported, nothing is stored twice, and a change writes a delta."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil

from polaris_persistence.errors import CorruptObject, InvalidIcebergMetadata
from polaris_persistence.iceberg.layout import TABLE, VIEW, Json, parse, serialise
from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.objects import IcebergMetadata
from polaris_persistence.index.index import Index
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.objects import ObjectRef
from tests.effort import examples
from tests.persistence.iceberg.iceberg_fixtures import (
    TYPES,
    Held,
    Objects,
    as_json,
    document_of,
    pyiceberg_table,
    version_3,
    view,
)

SPILLING = IndexPolicy(min_embedded=0, max_embedded=0, stripe=400)


@pytest.mark.parametrize("policy", [IndexPolicy(), SPILLING])
@pytest.mark.parametrize("snapshots", [0, 1, 60])
@pytest.mark.parametrize("version", [1, 2])
def test_a_document_of_pyiceberg_is_exported_unchanged(version: int, snapshots: int, policy: IndexPolicy) -> None:
    metadata = pyiceberg_table(version, snapshots)
    document = document_of(metadata)
    exported = Held(policy=policy).imported(document).document()
    assert as_json(exported) == as_json(document)
    assert TableMetadataUtil.parse_raw(serialise(exported).decode()) == metadata


def test_format_version_3_is_exported_with_unknown_fields() -> None:
    exported = Held().imported(version_3()).document()
    assert as_json(exported) == as_json(version_3())
    assert parse(serialise(exported)) == version_3()


def test_a_view_is_exported_unchanged() -> None:
    held = Held().imported(view(), VIEW)
    assert as_json(held.document()) == as_json(view())
    assert held.load().part("versions", 2)["representations"][0]["sql"] == "SELECT 2"


def test_version_1_repeats_schema_and_spec_without_storing_them_twice() -> None:
    held = Held().imported(document_of(pyiceberg_table(1, 3)))
    state = held.objects.fetch([held.state])[0].value  # type: ignore[list-item, union-attr]
    assert isinstance(state, IcebergMetadata)
    assert state.derived == ("partition-spec", "schema")
    assert not state.fields.keys() & {"partition-spec", "schema", "schemas"}


def test_every_part_is_a_separate_object() -> None:
    held = Held().imported(version_3())
    kinds = held.objects.written_since(0)
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "iceberg-schema": 2,
        "iceberg-spec": 2,
        "iceberg-order": 1,
        "iceberg-snapshot": 2,
        "iceberg-stats": 1,
        "iceberg-key": 2,
        "iceberg-ref": 2,
        "iceberg-props": 1,
        "iceberg-field": 1,
        "iceberg": 1,
    }


def test_the_state_of_a_table_of_a_thousand_snapshots_is_small() -> None:
    held = Held().imported(document_of(pyiceberg_table(2, 1_000)))
    assert held.objects.written[-1][0] == "iceberg"
    assert held.objects.written[-1][1] < 4_096
    assert max(size for kind, size in held.objects.written if kind != "index-stripe") < 64_000


def test_a_changed_order_moves_parts_without_writing_them() -> None:
    held = Held().imported(version_3())
    count = len(held.objects.written)
    document = version_3()
    document["snapshots"].reverse()
    document["refs"] = dict(reversed(document["refs"].items()))
    metadata = held.load()
    metadata.replace_with(document)
    held.save(metadata)
    assert as_json(held.document()) == as_json(document)
    assert list(held.document()["refs"]) == ["5", "main"]
    assert set(held.objects.written_since(count)) <= {"iceberg", "index-stripe"}


def test_one_part_is_read_without_the_others() -> None:
    held = Held().imported(document_of(pyiceberg_table(2, 300)))
    metadata = held.load()
    held.objects.read.clear()
    wanted = metadata.ids("snapshots")[150]
    assert metadata.part("snapshots", wanted)["snapshot-id"] == wanted
    assert [ref.type for ref in held.objects.read if ref.type != "index-stripe"] == ["iceberg-pack"]
    assert metadata.part("snapshots", 5) is None
    assert not metadata.has("snapshots", str(wanted))


def test_everything_that_a_state_needs_is_linked() -> None:
    """Maintenance may sweep what the links do not reach."""
    held = Held(policy=SPILLING).imported(document_of(pyiceberg_table(2, 300)))
    before = as_json(held.document())
    assert held.state is not None
    reached, waiting = set(), [held.state]
    while waiting:
        [loaded] = held.objects.fetch([waiting.pop()])
        assert loaded is not None
        reached.add((loaded.key.type, loaded.key.id))
        declared = TYPES.get(loaded.key.type)
        assert declared is not None
        waiting += declared.links(loaded.value, held.objects.fetch)
    held.objects.stored = {key: data for key, data in held.objects.stored.items() if key in reached}
    assert as_json(held.document()) == before
    assert {kind for kind, _ in reached} >= {"iceberg-log", "index-stripe", "iceberg-pack"}


def test_a_missing_part_and_an_unknown_kind_raise_corrupt_object() -> None:
    held = Held().imported(version_3())
    held.objects.stored = {key: data for key, data in held.objects.stored.items() if key[0] != "iceberg-snapshot"}
    with pytest.raises(CorruptObject, match="snapshots is missing"):
        held.document()
    with pytest.raises(CorruptObject, match="unknown kind 'function'"):
        ManagedMetadata(IcebergMetadata(kind="function", fields={}, sections=()), Objects().fetch)


def test_keys_with_an_invalid_position_raise_corrupt_object() -> None:
    index = Index.empty()
    index.put(IndexKey.of("snapshots", "nowhere!", "5"), ObjectRef("iceberg-snapshot", 5))
    state = IcebergMetadata(
        kind="table", fields={}, sections=("snapshots",), index=index.finish(IndexPolicy(), Objects().write).embedded
    )
    with pytest.raises(CorruptObject, match="invalid position"):
        ManagedMetadata(state, Objects().fetch).has("snapshots", 5)


@pytest.mark.parametrize(
    "text", ["", "[]", "7", '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', "{", b"\xff", "[" * 100_000]
)
def test_an_invalid_document_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidIcebergMetadata):
        parse(text)


def test_a_name_too_long_for_a_key_is_refused() -> None:
    with pytest.raises(InvalidIcebergMetadata, match="too long"):
        ManagedMetadata.of({"refs": {"x" * 9_000: {}}}, TABLE, Objects().fetch)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
few_ids = st.sampled_from([0, 1, 2, "1", 1.0, None, True, 2**63 - 1])


def listed(id_name: str) -> st.SearchStrategy[Any]:
    part = st.fixed_dictionaries({}, optional={id_name: few_ids, "fields": values, "x": values})
    return st.lists(part, max_size=5) | values


named: dict[str, st.SearchStrategy[Any]] = {
    name: listed(section.id) if section.id else st.dictionaries(st.text(max_size=3), values, max_size=4) | values
    for name, section in TABLE.sections.items()
}
logged = st.lists(
    st.fixed_dictionaries({"timestamp-ms": st.integers()}, optional={"snapshot-id": few_ids}), max_size=30
)
documents = st.fixed_dictionaries(
    {},
    optional=named
    | {
        "snapshot-log": logged | values,
        "metadata-log": logged,
        "properties": st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3) | values,
        "current-schema-id": few_ids,
        "default-spec-id": few_ids,
        "schema": values,
        "partition-spec": values,
        "format-version": st.sampled_from([1, 2, 3]),
        "unknown": values,
    },
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(documents, min_size=1, max_size=4), st.sampled_from([IndexPolicy(), SPILLING]))
def test_any_document_can_replace_any_other(history: list[Json], policy: IndexPolicy) -> None:
    held = Held(policy=policy).imported({})
    for document in history:
        metadata = held.load()
        metadata.replace_with(document)
        assert as_json(metadata.document()) == as_json(document)
        held.save(metadata)
        assert as_json(held.document()) == as_json(document)
        again = held.load()
        again.replace_with(document)
        assert not again.changed
