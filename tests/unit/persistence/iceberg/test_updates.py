"""Changes of the catalog to a managed table give the metadata of pyiceberg, but write only a delta."""

import copy
import json

import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    update_table_metadata,
)

from delegation.persistence.errors import IcebergConflict
from delegation.persistence.iceberg.layout import Json, serialise
from delegation.persistence.iceberg.metadata import ManagedMetadata
from delegation.persistence.iceberg.updates import (
    add_schema,
    add_snapshot,
    add_sort_order,
    add_spec,
    log_metadata_file,
    remove_ref,
    remove_snapshots,
    set_current_schema,
    set_default_sort_order,
    set_default_spec,
    set_ref,
    set_statistics,
    update_properties,
)
from tests.unit.persistence.iceberg.iceberg_fixtures import (
    Held,
    as_json,
    document_of,
    pyiceberg_table,
    snapshot_of,
    version_3,
)

NOW = 1_800_000_000_000


def snapshot_json(number: int, version: int = 2) -> Json:
    found: Json = json.loads(snapshot_of(number, version).model_dump_json(exclude_none=True, by_alias=True))
    return found


def append(table: ManagedMetadata, number: int) -> None:
    snapshot = snapshot_json(number, table.field("format-version"))
    add_snapshot(table, snapshot)
    set_ref(table, "main", {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}, now_ms=NOW)


def reread(metadata: TableMetadata) -> TableMetadata:
    """Return the document with the defaults that pyiceberg fills in on reading."""
    return TableMetadataUtil.parse_raw(metadata.model_dump_json())


@pytest.mark.parametrize("version", [1, 2])
def test_adding_and_publishing_a_snapshot_gives_the_metadata_of_pyiceberg(version: int) -> None:
    before = pyiceberg_table(version, 50)
    snapshot = snapshot_of(50, version)
    after = update_table_metadata(
        before,
        (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(
                ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id,
                max_ref_age_ms=None, max_snapshot_age_ms=None, min_snapshots_to_keep=None,
            ),
        ),
    )  # fmt: skip
    held = Held().imported(document_of(before))
    table = held.load()
    append(table, 50)
    held.save(table)
    assert TableMetadataUtil.parse_raw(serialise(held.document()).decode()) == reread(after)


def test_adding_a_snapshot_to_a_thousand_writes_three_small_objects() -> None:
    held = Held().imported(document_of(pyiceberg_table(2, 1_000)))
    count = len(held.objects.written)
    table = held.load()
    append(table, 1_000)
    held.save(table)
    new = held.objects.written[count:]
    assert [kind for kind, _ in new if kind not in ("index-stripe", "iceberg-log")] == [
        "iceberg-snapshot",
        "iceberg-ref",
        "iceberg",
    ]
    assert len(held.document()["snapshots"]) == 1_001


def test_adding_a_snapshot_reads_no_other() -> None:
    held = Held().imported(document_of(pyiceberg_table(2, 300)))
    table = held.load()
    held.objects.read.clear()
    append(table, 300)
    table.finish(held.policy, held.objects.write)
    assert {ref.type for ref in held.objects.read} <= {"iceberg-ref", "index-stripe", "iceberg-log"}


def test_five_hundred_commits_keep_the_log_and_the_document_complete() -> None:
    held = Held().imported(document_of(pyiceberg_table(2, 0)))
    expected = held.document()
    for number in range(500):
        table = held.load()
        append(table, number)
        log_metadata_file(table, f"s3://lake/{number:05}.metadata.json", timestamp_ms=NOW + number)
        held.save(table)
        expected["snapshots"].append(snapshot_json(number))
    document = held.document()
    assert document["snapshots"] == expected["snapshots"]
    assert document["snapshot-log"] == [
        {"timestamp-ms": one["timestamp-ms"], "snapshot-id": one["snapshot-id"]} for one in expected["snapshots"]
    ]
    assert [entry["metadata-file"] for entry in document["metadata-log"]] == [
        f"s3://lake/{number:05}.metadata.json" for number in range(400, 500)
    ]
    states = [size for kind, size in held.objects.written if kind == "iceberg"]
    assert max(states) < 4_096
    assert document["last-sequence-number"] == 500


def test_expiring_snapshots_gives_the_metadata_of_pyiceberg() -> None:
    before = pyiceberg_table(2, 30)
    removed = [snapshot_of(number).snapshot_id for number in range(20)]
    after = update_table_metadata(
        before, (RemoveSnapshotRefUpdate(ref_name="ünïcode tag"), RemoveSnapshotsUpdate(snapshot_ids=removed))
    )
    held = Held().imported(document_of(before))
    table = held.load()
    remove_ref(table, "ünïcode tag")
    remove_snapshots(table, removed)
    held.save(table)
    ours, theirs = held.document(), document_of(after)
    # pyiceberg removes the parent of a snapshot whose parent expired; Iceberg's TableMetadata changes no snapshot.
    theirs["snapshots"][0]["parent-snapshot-id"] = removed[-1]
    for name in ("snapshots", "snapshot-log", "refs", "statistics", "current-snapshot-id"):
        assert as_json(ours[name]) == as_json(theirs[name]), name


def test_history_before_an_expired_snapshot_is_dropped() -> None:
    held = Held().imported(document_of(pyiceberg_table(2, 10)))
    table = held.load()
    remove_snapshots(table, [snapshot_of(5).snapshot_id])
    assert [entry["snapshot-id"] for entry in table.log("snapshot-log").entries()] == [
        snapshot_of(number).snapshot_id for number in range(6, 10)
    ]
    assert len(table.ids("snapshots")) == 9


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "already exists"),
        ({"snapshot-id": 5, "sequence-number": 34}, "not above 34"),
        ({"snapshot-id": 5, "sequence-number": 35, "first-row-id": 149}, "row ids from 149"),
    ],
)
def test_a_snapshot_that_does_not_fit_is_refused_and_nothing_is_added(change: Json, reason: str) -> None:
    held = Held().imported(version_3())
    table = held.load()
    snapshot = copy.deepcopy(version_3()["snapshots"][0]) | {"parent-snapshot-id": 1} | change
    with pytest.raises(IcebergConflict, match=reason):
        add_snapshot(table, snapshot)
    assert len(table.ids("snapshots")) == 2


def test_row_ids_continue_in_version_3() -> None:
    table = Held().imported(version_3()).load()
    add_snapshot(
        table, {"snapshot-id": 5, "sequence-number": 35, "timestamp-ms": NOW, "first-row-id": 150, "added-rows": 8}
    )
    assert (table.field("next-row-id"), table.field("last-sequence-number")) == (158, 35)
    remove_ref(table, "main")
    assert table.document()["current-snapshot-id"] is None
    assert table.document()["snapshot-log"] == []


def test_refs_point_to_snapshots_and_keep_their_type() -> None:
    table = Held().imported(version_3()).load()
    with pytest.raises(IcebergConflict, match="no snapshot 7"):
        set_ref(table, "main", {"snapshot-id": 7, "type": "branch"}, now_ms=NOW)
    with pytest.raises(IcebergConflict, match="is a tag"):
        set_ref(table, "5", {"snapshot-id": 1, "type": "branch"}, now_ms=NOW)
    set_ref(table, "main", {"snapshot-id": 1, "type": "branch"}, now_ms=NOW)
    assert table.log("snapshot-log").entries()[-1] == {"timestamp-ms": NOW, "snapshot-id": 1}
    assert (table.field("current-snapshot-id"), table.field("last-updated-ms")) == (1, NOW)


def test_schemas_specs_and_orders_are_added_under_ids_of_the_catalog() -> None:
    held = Held().imported(document_of(pyiceberg_table(1, 1)))
    table = held.load()
    current = table.part("schemas", 0)
    wider = {**current, "fields": [*current["fields"], {"id": 11, "name": "new", "required": False, "type": "long"}]}
    assert add_schema(table, wider) == 1
    assert add_schema(table, {**wider, "schema-id": 0}) == 1
    assert add_schema(table, current) == 0
    set_current_schema(table, 1)
    fields = [{"source-id": 11, "transform": "identity", "name": "new"}]
    assert add_spec(table, {"fields": fields}) == 1
    set_default_spec(table, 1)
    assert (
        add_sort_order(
            table,
            {"fields": [{"source-id": 11, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]},
        )
        == 2
    )
    set_default_sort_order(table, 2)
    held.save(table)
    document = held.document()
    assert document["last-column-id"] == 11
    assert document["last-partition-id"] == 1002
    # Version 1 repeats what is current.
    assert document["schema"] == {**wider, "schema-id": 1}
    assert document["partition-spec"] == [{**fields[0], "field-id": 1002}]
    assert TableMetadataUtil.parse_raw(serialise(document).decode()).schema().find_field("new").field_id == 11


@pytest.mark.parametrize("set_one", [set_current_schema, set_default_spec, set_default_sort_order])
def test_a_missing_id_cannot_be_made_current(set_one: object) -> None:
    with pytest.raises(IcebergConflict, match="has no id 77"):
        set_one(Held().imported(version_3()).load(), 77)  # type: ignore[operator]


def test_properties_are_set_and_removed_and_not_both() -> None:
    held = Held().imported(document_of(pyiceberg_table(2, 1)))
    table = held.load()
    with pytest.raises(IcebergConflict, match="owner"):
        update_properties(table, {"owner": "me"}, ["owner"])
    update_properties(table, {"new": "1"}, ["owner", "absent"])
    held.save(table)
    assert held.document()["properties"] == {"new": "1", "write.parquet.compression-codec": "zstd"}


def test_statistics_replace_those_of_their_snapshot() -> None:
    table = Held().imported(version_3()).load()
    set_statistics(table, {"snapshot-id": 1, "statistics-path": "a"})
    set_statistics(table, {"snapshot-id": 1, "statistics-path": "b"})
    set_statistics(table, {"snapshot-id": 1, "statistics-path": "c"}, of_partitions=True)
    document = table.document()
    assert document["statistics"] == [{"snapshot-id": 1, "statistics-path": "b"}]
    assert document["partition-statistics"] == [{"snapshot-id": 1, "statistics-path": "c"}]


def test_the_property_limits_the_metadata_log() -> None:
    table = Held().imported(version_3()).load()
    update_properties(table, {"write.metadata.previous-versions-max": "2"})
    for number in range(4):
        log_metadata_file(table, f"{number}.json", timestamp_ms=number)
    assert [entry["metadata-file"] for entry in table.log("metadata-log").entries()] == ["2.json", "3.json"]
