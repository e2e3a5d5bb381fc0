"""pyiceberg and our Polaris client with the stand-in catalog, the S3 front and moto in this process."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.types import StringType

from infra.local.aws.moto_app import application
from infra.local.processes.programs import WsgiServer
from infra.local.s3.front import S3Front
from infra.local.s3.requests import VendedKeys
from tests.integration.local.catalog_world import (
    BUCKET,
    BY_REGION,
    ORDERS,
    SCHEMA,
    SCOPE,
    Stack,
    connect,
    emptied,
    filled_orders,
    objects,
    orders,
    polaris,
    rows,
    running,
)

OWNER_FORM = {
    "grant_type": "client_credentials",
    "client_id": "owner-id",
    "client_secret": "owner-secret",
    "scope": SCOPE,
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    yield from running()


@pytest.fixture(autouse=True)
def clean(stack: Stack) -> Iterator[None]:
    yield from emptied(stack)


def test_a_partitioned_table_with_appends_a_row_delete_and_a_tag(stack: Stack) -> None:
    table = filled_orders(stack)
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(first, "first").commit()
    loaded = connect(stack, "owner").load_table(("sales", "orders"))
    assert sorted(loaded.scan().to_arrow()["id"].to_pylist()) == [1, 2, 4]
    assert sorted(loaded.scan(snapshot_id=first).to_arrow()["id"].to_pylist()) == [1, 2]
    assert loaded.refs()["first"].snapshot_id == first
    assert loaded.properties == {}
    keys = objects(stack, "tables/sales/orders/")
    assert any(key.endswith(".parquet") for key in keys)
    assert loaded.metadata_location.removeprefix(f"s3://{BUCKET}/") in keys
    assert [entry.metadata_file.rsplit("/", 1)[-1][:5] for entry in loaded.metadata.metadata_log] == [
        "00000",
        "00001",
        "00002",
        "00003",
    ]


def test_two_hundred_snapshots_keep_their_64_bit_ids(stack: Stack) -> None:
    table = orders(stack)
    client = polaris(stack)
    empty = client.load_table(ORDERS, vend=False)
    ids = [9_223_372_036_854_775_807 - n for n in range(200)]
    updates: list[dict[str, Any]] = [
        {
            "action": "add-snapshot",
            "snapshot": {
                "snapshot-id": snapshot_id,
                "sequence-number": number,
                "timestamp-ms": empty.metadata["last-updated-ms"] + number,
                "manifest-list": f"{empty.location}/metadata/snap-{snapshot_id}.avro",
                "summary": {"operation": "append"},
                "schema-id": 0,
            },
        }
        for number, snapshot_id in enumerate(ids, start=1)
    ]
    updates.append({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": ids[-1]})
    token = httpx.post(f"{stack.catalog.url}/v1/oauth/tokens", data=OWNER_FORM).json()["access_token"]
    committed = httpx.post(
        f"{stack.catalog.url}/v1/lake/namespaces/sales/tables/orders",
        headers={"Authorization": f"Bearer {token}", "X-Request-ID": "r-1"},
        content=json.dumps({"requirements": [], "updates": updates}),
    )
    assert (committed.status_code, committed.headers["X-Request-ID"]) == (200, "r-1")
    loaded = client.load_table(ORDERS)
    assert [s["snapshot-id"] for s in loaded.metadata["snapshots"]] == ids
    assert loaded.metadata["current-snapshot-id"] == ids[-1]
    refs = client.load_table(ORDERS, snapshots="refs")
    assert [s["snapshot-id"] for s in refs.metadata["snapshots"]] == [ids[-1]]
    assert table.refresh().snapshots()[0].snapshot_id == ids[0]


def test_a_staged_table_exists_after_its_first_commit(stack: Stack) -> None:
    owner = connect(stack, "owner")
    owner.create_namespace("sales")
    # pyiceberg uses no vended credentials for a table without a metadata file, so no rows are written here.
    with owner.create_table_transaction(("sales", "orders"), SCHEMA, partition_spec=BY_REGION) as staged:
        staged.set_properties({"a": "1"})
        assert not owner.table_exists(("sales", "orders"))
        assert objects(stack) == []
    loaded = owner.load_table(("sales", "orders"))
    assert (loaded.spec().fields[0].name, loaded.properties) == ("region", {"a": "1"})
    loaded.append(rows((1, "eu")))
    assert loaded.scan().to_arrow().num_rows == 1
    with pytest.raises(TableAlreadyExistsError):
        owner.create_table_transaction(("sales", "orders"), SCHEMA)


def test_properties_schema_and_snapshots_can_be_changed(stack: Stack) -> None:
    table = filled_orders(stack)
    with table.update_schema() as update:
        update.add_column("note", StringType())
    with table.transaction() as transaction:
        transaction.set_properties({"a": "1", "b": "2"})
        transaction.remove_properties("b")
    oldest = table.snapshots()[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(oldest).commit()
    loaded = connect(stack, "owner").load_table(("sales", "orders"))
    assert [field.name for field in loaded.schema().fields] == ["id", "region", "note"]
    assert loaded.properties == {"a": "1"}
    assert oldest not in [snapshot.snapshot_id for snapshot in loaded.snapshots()]


def test_a_request_without_a_token_is_unauthorized(stack: Stack) -> None:
    answer = httpx.get(f"{stack.catalog.url}/v1/config", params={"warehouse": "lake"})
    assert (answer.status_code, answer.content, answer.headers["WWW-Authenticate"]) == (401, b"", "Bearer")


def test_the_client_replaces_an_invalidated_token(stack: Stack) -> None:
    orders(stack)
    client = polaris(stack)
    client.load_table(ORDERS)
    stack.catalog.tokens.replace_key()
    assert client.load_table(ORDERS).location.endswith("/orders")


def test_the_front_answers_503_if_the_store_does_not_answer() -> None:
    stopped = WsgiServer(application())
    stopped.stop()
    front = S3Front(stopped.url, VendedKeys()).start()
    try:
        with closing(httpx.Client()) as client:
            headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=admin/2/r/s3/aws4_request"}
            assert client.put(f"{front.url}/b/k", headers=headers, content=b"x").status_code == 503
    finally:
        front.stop()
