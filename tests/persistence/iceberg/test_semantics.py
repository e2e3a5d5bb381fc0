"""Refs, snapshots, schemas and ids behave as in Iceberg's TableMetadata (Iceberg Table Spec)."""

import copy
from typing import Any

import pytest

from polaris_persistence.errors import IcebergConflict, IcebergUpdateError, InvalidIcebergUpdate
from polaris_persistence.iceberg.layout import Json
from polaris_persistence.iceberg.log import same
from polaris_persistence.iceberg.updates import partitioning
from polaris_persistence.iceberg.updates.managed import update_table
from polaris_persistence.iceberg.updates.settings import PREVIOUS_VERSIONS
from polaris_persistence.iceberg.updates.tables import updated_table
from tests.persistence.iceberg.iceberg_fixtures import (
    NOW,
    Held,
    adding,
    apply,
    document_of,
    nested_structs,
    pointing,
    pyiceberg_table,
    snapshot_json_of,
    snapshot_of,
    version_3,
)

MAIN = "main"
MINUTE = 60_000


def document(version: int = 2, snapshots: int = 3) -> Json:
    return document_of(pyiceberg_table(version, snapshots))


def after(base: Json, *updates: Any, now_ms: int = NOW, **options: Any) -> Json:
    """Return the document after a commit, and check that the base is not altered."""
    before = copy.deepcopy(base)
    result = updated_table(base, [], updates, now_ms=now_ms, **options)
    assert base == before
    return result


@pytest.mark.parametrize(
    ("timestamp_ms", "refused"),
    [
        (snapshot_of(2).timestamp_ms - MINUTE, None),
        (snapshot_of(2).timestamp_ms - MINUTE - 1, "Expected sorted snapshot log entries"),
        (NOW + MINUTE, None),
        (NOW + MINUTE + 1, "Invalid update timestamp"),
    ],
)
def test_a_writers_clock_may_be_a_minute_off(timestamp_ms: int, refused: str | None) -> None:
    """A table with a log that is not sorted cannot be loaded by any Java engine."""
    added = snapshot_json_of(3) | {"timestamp-ms": timestamp_ms}
    updates = adding(added), pointing(MAIN, added["snapshot-id"])
    if refused is None:
        assert after(document(), *updates)["snapshot-log"][-1]["snapshot-id"] == added["snapshot-id"]
    else:
        with pytest.raises(InvalidIcebergUpdate, match=refused):
            after(document(), *updates)


def test_the_catalogs_clock_may_not_be_behind_the_metadata_log() -> None:
    base = {**document(), "snapshot-log": []}
    property_ = {"action": "set-properties", "updates": {"a": "b"}}
    then = base["last-updated-ms"]
    found = after(base, property_, now_ms=then - MINUTE, previous_file="1.json")
    assert found["metadata-log"][-1] == {"timestamp-ms": then, "metadata-file": "1.json"}
    with pytest.raises(InvalidIcebergUpdate, match="before the latest metadata log entry"):
        after(base, property_, now_ms=then - MINUTE - 1, previous_file="1.json")


FIELDS: list[Json] = [{"id": 1, "name": "id", "required": True, "type": "long"}]
WITHOUT_SOURCES = {"type": "struct", "schema-id": 1, "fields": FIELDS}


def adding_schema(*fields: Json, **more: Any) -> Json:
    return {"action": "add-schema", "schema": {"type": "struct", "schema-id": 1, "fields": list(fields), **more}}


NEWEST = {"action": "set-current-schema", "schema-id": -1}
OPTIONAL = {"required": False, "type": "string"}


@pytest.mark.parametrize(
    ("updates", "reason"),
    [
        ([adding_schema(*FIELDS), NEWEST], "Cannot find source column for partition field: 1000: at_day: day(2)"),
        ([{"action": "remove-schemas", "schema-ids": [0]}], "Cannot remove the current schema"),
        ([{"action": "remove-partition-specs", "spec-ids": [0]}], "Cannot remove the default partition spec"),
        ([{"action": "set-default-spec", "spec-id": 77}], "unknown spec: 77"),
        ([{"action": "set-default-sort-order", "sort-order-id": 77}], "unknown sort order: 77"),
        ([{"action": "set-current-schema", "schema-id": 77}], "Cannot set current schema to unknown schema: 77"),
        ([NEWEST], "Cannot set last added schema: no schema has been added"),
        (
            [adding_schema({"id": 1, "name": "a", **OPTIONAL}, {"id": 1, "name": "b", **OPTIONAL})],
            "Multiple entries with same key: 1=a and 1=b",
        ),
        (
            [adding_schema({"id": 1, "name": "a", **OPTIONAL}, {"id": 2, "name": "a", **OPTIONAL})],
            "multiple fields for name a: 1 and 2",
        ),
        ([adding_schema({"id": 1, "name": "a", "required": False, "type": "variant"})], "not supported until v3"),
        ([adding_schema({"id": 1, "name": "a", **OPTIONAL}, **{"identifier-field-ids": [1]})], "not a required field"),
        (
            [{**pointing("t", snapshot_of(0).snapshot_id, "tag"), "min-snapshots-to-keep": 1}],
            "Tags do not support setting minSnapshotsToKeep",
        ),
        (
            [{**pointing("b", snapshot_of(0).snapshot_id), "max-ref-age-ms": 0}],
            "Max reference age must be greater than 0",
        ),
        ([pointing(MAIN, 7)], "Cannot set main to unknown snapshot: 7"),
        ([adding(snapshot_json_of(0))], "Snapshot already exists for id"),
        ([adding(snapshot_json_of(3) | {"parent-snapshot-id": None})], "Cannot parse to a long value: parent-snapshot"),
        ([{"action": "upgrade-format-version", "format-version": 1}], "Cannot downgrade v2 table to v1"),
        ([{"action": "upgrade-format-version", "format-version": 5}], r"unsupported format version: v5"),
        ([{"action": "set-location", "location": ""}], "path must not be null or empty"),
        ([{"action": "set-everything"}], "Cannot convert metadata update action to json: set-everything"),
        ([{"action": "set-current-view-version", "view-version-id": 1}], "Cannot apply update SetCurrentViewVersion"),
        (["x"], "Cannot parse metadata update from non-object value"),
    ],
)  # fmt: skip
def test_what_iceberg_does_not_read_is_refused(updates: list[Any], reason: str) -> None:
    with pytest.raises(InvalidIcebergUpdate) as refused:
        after(document(), *updates)
    assert reason in refused.value.reason


def test_a_removed_schema_cannot_become_current() -> None:
    """Iceberg's builder accepts it, and Iceberg's parser does not read the result."""
    base = after(document(), adding_schema(*document()["schemas"][0]["fields"], {"id": 11, "name": "new", **OPTIONAL}))
    removal = {"action": "remove-schemas", "schema-ids": [1]}
    with pytest.raises(InvalidIcebergUpdate, match="Cannot find schema with current-schema-id=1"):
        after(base, removal, {"action": "set-current-schema", "schema-id": 1})


def test_partition_fields_without_ids_get_those_of_their_source_and_transform_or_unused_ones() -> None:
    """Iceberg's builder gives them ids from 1000 on, which belong to other fields."""
    day, bucket = ({**field} for field in document()["partition-specs"][0]["fields"])
    del day["field-id"]
    hour = {"name": "hour", "source-id": 2, "transform": "hour"}
    found = after(document(), {"action": "add-spec", "spec": {"spec-id": 1, "fields": [hour, {**day, "name": "d"}]}})
    assert [field["field-id"] for field in found["partition-specs"][1]["fields"]] == [1002, 1000]
    assert found["last-partition-id"] == 1002
    assert bucket["field-id"] == 1001


def test_fields_that_this_release_does_not_know_stay() -> None:
    newer = {"id": 11, "name": "new", **OPTIONAL, "since": {"later": [1]}}
    schema = adding_schema(*document()["schemas"][0]["fields"], newer, invented="later")
    snapshot = snapshot_json_of(3) | {"invented": 2**60}
    found = after({**document(), "invented": 1}, schema, adding(snapshot))
    assert found["schemas"][1]["fields"][-1] == newer
    assert found["schemas"][1]["invented"] == "later"
    assert found["snapshots"][-1] == snapshot
    assert found["invented"] == 1


def row_lineage(**change: Any) -> Json:
    base = {key: value for key, value in version_3().items() if key not in ("partition-specs", "default-spec-id")}
    base |= {"partition-specs": [{"spec-id": 0, "fields": []}], "default-spec-id": 0}
    snapshot = {"snapshot-id": 5, "sequence-number": 35, "timestamp-ms": NOW, "first-row-id": 150, "added-rows": 8}
    given = {**snapshot, "manifest-list": "s3://a/5.avro", "parent-snapshot-id": 1, **change}
    return after(base, adding({name: value for name, value in given.items() if value != "missing"}))


def test_row_ids_continue_in_version_3() -> None:
    assert [row_lineage()[name] for name in ("next-row-id", "last-sequence-number")] == [158, 35]
    # As Iceberg counts, whatever the writer left out.
    assert row_lineage(**{"first-row-id": 200})["next-row-id"] == 158


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"first-row-id": "missing"}, InvalidIcebergUpdate, "first-row-id is null"),
        ({"added-rows": "missing"}, InvalidIcebergUpdate, "Invalid added-rows"),
        ({"first-row-id": 149}, IcebergConflict, "first-row-id is behind table next-row-id: 149 < 150"),
        ({"sequence-number": 34}, IcebergConflict, "sequence number 34 older than last sequence number 34"),
        ({"sequence-number": 2, "parent-snapshot-id": "missing"}, InvalidIcebergUpdate, "greater than last sequence"),
    ],
)
def test_row_ids_and_sequence_numbers_ascend(change: Json, error: type[IcebergUpdateError], reason: str) -> None:
    with pytest.raises(error, match=reason):
        row_lineage(**change)


def test_statistics_replace_all_of_their_snapshot() -> None:
    file = {"snapshot-id": 1, "statistics-path": "a", "file-size-in-bytes": 4}
    twice = {**document(), "partition-statistics": [file, file]}
    update = {"action": "set-partition-statistics", "partition-statistics": {**file, "statistics-path": "b"}}
    assert after(twice, update)["partition-statistics"] == [{**file, "statistics-path": "b"}]
    assert after(twice, {"action": "remove-partition-statistics", "snapshot-id": 1})["partition-statistics"] == []


def test_a_document_of_an_early_writer_gets_the_lists_that_it_lacks() -> None:
    early = document(version=1)
    for name in ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "sort-orders", "refs"):
        early.pop(name, None)
    for name in ("default-sort-order-id", "last-partition-id"):
        early.pop(name, None)
    update = {"action": "set-properties", "updates": {"a": "b"}}
    held = Held().imported(early)
    table = held.load()
    requirement = {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": early["current-snapshot-id"]}
    assert update_table(table, [requirement], [update], now_ms=NOW)
    held.save(table)
    for found in (after(early, update), held.document()):
        assert found["schemas"] == [found["schema"]]
        assert found["partition-specs"] == [{"spec-id": 0, "fields": found["partition-spec"]}]
        assert found["sort-orders"] == [{"order-id": 0, "fields": []}]
        assert found["refs"][MAIN]["snapshot-id"] == early["current-snapshot-id"]
        assert found["last-partition-id"] == 1001


def test_a_schema_as_deep_as_the_bound_is_added_and_found_again() -> None:
    held = Held().imported(document())
    deep = adding_schema(*document()["schemas"][0]["fields"], nested_structs(166))
    for expected in (True, False):
        table = held.load()
        assert apply(table, deep, NEWEST if expected else {"action": "set-properties", "updates": {}}) is expected
        held.save(table)
    found = held.document()
    assert (len(found["schemas"]), found["last-column-id"]) == (2, 176)
    assert same(found["schemas"][1]["fields"][-1], nested_structs(166))


@pytest.mark.parametrize("count", [167, 20_000])
def test_a_schema_that_nests_deeper_is_refused(count: int) -> None:
    table = Held().imported(document()).load()
    with pytest.raises(InvalidIcebergUpdate, match="within each other"):
        apply(table, adding_schema(nested_structs(count)))
    assert not table.changed


def test_deep_types_are_named_without_what_nests_in_them() -> None:
    deep = adding_schema(*document()["schemas"][0]["fields"], nested_structs(160))
    spec = {"name": "p", "transform": "day", "source-id": 11, "field-id": 1002}
    with pytest.raises(InvalidIcebergUpdate) as refused:
        after(document(), deep, NEWEST, {"action": "add-spec", "spec": {"spec-id": 1, "fields": [spec]}})
    assert refused.value.reason.startswith("Unsupported type: struct<12: f12: optional struct<")
    assert len(refused.value.reason) < 300


def test_an_element_with_the_id_of_its_list_is_refused() -> None:
    """It is its own parent: Iceberg's own check of identifier fields takes all memory."""
    element = {"type": "list", "element-id": 11, "element": "string", "element-required": True}
    own = {"id": 11, "name": "own", "required": True, "type": element}
    with pytest.raises(InvalidIcebergUpdate, match="Multiple entries with same key: 11="):
        after(document(), adding_schema(own, **{"identifier-field-ids": [11]}))


def test_names_that_multiply_by_nesting_have_a_bound() -> None:
    inner = [{"id": 100 + at, "name": f"c{at}", **OPTIONAL} for at in range(2_000)]
    outer = {"id": 11, "name": "x" * 10_000, "required": False, "type": {"type": "struct", "fields": inner}}
    with pytest.raises(InvalidIcebergUpdate, match="more than 16000000 characters"):
        after(document(), adding_schema(outer))


def test_a_message_quotes_the_beginning_of_a_value_and_no_property() -> None:
    for update, shown in [
        ({"action": "set-location", "location": ["x" * 10_000]}, "x"),
        ({"action": "set-location", "location": nested_structs(100)}, "nests deeply"),
        ({"action": "set-properties", "updates": {"s3.secret-access-key": 1234567}}, "s3.secret-access-key"),
    ]:
        with pytest.raises(InvalidIcebergUpdate) as refused:
            after(document(), update)
        assert shown in str(refused.value)
        assert "1234567" not in str(refused.value)
        assert len(str(refused.value)) < 400


def test_ids_that_do_not_fit_are_refused() -> None:
    full = {**document(), "last-partition-id": 2**31 - 1}
    hour = {"name": "hour", "source-id": 2, "transform": "hour"}
    with pytest.raises(InvalidIcebergUpdate, match="no partition field id left"):
        after(full, {"action": "add-spec", "spec": {"spec-id": 1, "fields": [hour]}})
    with pytest.raises(InvalidIcebergUpdate, match="no row ids left"):
        row_lineage(**{"added-rows": 2**63 - 1})


def test_a_commit_to_ten_thousand_snapshots_copies_none() -> None:
    base = document()
    known = [{**base["snapshots"][0], "snapshot-id": number} for number in range(1, 10_000)]
    base["snapshots"] += known
    found = updated_table(base, [], [adding(snapshot_json_of(3)), pointing(MAIN, 5)], now_ms=NOW)
    assert all(one is other for one, other in zip(found["snapshots"], base["snapshots"], strict=False))
    assert found["schemas"] is base["schemas"]


@pytest.mark.parametrize("type_", [f"fixed[{'9' * 5_000}]", f"decimal({'9' * 5_000}, 2)", f"decimal(9, {'9' * 5_000})"])
def test_a_number_of_any_length_is_refused_as_one_out_of_range(type_: str) -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "a", "required": False, "type": type_}]}
    with pytest.raises(InvalidIcebergUpdate, match="For input string"):
        after(document(), {"action": "add-schema", "schema": schema})
    found = after(document(), {"action": "set-properties", "updates": {PREVIOUS_VERSIONS: "0" * 5_000 + "7"}})
    assert len(after(found, {"action": "set-location", "location": "s3://b/n"}, previous_file="f")["metadata-log"]) <= 7


def test_a_default_with_very_many_digits_after_the_point_is_refused() -> None:
    """A text of twenty bytes could be written as a gigabyte."""
    field = {
        "id": 1,
        "name": "a",
        "required": False,
        "type": "decimal(9, 999999999)",
        "initial-default": "1E-999999999",
    }
    with pytest.raises(InvalidIcebergUpdate, match="at most 10000 digits after the point"):
        after(version_3(), {"action": "add-schema", "schema": {"type": "struct", "fields": [field]}})


def test_what_many_added_specs_and_orders_cost_grows_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 added specs took 4.6 s: each read all before it."""
    reads: list[int] = []
    plain = partitioning.string
    monkeypatch.setattr(partitioning, "string", lambda *given: (reads.append(1), plain(*given))[1])

    def added(count: int) -> int:
        reads.clear()
        spec = {"spec-id": 0, "fields": [{"name": "x", "transform": "bucket[2]", "source-id": 1}]}
        order = {"order-id": 1, "fields": [
            {"transform": "bucket[2]", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
        ]}  # fmt: skip
        updates = [
            change
            for number in range(count)
            for change in (
                {"action": "add-spec", "spec": {**spec, "fields": [spec["fields"][0] | {"name": f"x{number}"}]}},
                {"action": "add-sort-order", "sort-order": {
                    **order, "fields": [order["fields"][0] | {"transform": f"bucket[{number + 2}]"}]
                }},
            )
        ]  # fmt: skip
        made = after(document(), *updates)
        assert len(made["partition-specs"]) >= count
        assert len({one["spec-id"] for one in made["partition-specs"]}) == len(made["partition-specs"])
        assert len(made["sort-orders"]) >= count
        return len(reads)

    assert added(200) <= 2.2 * added(100)


def test_a_spec_is_compared_with_those_that_a_removal_left() -> None:
    def adding_spec(name: str) -> Json:
        field = {"name": name, "transform": "bucket[2]", "source-id": 1}
        return {"action": "add-spec", "spec": {"spec-id": 0, "fields": [field]}}

    def specs(made: Json) -> dict[str, int]:
        return {one["fields"][0]["name"]: one["spec-id"] for one in made["partition-specs"] if one["fields"]}

    first = after(document(), adding_spec("x"))
    removing = {"action": "remove-partition-specs", "spec-ids": [specs(first)["x"]]}
    added = [adding_spec(name) for name in ("y", "z", "x")]
    second = after(first, adding_spec("x"), adding_spec("z"), removing, *added)
    assert set(specs(second)) - set(specs(document())) == {"x", "y", "z"}
    assert len(set(specs(second).values())) == len(specs(second))
