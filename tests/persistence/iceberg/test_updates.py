"""Commits to a managed table give the metadata of pyiceberg where that follows Iceberg, but write only a delta."""

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

from polaris_persistence.errors import IcebergConflict, InvalidIcebergUpdate
from polaris_persistence.iceberg.layout import VIEW, serialise
from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.updates.managed import update_table, update_view
from tests.persistence.iceberg.iceberg_fixtures import (
    NOW,
    Held,
    adding,
    apply,
    as_json,
    document_of,
    pointing,
    pyiceberg_table,
    snapshot_json_of,
    snapshot_of,
    view,
)


def append(table: ManagedMetadata, number: int, *, now_ms: int = NOW) -> None:
    snapshot = snapshot_json_of(number, table.field("format-version"))
    apply(table, adding(snapshot), pointing("main", snapshot["snapshot-id"]), now_ms=now_ms)


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
    append(table, 50, now_ms=snapshot.timestamp_ms)
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


def test_adding_a_snapshot_reads_no_other_and_no_schema() -> None:
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


def test_expiring_snapshots_gives_the_metadata_of_pyiceberg() -> None:
    before = pyiceberg_table(2, 30)
    removed = [snapshot_of(number).snapshot_id for number in range(20)]
    after = update_table_metadata(
        before, (RemoveSnapshotRefUpdate(ref_name="ünïcode tag"), RemoveSnapshotsUpdate(snapshot_ids=removed))
    )
    held = Held().imported(document_of(before))
    table = held.load()
    apply(
        table,
        {"action": "remove-snapshot-ref", "ref-name": "ünïcode tag"},
        {"action": "remove-snapshots", "snapshot-ids": removed},
    )
    held.save(table)
    ours, theirs = held.document(), document_of(after)
    # pyiceberg removes the parent of a snapshot whose parent expired; Iceberg's TableMetadata changes no snapshot.
    theirs["snapshots"][0]["parent-snapshot-id"] = removed[-1]
    for name in ("snapshots", "snapshot-log", "refs", "statistics", "current-snapshot-id"):
        assert as_json(ours[name]) == as_json(theirs[name]), name


def test_schemas_specs_and_orders_are_added_under_ids_of_the_catalog() -> None:
    held = Held().imported(document_of(pyiceberg_table(1, 1)))
    table = held.load()
    current = table.part("schemas", 0)
    wider = {**current, "fields": [*current["fields"], {"id": 11, "name": "new", "required": False, "type": "long"}]}
    known = [{**field} for field in table.part("partition-specs", 0)["fields"]]
    field = {"source-id": 11, "transform": "identity", "name": "new", "field-id": 1002}
    sorting = {"source-id": 11, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
    apply(
        table,
        {"action": "add-schema", "schema": wider},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": [*known, field]}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 9, "fields": [sorting]}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    )
    held.save(table)
    document = held.document()
    assert [document[name] for name in ("current-schema-id", "default-spec-id", "default-sort-order-id")] == [1, 1, 2]
    assert (document["last-column-id"], document["last-partition-id"]) == (11, 1002)
    # Version 1 repeats what is current.
    assert document["schema"] == document["schemas"][1]
    assert document["partition-spec"] == document["partition-specs"][1]["fields"]
    assert TableMetadataUtil.parse_raw(serialise(document).decode()).schema().find_field("new").field_id == 11


def test_an_upgrade_drops_what_version_1_repeated() -> None:
    held = Held().imported(document_of(pyiceberg_table(1, 1)))
    table = held.load()
    assert apply(table, {"action": "upgrade-format-version", "format-version": 3})
    held.save(table)
    document = held.document()
    assert not {"schema", "partition-spec"} & document.keys()
    assert (document["last-sequence-number"], document["next-row-id"]) == (0, 0)


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


def test_updates_without_effect_change_nothing() -> None:
    table = Held().imported(document_of(pyiceberg_table(2, 3))).load()
    assert not apply(
        table,
        {"action": "set-properties", "updates": {}},
        pointing("main", snapshot_of(2).snapshot_id),
        {"action": "remove-snapshots", "snapshot-ids": [5]},
        {"action": "upgrade-format-version", "format-version": 2},
    )
    assert not table.changed


def test_a_view_is_replaced_and_keeps_its_newest_versions() -> None:
    held = Held().imported(view(), VIEW)
    table = held.load()
    version = {**view()["versions"][0], "representations": [{"type": "sql", "sql": "SELECT 3", "dialect": "spark"}]}
    assert update_view(
        table,
        [{"type": "assert-view-uuid", "uuid": view()["view-uuid"]}],
        [
            {"action": "set-properties", "updates": {"version.history.num-entries": "2"}},
            {"action": "add-view-version", "view-version": version},
            {"action": "set-current-view-version", "view-version-id": -1},
        ],
        now_ms=NOW,
    )
    held.save(table)
    document = held.document()
    assert document["current-version-id"] == 3
    assert [one["version-id"] for one in document["versions"]] == [3, 2]
    assert [entry["version-id"] for entry in document["version-log"]] == [2, 3]
