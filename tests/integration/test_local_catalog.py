"""pyiceberg and our own Polaris client against the stand-in catalog, the S3 front and moto, all in this process."""

import json
import warnings
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import httpx
import pyarrow as pa
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from pydantic import SecretStr
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceNotEmptyError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from delegation.polaris import errors
from delegation.polaris.client import PolarisClient
from delegation.polaris.credentials import VendedCredentials, select_credential
from delegation.polaris.model import StorageCredential, TableIdentifier
from delegation.polaris.tokens import ClientCredentials, OAuth2TokenSource
from infra.local.catalog.principals import OWNER, READER, SERVICE, Principal, Privilege
from infra.local.catalog.server import LocalCatalog
from infra.local.moto_app import application
from infra.local.s3_front import S3Front
from infra.local.vended_keys import VendedKeys
from infra.local.wsgi import WsgiServer

BUCKET = "warehouse"
REGION = "eu-west-1"
REALM = "POLARIS"
SCOPE = "PRINCIPAL_ROLE:ALL"
PRINCIPALS = tuple(
    Principal(name, f"{name}-id", SecretStr(f"{name}-secret"), privileges)
    for name, privileges in (("owner", OWNER), ("service", SERVICE), ("reader", READER))
)
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "region", StringType(), required=False)
)
BY_REGION = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="region"))


class Clock:
    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class Stack:
    """moto, the S3 front and the catalog, with one registry of vended keys."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.keys = VendedKeys()
        self.moto = WsgiServer(application()).start()
        self.front = S3Front(self.moto.url, self.keys, clock=self.clock).start()
        self.admin = self.s3("admin", "admin", None)
        self.catalog = LocalCatalog(
            name="lake",
            location=f"s3://{BUCKET}/tables",
            s3=boto3.client("s3", **self._aws(self.moto.url)),
            sts=boto3.client("sts", **self._aws(self.moto.url)),
            keys=self.keys,
            s3_endpoint=self.front.url,
            region=REGION,
            principals=PRINCIPALS,
            realm=REALM,
            allowed_locations=["s3://warehouse/elsewhere"],
            clock=self.clock,
        ).start()

    def _aws(self, endpoint: str) -> dict[str, Any]:
        return {
            "endpoint_url": endpoint,
            "region_name": REGION,
            "aws_access_key_id": "admin",
            "aws_secret_access_key": "admin",
        }

    def s3(self, key_id: str, secret: str, token: str | None) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.front.url,
            region_name=REGION,
            aws_access_key_id=key_id,
            aws_secret_access_key=secret,
            aws_session_token=token,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )

    def s3_as(self, credential: StorageCredential) -> Any:
        return self.s3(credential.access_key_id, credential.secret_access_key, credential.session_token)

    def stop(self) -> None:
        self.catalog.stop()
        self.front.stop()
        self.moto.stop()


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    stack = Stack()
    yield stack
    stack.stop()


@pytest.fixture(autouse=True)
def clean(stack: Stack) -> Iterator[None]:
    stack.admin.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    yield
    stack.clock.ahead = timedelta()
    owner = connect(stack, "owner")
    for namespace in owner.list_namespaces():
        for table in owner.list_tables(namespace):
            owner.drop_table(table)
        owner.drop_namespace(namespace)
    for key in objects(stack):
        stack.admin.delete_object(Bucket=BUCKET, Key=key)
    stack.admin.delete_bucket(Bucket=BUCKET)


def connect(stack: Stack, who: str) -> RestCatalog:
    with warnings.catch_warnings():
        # pyiceberg announces that it will want `oauth2-server-uri` one day.
        warnings.simplefilter("ignore", DeprecationWarning)
        return RestCatalog(
            "lake",
            uri=stack.catalog.url,
            warehouse="lake",
            credential=f"{who}-id:{who}-secret",
            scope=SCOPE,
            **{"oauth2-server-uri": f"{stack.catalog.url}/v1/oauth/tokens"},
        )


def polaris(stack: Stack, who: str = "service", realm: str | None = REALM) -> PolarisClient:
    tokens = OAuth2TokenSource(
        f"{stack.catalog.url}/v1/oauth/tokens",
        lambda: ClientCredentials(f"{who}-id", SecretStr(f"{who}-secret")),
        clock=stack.clock,
        realm=realm,
    )
    return PolarisClient(stack.catalog.url, tokens, realm=realm, clock=stack.clock)


def objects(stack: Stack, prefix: str = "") -> list[str]:
    pages = stack.admin.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": number, "region": region} for number, region in pairs], schema=SCHEMA.as_arrow()
    )


ORDERS = TableIdentifier("lake", ("sales",), "orders")


def orders(stack: Stack, **properties: str) -> Table:
    owner = connect(stack, "owner")
    owner.create_namespace_if_not_exists("sales")
    return owner.create_table(("sales", "orders"), SCHEMA, partition_spec=BY_REGION, properties=properties)


def filled_orders(stack: Stack) -> Table:
    table = orders(stack)
    table.append(rows((1, "eu"), (2, "us")))
    table.append(rows((3, "eu"), (4, "us")))
    table.delete("id = 3")
    return table


def test_a_partitioned_table_lives_through_appends_a_row_delete_and_a_tag(stack: Stack) -> None:
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


def test_our_client_loads_what_pyiceberg_wrote_and_its_credentials_reach_every_file(stack: Stack) -> None:
    table = filled_orders(stack)
    loaded = polaris(stack).load_table(ORDERS)
    assert loaded.table_uuid == str(table.metadata.table_uuid)
    assert loaded.metadata_location == table.metadata_location
    assert [s["snapshot-id"] for s in loaded.metadata["snapshots"]] == [s.snapshot_id for s in table.snapshots()]
    assert (loaded.s3.endpoint, loaded.s3.path_style, loaded.s3.region) == (stack.front.url, True, REGION)
    s3 = stack.s3_as(select_credential(loaded, loaded.metadata_location))
    found = s3.list_objects_v2(Bucket=BUCKET, Prefix="tables/sales/orders/")["Contents"]
    for key in [entry["Key"] for entry in found]:
        assert s3.head_object(Bucket=BUCKET, Key=key)["ContentLength"] > 0
    answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": entry["Key"]} for entry in found]})
    assert "Errors" not in answer
    assert objects(stack) == []


def test_vended_credentials_expire_and_are_cached_until_then(stack: Stack) -> None:
    orders(stack)
    client = polaris(stack)
    vended = VendedCredentials(lambda: client.load_table(ORDERS), clock=stack.clock)
    uri = vended.table().location + "/data/f"
    held = vended.for_uri(uri)
    assert held.expires_at is not None
    assert polaris(stack).load_table(ORDERS).credentials == (held,)
    old = stack.s3_as(held)
    old.put_object(Bucket=BUCKET, Key="tables/sales/orders/data/f", Body=b"x")
    stack.clock.ahead = timedelta(minutes=61)
    with pytest.raises(ClientError) as refused:
        old.get_object(Bucket=BUCKET, Key="tables/sales/orders/data/f")
    assert refused.value.response["Error"]["Code"] == "ExpiredToken"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    new = stack.s3_as(vended.for_uri(uri))
    assert new.get_object(Bucket=BUCKET, Key="tables/sales/orders/data/f")["Body"].read() == b"x"


def code_of(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    return str(refused.value.response["Error"]["Code"])


def test_a_reader_gets_keys_that_read_only(stack: Stack) -> None:
    filled_orders(stack)
    loaded = polaris(stack, "reader").load_table(ORDERS)
    [key, *_] = objects(stack, "tables/sales/orders/data/")
    s3 = stack.s3_as(loaded.credentials[0])
    assert s3.head_object(Bucket=BUCKET, Key=key)["ContentLength"] > 0
    before = objects(stack)
    assert code_of(s3.put_object, Bucket=BUCKET, Key=key + ".new", Body=b"x") == "AccessDenied"
    assert code_of(s3.delete_object, Bucket=BUCKET, Key=key) == "AccessDenied"
    answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key}]})
    assert [(error["Key"], error["Code"]) for error in answer["Errors"]] == [(key, "AccessDenied")]
    assert objects(stack) == before


def test_a_reader_cannot_append_through_pyiceberg(stack: Stack) -> None:
    filled_orders(stack)
    before = objects(stack)
    table = connect(stack, "reader").load_table(("sales", "orders"))
    assert table.scan().to_arrow().num_rows == 3
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        table.append(rows((9, "eu")))
    assert objects(stack) == before


def test_outside_its_table_a_vended_key_can_do_nothing(stack: Stack) -> None:
    orders(stack)
    for key in ("tables/sales/orders2/f", "tables/sales/f"):
        stack.admin.put_object(Bucket=BUCKET, Key=key, Body=b"x")
    s3 = stack.s3_as(polaris(stack).load_table(ORDERS).credentials[0])
    other = "tables/sales/orders2/f"
    assert code_of(s3.get_object, Bucket=BUCKET, Key=other) == "AccessDenied"
    assert code_of(s3.put_object, Bucket=BUCKET, Key=other, Body=b"y") == "AccessDenied"
    assert code_of(s3.list_objects_v2, Bucket=BUCKET) == "AccessDenied"
    assert code_of(s3.list_objects_v2, Bucket=BUCKET, Prefix="tables/sales/orders") == "AccessDenied"
    assert code_of(s3.get_bucket_versioning, Bucket=BUCKET) == "AccessDenied"
    assert code_of(s3.delete_bucket, Bucket=BUCKET) == "AccessDenied"
    source = {"Bucket": BUCKET, "Key": other}
    target = "tables/sales/orders/copy"
    assert code_of(s3.copy_object, Bucket=BUCKET, Key=target, CopySource=source) == "AccessDenied"
    assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] == REGION


def test_a_multi_delete_is_refused_key_by_key(stack: Stack) -> None:
    orders(stack)
    own = ["tables/sales/orders/data/a b+c%20d&<e>=1/ü.parquet", "tables/sales/orders/data/plain"]
    other = "tables/sales/orders2/<x>&y"
    for key in [*own, other]:
        stack.admin.put_object(Bucket=BUCKET, Key=key, Body=b"x")
    s3 = stack.s3_as(polaris(stack).load_table(ORDERS).credentials[0])
    answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in [own[0], other, own[1]]]})
    assert sorted(entry["Key"] for entry in answer["Deleted"]) == sorted(own)
    assert [(error["Key"], error["Code"]) for error in answer["Errors"]] == [(other, "AccessDenied")]
    assert objects(stack, "tables/sales/orders/data/") == []
    assert objects(stack, "tables/sales/orders2/") == [other]


def test_a_vended_key_without_its_token_is_nobody(stack: Stack) -> None:
    orders(stack)
    credential = polaris(stack).load_table(ORDERS).credentials[0]
    key = "tables/sales/orders/f"
    without = stack.s3(credential.access_key_id, credential.secret_access_key, None)
    assert code_of(without.put_object, Bucket=BUCKET, Key=key, Body=b"") == "InvalidAccessKeyId"
    wrong = stack.s3(credential.access_key_id, credential.secret_access_key, "wrong")
    assert code_of(wrong.put_object, Bucket=BUCKET, Key=key, Body=b"") == "InvalidToken"
    assert httpx.get(f"{stack.front.url}/{BUCKET}/{key}").status_code == 403


def test_large_and_oddly_named_objects_pass_unchanged(stack: Stack) -> None:
    body = bytes(range(256)) * 4096 * 6
    key = "a//b/%2F +?#ü=&/.."
    for s3 in (stack.admin, stack.s3("admin2", "x", "any-token")):
        s3.put_object(Bucket=BUCKET, Key=key, Body=body, Metadata={"note": "kept"})
        answer = s3.get_object(Bucket=BUCKET, Key=key)
        assert answer["Body"].read() == body
        assert answer["Metadata"] == {"note": "kept"}
        assert objects(stack) == [key]
        assert s3.get_object(Bucket=BUCKET, Key=key, Range="bytes=256-258")["Body"].read() == b"\x00\x01\x02"
        s3.delete_object(Bucket=BUCKET, Key=key)


def test_a_multipart_upload_with_vended_keys(stack: Stack) -> None:
    orders(stack)
    s3 = stack.s3_as(polaris(stack).load_table(ORDERS).credentials[0])
    where = {"Bucket": BUCKET, "Key": "tables/sales/orders/data/big"}
    upload = s3.create_multipart_upload(**where)["UploadId"]
    parts = [
        {"PartNumber": n, "ETag": s3.upload_part(**where, UploadId=upload, PartNumber=n, Body=b"x" * (5 << 20))["ETag"]}
        for n in (1, 2)
    ]
    s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})
    assert s3.head_object(**where)["ContentLength"] == 10 << 20
    other = s3.create_multipart_upload(**where)["UploadId"]
    assert code_of(s3.abort_multipart_upload, **where, UploadId=other) == "AccessDenied"
    stack.admin.abort_multipart_upload(**where, UploadId=other)


def test_a_chunked_body_passes(stack: Stack) -> None:
    headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=admin/20260101/eu-west-1/s3/aws4_request"}
    blocks = [b"a" * 70_000, b"b", b"c" * 5]
    url = f"{stack.front.url}/{BUCKET}/chunked"
    assert httpx.put(url, headers=headers, content=iter(blocks)).status_code == 200
    assert stack.admin.get_object(Bucket=BUCKET, Key="chunked")["Body"].read() == b"".join(blocks)


def test_a_connection_is_kept_alive_also_after_a_refused_upload(stack: Stack) -> None:
    orders(stack)
    credential = polaris(stack).load_table(ORDERS).credentials[0]
    headers = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={credential.access_key_id}/2/eu-west-1/s3/aws4_request",
        "X-Amz-Security-Token": credential.session_token or "",
    }
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
    with httpx.Client(limits=limits, headers=headers) as client:
        for _ in range(3):
            assert client.put(f"{stack.front.url}/{BUCKET}/no", content=b"x" * 300_000).status_code == 403
            assert client.put(f"{stack.front.url}/{BUCKET}/tables/sales/orders/yes", content=b"y").status_code == 200


def test_once_the_metadata_file_is_gone_only_the_drop_works(stack: Stack) -> None:
    table = filled_orders(stack)
    stack.admin.delete_object(Bucket=BUCKET, Key=table.metadata_location.removeprefix(f"s3://{BUCKET}/"))
    client = polaris(stack)
    with pytest.raises(errors.TableMetadataMissing, match="Location does not exist"):
        client.load_table(ORDERS)
    client.drop_table(ORDERS)
    with pytest.raises(errors.NoSuchTable):
        client.drop_table(ORDERS)
    with pytest.raises(errors.NoSuchTable):
        client.load_table(ORDERS)
    with pytest.raises(NoSuchTableError):
        connect(stack, "owner").load_table(("sales", "orders"))


def test_polaris_refuses_to_purge(stack: Stack) -> None:
    filled_orders(stack)
    before = objects(stack)
    with pytest.raises(errors.PolarisForbidden, match="DROP_WITH_PURGE_ENABLED"):
        polaris(stack).drop_table(ORDERS, purge=True)
    assert objects(stack) == before
    assert polaris(stack).load_table(ORDERS).location.endswith("/orders")


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


def test_two_commits_on_one_base_have_one_winner(stack: Stack) -> None:
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
    owner.create_namespace(("sales", "eu/de"))
    assert owner.list_namespaces() == [("sales",)]
    assert owner.list_namespaces("sales") == [("sales", "eu/de")]
    assert owner.load_namespace_properties("sales") == {"owner": "me"}
    owner.create_table(("sales", "eu/de", "x#1"), SCHEMA)
    loaded = polaris(stack).load_table(TableIdentifier("lake", ("sales", "eu/de"), "x#1"))
    assert loaded.location == f"s3://{BUCKET}/tables/sales/eu/de/x#1"
    assert owner.table_exists(("sales", "eu/de", "x#1"))
    assert not owner.table_exists(("sales", "eu/de", "x"))
    with pytest.raises(NamespaceNotEmptyError):
        owner.drop_namespace("sales")
    owner.drop_table(("sales", "eu/de", "x#1"))
    owner.drop_namespace(("sales", "eu/de"))


def test_two_hundred_snapshots_with_64_bit_ids_come_back_exactly(stack: Stack) -> None:
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
    token = httpx.post(
        f"{stack.catalog.url}/v1/oauth/tokens",
        data={
            "grant_type": "client_credentials",
            "client_id": "owner-id",
            "client_secret": "owner-secret",
            "scope": SCOPE,
        },
    ).json()["access_token"]
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
    # pyiceberg takes no vended credentials for a table that has no metadata file yet, so nothing is written in here.
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


def test_write_paths_are_covered_by_the_tables_credential(stack: Stack) -> None:
    table = orders(stack, **{"write.data.path": f"s3://{BUCKET}/elsewhere/orders"})
    table.append(rows((1, "eu")))
    [key] = objects(stack, "elsewhere/")
    loaded = polaris(stack).load_table(ORDERS)
    credential = select_credential(loaded, f"s3://{BUCKET}/{key}")
    assert credential.prefix == table.location()
    stack.s3_as(credential).delete_object(Bucket=BUCKET, Key=key)
    assert objects(stack, "elsewhere/") == []


def test_properties_schema_and_expiry_of_snapshots_evolve(stack: Stack) -> None:
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


def test_registering_the_same_files_twice_is_possible_as_in_polaris(stack: Stack) -> None:
    table = filled_orders(stack)
    clone = connect(stack, "owner").register_table(("sales", "clone"), table.metadata_location)
    assert clone.metadata.table_uuid == table.metadata.table_uuid


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"client_secret": "no"}, 401, "unauthorized_client"),
        ({"client_id": "no"}, 401, "unauthorized_client"),
        ({"scope": ""}, 400, "invalid_scope"),
        ({"scope": "catalog"}, 400, "invalid_scope"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
    ],
)
def test_token_refusals(stack: Stack, change: dict[str, str], status: int, error: str) -> None:
    form = {
        "grant_type": "client_credentials",
        "client_id": "owner-id",
        "client_secret": "owner-secret",
        "scope": SCOPE,
    }
    answer = httpx.post(f"{stack.catalog.url}/v1/oauth/tokens", data=form | change)
    assert (answer.status_code, answer.json()["error"]) == (status, error)


def test_realm_warehouse_and_token_are_checked(stack: Stack) -> None:
    orders(stack)
    with pytest.raises(errors.PolarisMisconfigured):
        polaris(stack, realm="other").load_table(ORDERS)
    with pytest.raises(errors.NoSuchCatalog):
        polaris(stack).load_table(TableIdentifier("other", ("sales",), "orders"))
    with pytest.raises(errors.NoSuchTable):
        polaris(stack).load_table(TableIdentifier("lake", ("nothing",), "orders"))
    answer = httpx.get(f"{stack.catalog.url}/v1/config", params={"warehouse": "lake"})
    assert (answer.status_code, answer.content, answer.headers["WWW-Authenticate"]) == (401, b"", "Bearer")


def test_a_forgotten_token_is_replaced_without_the_caller_noticing(stack: Stack) -> None:
    orders(stack)
    client = polaris(stack)
    client.load_table(ORDERS)
    stack.catalog.principals.revoke_tokens()
    assert client.load_table(ORDERS).location.endswith("/orders")


def test_a_revoked_grant_bites_at_the_next_request(stack: Stack) -> None:
    orders(stack)
    client = polaris(stack)
    principals = stack.catalog.principals
    client.load_table(ORDERS)
    principals.revoke("service", Privilege.TABLE_WRITE_DATA)
    try:
        with pytest.raises(errors.PolarisForbidden):
            client.load_table(ORDERS)
        assert client.load_table(ORDERS, vend=False).credentials == ()
    finally:
        principals.grant("service", Privilege.TABLE_WRITE_DATA)
    with pytest.raises(errors.PolarisForbidden):
        polaris(stack, "reader").drop_table(ORDERS)


def test_a_store_that_is_away_is_said_so() -> None:
    away = WsgiServer(application())
    away.stop()
    front = S3Front(away.url, VendedKeys()).start()
    try:
        with closing(httpx.Client()) as client:
            headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=admin/2/r/s3/aws4_request"}
            assert client.put(f"{front.url}/b/k", headers=headers, content=b"x").status_code == 503
    finally:
        front.stop()
