"""Commits to a managed table read and write only a delta, and a refused one changes nothing."""

import pytest

from polaris_persistence.errors import IcebergConflict, InvalidIcebergUpdate
from polaris_persistence.iceberg.updates.managed import update_table
from tests.persistence.iceberg.iceberg_fixtures import (
    NOW,
    Held,
    adding,
    apply,
    document_of,
    pointing,
    pyiceberg_table,
    snapshot_json_of,
    snapshot_of,
)


def test_adding_a_snapshot_reads_no_other_and_no_schema() -> None:
    held = Held().imported(document_of(pyiceberg_table(2, 300)))
    table = held.load()
    held.objects.read.clear()
    snapshot = snapshot_json_of(300)
    apply(table, adding(snapshot), pointing("main", snapshot["snapshot-id"]))
    table.finish(held.policy, held.objects.write)
    assert {ref.type for ref in held.objects.read} <= {"iceberg-ref", "index-stripe", "iceberg-log"}


def test_five_hundred_commits_keep_the_log_and_the_document_complete() -> None:
    held = Held().imported(document_of(pyiceberg_table(2, 0)))
    expected = held.document()
    for number in range(500):
        table = held.load()
        snapshot = snapshot_json_of(number)
        updates = [adding(snapshot), pointing("main", snapshot["snapshot-id"])]
        file = f"s3://lake/{number:05}.metadata.json"
        update_table(table, [], updates, now_ms=NOW + number, previous_file=file)
        held.save(table)
        expected["snapshots"].append(snapshot)
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


def test_a_refused_commit_changes_nothing() -> None:
    table = Held().imported(document_of(pyiceberg_table(2, 3))).load()
    property_ = {"action": "set-properties", "updates": {"a": "b"}}
    with pytest.raises(InvalidIcebergUpdate, match="add-snapshot is refused: Snapshot already exists") as refused:
        apply(table, property_, pointing("main", snapshot_of(0).snapshot_id), adding(snapshot_json_of(0)))
    assert refused.value.update == "add-snapshot"
    assert not table.changed
    requirement = {"type": "assert-current-schema-id", "current-schema-id": 5}
    with pytest.raises(
        IcebergConflict, match="assert-current-schema-id is refused: Requirement failed: current schema"
    ):
        update_table(table, [requirement], [property_], now_ms=NOW)
    assert not table.changed
