"""The stand-in catalog's metadata: of new tables, and its answers to what the service's applier refuses.

What commits do is tested in tests/persistence/iceberg.
"""

from typing import Any

import pytest

from infra.local.catalog.errors import RestError
from infra.local.catalog.metadata import committed, committed_view, new_metadata

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
NOW = 2_000_000_000_000


def table(**properties: str) -> dict[str, Any]:
    spec = {"spec-id": 0, "fields": [{"source-id": 0, "transform": "bucket[4]", "name": "id_bucket"}]}
    request = {"schema": SCHEMA, "partition-spec": spec, "properties": properties}
    return new_metadata(request, "s3://b/t", now_ms=1_000)


def commit(base: dict[str, Any], *updates: dict[str, Any], requirements: Any = ()) -> dict[str, Any]:
    return committed(base, requirements, updates, now_ms=NOW, previous_location="s3://b/t/m/0.json")


def snapshot(number: int, **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "snapshot-id": BIG - number,
        "sequence-number": number,
        "timestamp-ms": NOW + number,
        "manifest-list": f"s3://b/t/m/snap-{number}.avro",
        "summary": {"operation": "append"},
        "an-unknown-field": 1,
    }
    return {"action": "add-snapshot", "snapshot": own | more}


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
    assert created["current-snapshot-id"] == -1


def test_version_1_metadata_has_the_fields_of_its_readers() -> None:
    created = table(**{"format-version": "1"})
    assert created["schema"] == created["schemas"][0]
    assert created["partition-spec"] == created["partition-specs"][0]["fields"]


def test_a_table_that_iceberg_would_not_create_is_refused() -> None:
    for schema, reason in [
        ({"type": "struct", "fields": [{**SCHEMA["fields"][0], "type": "variant"}]}, "not supported until v3"),  # type: ignore[index]
        ({"type": "struct", "fields": 5}, "not a schema"),
    ]:
        with pytest.raises(RestError, match=reason) as refused:
            new_metadata({"schema": schema}, "s3://b/t", now_ms=1)
        assert refused.value.status == 400


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    (point("main", 5), 400, "BadRequestException"),
    ({"action": "no-such-action"}, 400, "BadRequestException"),
    (snapshot(1), 400, "BadRequestException"),
    (snapshot(1, **{"snapshot-id": 3, "parent-snapshot-id": BIG - 1}), 409, "CommitFailedException"),
]


@pytest.mark.parametrize(("update", "status", "type_"), REFUSED)
def test_an_update_that_cannot_be_applied_is_refused(update: dict[str, Any], status: int, type_: str) -> None:
    base = commit(table(), snapshot(1), point("main", BIG - 1))
    with pytest.raises(RestError) as refused:
        commit(base, update)
    assert (refused.value.status, refused.value.type) == (status, type_)


REQUIREMENTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("assert-ref-snapshot-id", {"ref": "main", "snapshot-id": BIG - 1}, {"ref": "main", "snapshot-id": BIG - 2}),
    ("assert-ref-snapshot-id", {"ref": "new", "snapshot-id": None}, {"ref": "new", "snapshot-id": 1}),
    ("assert-current-schema-id", {"current-schema-id": 0}, {"current-schema-id": 1}),
    ("assert-last-assigned-field-id", {"last-assigned-field-id": 3}, {"last-assigned-field-id": 2}),
    ("assert-last-assigned-partition-id", {"last-assigned-partition-id": 1000}, {"last-assigned-partition-id": 999}),
    ("assert-default-spec-id", {"default-spec-id": 0}, {"default-spec-id": 1}),
    ("assert-default-sort-order-id", {"default-sort-order-id": 0}, {"default-sort-order-id": 1}),
    ("assert-table-uuid", {}, {"uuid": "x"}),
]


@pytest.mark.parametrize(("kind", "met", "unmet"), REQUIREMENTS, ids=[kind for kind, _, _ in REQUIREMENTS])
def test_a_requirement_that_is_not_met_is_a_failed_commit(kind, met, unmet):
    base = commit(table(), snapshot(1), point("main", BIG - 1))
    own = {"uuid": base["table-uuid"].upper()} if kind == "assert-table-uuid" else {}
    assert commit(base, requirements=[{"type": kind, **own, **met}]) == base
    with pytest.raises(RestError) as refused:
        commit(base, requirements=[{"type": kind, **unmet}])
    assert (refused.value.status, refused.value.type) == (409, "CommitFailedException")


def test_requirements_on_the_existence_of_the_table() -> None:
    for requirement, base, status in [
        ({"type": "assert-create"}, table(), 409),
        ({"type": "assert-table-uuid", "uuid": "x"}, None, 409),
        ({"type": "assert-weather"}, table(), 400),
    ]:
        with pytest.raises(RestError) as refused:
            committed(base, [requirement], [{"action": "set-location", "location": "s3://b/t"}], now_ms=1)
        assert refused.value.status == status


def test_a_view_without_versions_is_refused() -> None:
    with pytest.raises(RestError, match="no versions were added") as refused:
        committed_view(None, [], [{"action": "set-location", "location": "s3://b/v"}], now_ms=1)
    assert refused.value.status == 400
