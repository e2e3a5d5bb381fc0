from typing import Any

import pytest

from infra.local.catalog.errors import RestError
from infra.local.catalog.metadata import apply, check, empty_metadata, new_metadata, with_fresh_ids

BIG = 9_223_372_036_854_775_807
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 0, "name": "id", "required": True, "type": "long"},
        {
            "id": 1,
            "name": "tags",
            "required": False,
            "type": {"type": "list", "element-id": 2, "element": "string", "element-required": False},
        },
    ],
}


def table(**properties: str) -> dict[str, Any]:
    spec = {"spec-id": 0, "fields": [{"source-id": 0, "transform": "bucket[4]", "name": "id_bucket"}]}
    request = {"schema": SCHEMA, "partition-spec": spec, "properties": properties}
    return new_metadata(request, "s3://b/t", now_ms=1_000)


def commit(
    base: dict[str, Any], *updates: dict[str, Any], previous: str | None = "s3://b/t/m/0.json"
) -> dict[str, Any]:
    return apply(updates, base, now_ms=base["last-updated-ms"] + 10, previous_location=previous)


def snapshot(number: int, *, snapshot_id: int | None = None, parent: int | None = None) -> dict[str, Any]:
    own: dict[str, Any] = {
        "snapshot-id": snapshot_id or BIG - number,
        "sequence-number": number,
        "timestamp-ms": 2_000_000_000_000 + number,
        "manifest-list": f"s3://b/t/m/snap-{number}.avro",
        "summary": {"operation": "append"},
        "an-unknown-field": 1,
    }
    return {"action": "add-snapshot", "snapshot": own if parent is None else {**own, "parent-snapshot-id": parent}}


def point(name: str, snapshot_id: int, kind: str = "branch") -> dict[str, Any]:
    return {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot_id}


def test_a_new_table_gets_fresh_field_ids() -> None:
    created = table()
    fields = created["schemas"][0]["fields"]
    assert [field["id"] for field in fields] == [1, 2]
    assert fields[1]["type"]["element-id"] == 3
    assert created["last-column-id"] == 3
    assert created["partition-specs"][0]["fields"][0]["source-id"] == 1
    assert (created["format-version"], created["last-partition-id"], created["last-updated-ms"]) == (2, 1000, 1_000)


def test_nested_fields_are_numbered_after_the_fields_of_their_struct() -> None:
    point = {"type": "struct", "fields": [{"id": 70, "name": "x", "required": True, "type": "int"}]}
    places = {"type": "map", "key-id": 71, "key": "string", "value-id": 72, "value": point, "value-required": True}
    fields = [{"id": 80, "name": "places", "type": places}, {"id": 81, "name": "v", "type": "variant"}]
    numbered, fresh = with_fresh_ids({"type": "struct", "fields": fields, "identifier-field-ids": [81]})
    assert fresh == {80: 1, 81: 2, 71: 3, 72: 4, 70: 5}
    assert numbered["fields"][0]["type"]["value"]["fields"][0]["id"] == 5
    assert (numbered["identifier-field-ids"], fields[0]["id"]) == ([2], 80)


def test_a_sorted_version_3_table() -> None:
    order = {"order-id": 7, "fields": [{"source-id": 1, "transform": "identity", "direction": "asc"}]}
    request = {"schema": SCHEMA, "write-order": order, "properties": {"format-version": "3", "a": "1"}}
    created = new_metadata(request, "s3://b/t", now_ms=1)
    assert (created["format-version"], created["next-row-id"], created["properties"]) == (3, 0, {"a": "1"})
    assert created["sort-orders"][0]["fields"][0]["source-id"] == 2
    assert created["default-sort-order-id"] == created["sort-orders"][0]["order-id"] == 1
    added = snapshot(1)
    added["snapshot"]["added-rows"] = 5
    assert commit(created, added)["next-row-id"] == 5


def test_snapshots_are_stored_unchanged() -> None:
    updated = commit(table(), snapshot(1), point("main", BIG - 1), point("kept", BIG - 1, "tag"))
    assert updated["snapshots"] == [snapshot(1)["snapshot"]]
    assert updated["current-snapshot-id"] == BIG - 1
    assert updated["refs"]["kept"] == {"snapshot-id": BIG - 1, "type": "tag"}
    assert updated["snapshot-log"] == [{"snapshot-id": BIG - 1, "timestamp-ms": 2_000_000_000_001}]
    assert (updated["last-sequence-number"], updated["last-updated-ms"]) == (1, 2_000_000_000_001)


def test_the_base_is_not_changed() -> None:
    base = table()
    commit(base, snapshot(1), {"action": "set-properties", "updates": {"a": "1"}})
    assert base == {**table(), "table-uuid": base["table-uuid"], "last-updated-ms": base["last-updated-ms"]}


def test_removing_a_snapshot_removes_its_refs_and_statistics() -> None:
    statistics = {"action": "set-statistics", "statistics": {"snapshot-id": BIG - 1, "statistics-path": "s3://b/t/x"}}
    updated = commit(
        table(), snapshot(1), snapshot(2), point("main", BIG - 2), point("old", BIG - 1, "tag"), statistics
    )
    assert updated["statistics"][0]["statistics-path"] == "s3://b/t/x"
    updated = commit(updated, {"action": "remove-snapshots", "snapshot-ids": [BIG - 1]})
    assert [known["snapshot-id"] for known in updated["snapshots"]] == [BIG - 2]
    assert set(updated["refs"]) == {"main"}
    assert updated["statistics"] == []


def test_statistics_of_a_snapshot_are_replaced_and_removed() -> None:
    def put(path: str) -> dict[str, Any]:
        entry = {"snapshot-id": 7, "statistics-path": path}
        return {"action": "set-partition-statistics", "partition-statistics": entry}

    updated = commit(table(), put("a"), put("b"))
    assert [entry["statistics-path"] for entry in updated["partition-statistics"]] == ["b"]
    updated = commit(updated, {"action": "remove-partition-statistics", "snapshot-id": 7})
    assert updated["partition-statistics"] == []


def test_removing_main_leaves_no_current_snapshot() -> None:
    updated = commit(table(), snapshot(1), point("main", BIG - 1))
    updated = commit(updated, {"action": "remove-snapshot-ref", "ref-name": "main"})
    assert "current-snapshot-id" not in updated
    check([{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}], updated)


def test_the_metadata_log_names_the_former_file_and_is_trimmed() -> None:
    updated = table(**{"write.metadata.previous-versions-max": "2"})
    for number in range(4):
        updated = commit(updated, previous=f"s3://b/t/m/{number}.json")
    assert [entry["metadata-file"] for entry in updated["metadata-log"]] == ["s3://b/t/m/2.json", "s3://b/t/m/3.json"]


def test_an_equal_schema_is_added_once_and_another_gets_the_next_id() -> None:
    base = table()
    again = {"action": "add-schema", "schema": base["schemas"][0]}
    last = {"action": "set-current-schema", "schema-id": -1}
    same = commit(base, again, last)
    assert (len(same["schemas"]), same["current-schema-id"]) == (1, 0)
    field = {"id": 9, "name": "note", "required": False, "type": "string"}
    wider = {**base["schemas"][0], "fields": [*base["schemas"][0]["fields"], field]}
    more = commit(base, {"action": "add-schema", "schema": wider}, last)
    assert (len(more["schemas"]), more["current-schema-id"], more["last-column-id"]) == (2, 1, 9)
    assert commit(more, again, last)["current-schema-id"] == 0


def test_a_new_spec_and_sort_order_become_the_default() -> None:
    spec = {"spec-id": 0, "fields": [{"source-id": 1, "transform": "identity", "name": "id"}]}
    order = {"order-id": 0, "fields": [{"source-id": 1, "transform": "identity", "direction": "asc"}]}
    updated = commit(
        table(),
        {"action": "add-spec", "spec": spec},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    )
    assert (updated["default-spec-id"], updated["default-sort-order-id"]) == (1, 1)
    assert (updated["partition-specs"][1]["fields"][0]["field-id"], updated["last-partition-id"]) == (1001, 1001)
    assert commit(updated, {"action": "remove-partition-specs", "spec-ids": [0]})["partition-specs"][0]["spec-id"] == 1


def test_version_1_metadata_has_the_fields_of_its_readers() -> None:
    base = table(**{"format-version": "1"})
    updated = commit(base, {"action": "set-properties", "updates": {"a": "1"}})
    assert updated["format-version"] == 1
    assert updated["schema"] == updated["schemas"][0]
    assert updated["partition-spec"] == updated["partition-specs"][0]["fields"]
    upgraded = commit(updated, {"action": "upgrade-format-version", "format-version": 2})
    assert (upgraded["format-version"], upgraded["last-sequence-number"]) == (2, 0)
    assert "schema" not in upgraded


def test_the_first_commit_of_a_staged_table_builds_its_metadata() -> None:
    created = table()
    updated = apply(
        [
            {"action": "assign-uuid", "uuid": created["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": created["schemas"][0], "last-column-id": 3},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": created["partition-specs"][0]},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": created["sort-orders"][0]},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": "s3://b/other/"},
        ],
        empty_metadata("s3://b/t"),
        now_ms=5,
        previous_location=None,
    )
    assert {name: updated[name] for name in ("table-uuid", "location", "last-updated-ms", "metadata-log")} == {
        "table-uuid": created["table-uuid"],
        "location": "s3://b/other",
        "last-updated-ms": 5,
        "metadata-log": [],
    }
    for name in ("schemas", "partition-specs", "sort-orders", "default-spec-id", "last-partition-id", "last-column-id"):
        assert updated[name] == created[name]


REFUSED: list[tuple[dict[str, Any], int]] = [
    (point("main", 5), 400),
    ({"action": "no-such-action"}, 400),
    ({"action": "set-current-schema", "schema-id": 7}, 400),
    ({"action": "upgrade-format-version", "format-version": 1}, 400),
    ({"action": "assign-uuid", "uuid": "another"}, 400),
    (snapshot(1), 400),
    (snapshot(1, snapshot_id=3, parent=BIG - 1), 409),
]


@pytest.mark.parametrize(("update", "status"), REFUSED)
def test_an_update_that_cannot_be_applied_is_refused(update: dict[str, Any], status: int) -> None:
    base = commit(table(), snapshot(1), point("main", BIG - 1))
    with pytest.raises(RestError) as refused:
        commit(base, update)
    assert refused.value.status == status


REQUIREMENTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("assert-ref-snapshot-id", {"ref": "main", "snapshot-id": BIG - 1}, {"ref": "main", "snapshot-id": BIG - 2}),
    ("assert-ref-snapshot-id", {"ref": "new", "snapshot-id": None}, {"ref": "new", "snapshot-id": 1}),
    ("assert-current-schema-id", {"current-schema-id": 0}, {"current-schema-id": 1}),
    ("assert-last-assigned-field-id", {"last-assigned-field-id": 3}, {"last-assigned-field-id": 2}),
    ("assert-last-assigned-partition-id", {"last-assigned-partition-id": 1000}, {"last-assigned-partition-id": 999}),
    ("assert-default-spec-id", {"default-spec-id": 0}, {"default-spec-id": 1}),
    ("assert-default-sort-order-id", {"default-sort-order-id": 0}, {"default-sort-order-id": 1}),
]


@pytest.mark.parametrize(("kind", "met", "unmet"), REQUIREMENTS, ids=[kind for kind, _, _ in REQUIREMENTS])
def test_a_requirement_that_is_not_met_is_a_failed_commit(
    kind: str, met: dict[str, Any], unmet: dict[str, Any]
) -> None:
    base = commit(table(), snapshot(1), point("main", BIG - 1))
    check([{"type": kind, **met}], base)
    with pytest.raises(RestError) as refused:
        check([{"type": kind, **unmet}], base)
    assert (refused.value.status, refused.value.type) == (409, "CommitFailedException")


def test_requirements_on_the_existence_and_uuid_of_the_table() -> None:
    base = table()
    check([{"type": "assert-table-uuid", "uuid": base["table-uuid"].upper()}], base)
    check([{"type": "assert-create"}], None)
    for requirement, of in [
        ({"type": "assert-create"}, base),
        ({"type": "assert-table-uuid", "uuid": "x"}, base),
        ({"type": "assert-table-uuid", "uuid": "x"}, None),
    ]:
        with pytest.raises(RestError) as refused:
            check([requirement], of)
        assert refused.value.status == 409
    with pytest.raises(RestError) as unknown:
        check([{"type": "assert-weather"}], base)
    assert unknown.value.status == 400
