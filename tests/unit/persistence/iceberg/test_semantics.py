"""Refs, snapshots and field ids behave as in Iceberg's TableMetadata (Iceberg Table Spec, Snapshot References)."""

import pytest

from delegation.persistence.errors import IcebergConflict
from delegation.persistence.iceberg.ids import partition_spec
from delegation.persistence.iceberg.layout import Json
from delegation.persistence.iceberg.updates import add_snapshot, add_spec, remove_snapshots, set_ref
from tests.unit.persistence.iceberg.iceberg_fixtures import Held, document_of, pyiceberg_table, snapshot_of, version_3
from tests.unit.persistence.iceberg.test_updates import NOW, snapshot_json

MAIN = "main"


def branch(snapshot_id: int) -> Json:
    return {"snapshot-id": snapshot_id, "type": "branch"}


def test_a_staged_snapshot_is_logged_when_it_is_published() -> None:
    held = Held().imported(document_of(pyiceberg_table(2, 3)))
    staged = snapshot_json(3)
    staging = held.load()
    add_snapshot(staging, staged)
    held.save(staging)
    publishing = held.load()
    set_ref(publishing, MAIN, branch(staged["snapshot-id"]), now_ms=NOW)
    entries = publishing.log("snapshot-log").entries()
    assert entries[-1] == {"timestamp-ms": NOW, "snapshot-id": staged["snapshot-id"]}
    assert publishing.field("last-updated-ms") == NOW


def test_a_snapshot_of_the_same_commit_is_logged_at_its_own_time() -> None:
    table = Held().imported(document_of(pyiceberg_table(2, 3))).load()
    added = snapshot_json(3)
    add_snapshot(table, added)
    set_ref(table, MAIN, branch(added["snapshot-id"]), now_ms=NOW)
    assert table.log("snapshot-log").entries()[-1]["timestamp-ms"] == added["timestamp-ms"]


def test_a_snapshot_replaced_within_its_commit_was_never_current() -> None:
    table = Held().imported(document_of(pyiceberg_table(2, 3))).load()
    for number in (3, 4):
        added = snapshot_json(number)
        add_snapshot(table, added)
        set_ref(table, MAIN, branch(added["snapshot-id"]), now_ms=NOW)
    logged = [entry["snapshot-id"] for entry in table.log("snapshot-log").entries()]
    assert logged[-2:] == [snapshot_of(2).snapshot_id, snapshot_of(4).snapshot_id]


def test_partition_field_ids_of_the_client_stay() -> None:
    day = {"name": "day", "source-id": 2, "transform": "day", "field-id": 1000}
    bucket = {"name": "bucket", "source-id": 1, "transform": "bucket[4]", "field-id": 1007}
    known = {"spec-id": 0, "fields": [day]}
    spec, last = partition_spec({"fields": [bucket, {**day, "field-id": 1009}]}, [known], last=1000)
    assert [field["field-id"] for field in spec["fields"]] == [1007, 1009]
    assert last == 1009
    mixed = {"name": "hour", "source-id": 2, "transform": "hour"}
    spec, last = partition_spec({"fields": [mixed, bucket]}, [known], last=1000)
    assert [field["field-id"] for field in spec["fields"]] == [1008, 1007]
    assert last == 1008


def test_a_partition_field_id_that_belongs_to_another_field_is_refused() -> None:
    table = Held().imported(document_of(pyiceberg_table(2, 1))).load()
    taken = table.part("partition-specs", 0)["fields"][0]
    with pytest.raises(IcebergConflict, match=rf"{taken['field-id']}.*another"):
        add_spec(table, {"fields": [{**taken, "name": "hours", "transform": "hour"}]})
    assert not table.changed


def test_a_spec_that_differs_in_field_ids_only_is_the_known_one() -> None:
    table = Held().imported(document_of(pyiceberg_table(2, 1))).load()
    known = table.part("partition-specs", 0)
    other = [{**field, "field-id": field["field-id"] + 50} for field in known["fields"]]
    assert add_spec(table, {"fields": other}) == 0
    assert table.part("partition-specs", 0) == known


def test_removing_a_snapshot_drops_the_refs_that_named_it() -> None:
    table = Held().imported(document_of(pyiceberg_table(2, 10))).load()
    remove_snapshots(table, [snapshot_of(0).snapshot_id])
    assert "ünïcode tag" not in table.ids("refs")
    assert MAIN in table.ids("refs")
    assert table.field("current-snapshot-id") == snapshot_of(9).snapshot_id


def test_removing_the_current_snapshot_leaves_the_table_without_one() -> None:
    table = Held().imported(document_of(pyiceberg_table(2, 10))).load()
    remove_snapshots(table, [snapshot_of(9).snapshot_id])
    assert MAIN not in table.ids("refs")
    assert table.field("current-snapshot-id") == -1
    assert table.log("snapshot-log").entries() == []


@pytest.mark.parametrize("missing", ["first-row-id", "added-rows"])
def test_a_v3_snapshot_without_row_ids_is_refused(missing: str) -> None:
    table = Held().imported(version_3()).load()
    snapshot = {"snapshot-id": 5, "sequence-number": 35, "timestamp-ms": NOW, "first-row-id": 150, "added-rows": 8}
    del snapshot[missing]
    with pytest.raises(IcebergConflict, match=missing):
        add_snapshot(table, snapshot)
    assert not table.changed


def test_a_refused_snapshot_changes_nothing() -> None:
    table = Held().imported(version_3()).load()
    snapshot = {"snapshot-id": 5, "sequence-number": 35, "timestamp-ms": NOW, "first-row-id": 1, "added-rows": 8}
    with pytest.raises(IcebergConflict, match="row ids from 1"):
        add_snapshot(table, snapshot)
    assert not table.changed
