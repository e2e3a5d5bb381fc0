"""pyiceberg and our Polaris client with the stand-in catalog, the S3 front and moto in this process."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceNotEmptyError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.types import StringType

from delegation.identifiers import TableIdentifier
from delegation.polaris import answers
from infra.local.aws.moto_app import application
from infra.local.catalog.privileges import Privilege
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


def test_rename_keeps_the_table_and_recreating_the_name_gives_the_same_location(stack: Stack) -> None:
    table = filled_orders(stack)
    owner = connect(stack, "owner")
    owner.create_namespace("tombstones")
    renamed = owner.rename_table(("sales", "orders"), ("tombstones", "orders-1"))
    assert renamed.metadata.table_uuid == table.metadata.table_uuid
    assert renamed.location() == table.location()
    assert orders(stack).location() == table.location()
    with pytest.raises(TableAlreadyExistsError):
        owner.rename_table(("tombstones", "orders-1"), ("sales", "orders"))
    with pytest.raises(NoSuchTableError):
        owner.rename_table(("sales", "nothing"), ("sales", "else"))
    assert owner.list_tables("tombstones") == [("tombstones", "orders-1")]


def test_the_second_of_two_commits_on_one_base_fails(stack: Stack) -> None:
    first = filled_orders(stack)
    second = connect(stack, "owner").load_table(("sales", "orders"))
    before = objects(stack, "tables/sales/orders/metadata/")
    first.manage_snapshots().create_tag(first.snapshots()[0].snapshot_id, "mark").commit()
    requirement = {"type": "assert-ref-snapshot-id", "ref": "mark", "snapshot-id": None}
    with pytest.raises(CommitFailedException):
        second.catalog.commit_table(second, (requirement_of(requirement),), ())
    assert len(objects(stack, "tables/sales/orders/metadata/")) == len(before) + 1


def requirement_of(requirement: dict[str, Any]) -> Any:
    from pyiceberg.table.update import AssertRefSnapshotId

    return AssertRefSnapshotId.model_validate(requirement)


def test_nested_namespaces_and_their_rules(stack: Stack) -> None:
    owner = connect(stack, "owner")
    owner.create_namespace("sales", {"owner": "me"})
    owner.create_namespace(("sales", "eu & de%"))
    assert owner.list_namespaces() == [("sales",)]
    assert owner.list_namespaces("sales") == [("sales", "eu & de%")]
    location = f"s3://{BUCKET}/tables/sales/"  # of every namespace, with a slash at its end
    assert owner.load_namespace_properties("sales") == {"owner": "me", "location": location}
    owner.create_table(("sales", "eu & de%", "x=1,ü"), SCHEMA)
    loaded = polaris(stack).load_table(TableIdentifier("lake", ("sales", "eu & de%"), "x=1,ü"))
    assert loaded.location == f"s3://{BUCKET}/tables/sales/eu & de%/x=1,ü"
    assert owner.table_exists(("sales", "eu & de%", "x=1,ü"))
    assert not owner.table_exists(("sales", "eu & de%", "x"))
    with pytest.raises(NamespaceNotEmptyError):
        owner.drop_namespace("sales")
    owner.drop_table(("sales", "eu & de%", "x=1,ü"))
    owner.drop_namespace(("sales", "eu & de%"))


def test_a_conditional_load_answers_once_for_each_commit(stack: Stack) -> None:
    table = orders(stack)
    client = polaris(stack)
    loaded = client.load_if_changed(ORDERS, None)
    assert loaded is not None
    assert client.load_if_changed(ORDERS, loaded.etag) is None
    table.append(pa.table({"id": [1], "region": ["eu"]}))
    after = client.load_if_changed(ORDERS, loaded.etag)
    assert after is not None
    assert after.metadata_location != loaded.metadata_location


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


def test_realm_warehouse_and_token_are_checked(stack: Stack) -> None:
    orders(stack)
    with pytest.raises(answers.PolarisMisconfigured):
        polaris(stack, realm="other").load_table(ORDERS)
    with pytest.raises(answers.NoSuchCatalog):
        polaris(stack).load_table(TableIdentifier("other", ("sales",), "orders"))
    with pytest.raises(answers.NoSuchTable):
        polaris(stack).load_table(TableIdentifier("lake", ("nothing",), "orders"))
    answer = httpx.get(f"{stack.catalog.url}/v1/config", params={"warehouse": "lake"})
    assert (answer.status_code, answer.content, answer.headers["WWW-Authenticate"]) == (401, b"", "Bearer")


def test_the_client_replaces_an_invalidated_token(stack: Stack) -> None:
    orders(stack)
    client = polaris(stack)
    client.load_table(ORDERS)
    stack.catalog.tokens.replace_key()
    assert client.load_table(ORDERS).location.endswith("/orders")


def test_a_revoked_grant_applies_from_the_next_request_on(stack: Stack) -> None:
    orders(stack)
    client = polaris(stack)
    access = stack.catalog.access
    client.load_table(ORDERS)
    access.revoke("service", Privilege.TABLE_WRITE_DATA)
    access.revoke("service", Privilege.TABLE_READ_DATA)
    try:
        with pytest.raises(answers.PolarisForbidden):
            client.load_table(ORDERS)
        assert client.load_table(ORDERS, vend=False).credentials == ()
    finally:
        access.grant("service", Privilege.TABLE_WRITE_DATA)
        access.grant("service", Privilege.TABLE_READ_DATA)
    with pytest.raises(answers.PolarisForbidden):
        polaris(stack, "reader").drop_table(ORDERS)


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
