"""Vended credentials and the S3 front that enforces their bounds, on moto in this process."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError

from delegation.polaris.credentials import VendedCredentials, select_credential
from infra.local.catalog.layout import ALLOW_OVERLAP, ALLOW_UNSTRUCTURED
from tests.integration.local.catalog_world import (
    BUCKET,
    ORDERS,
    REGION,
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


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    yield from running()


@pytest.fixture(autouse=True)
def clean(stack: Stack) -> Iterator[None]:
    yield from emptied(stack)


def test_the_polaris_client_loads_a_table_of_pyiceberg_with_credentials_for_every_file(stack: Stack) -> None:
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
    credential = vended.for_uri(uri)
    assert credential.expires_at is not None
    assert polaris(stack).load_table(ORDERS).credentials == (credential,)
    old = stack.s3_as(credential)
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


def test_a_reader_gets_read_only_keys(stack: Stack) -> None:
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


def test_a_vended_key_has_no_access_outside_its_table(stack: Stack) -> None:
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


def test_a_vended_key_without_its_token_is_refused(stack: Stack) -> None:
    orders(stack)
    credential = polaris(stack).load_table(ORDERS).credentials[0]
    key = "tables/sales/orders/f"
    without = stack.s3(credential.access_key_id, credential.secret_access_key, None)
    assert code_of(without.put_object, Bucket=BUCKET, Key=key, Body=b"") == "InvalidAccessKeyId"
    wrong = stack.s3(credential.access_key_id, credential.secret_access_key, "wrong")
    assert code_of(wrong.put_object, Bucket=BUCKET, Key=key, Body=b"") == "InvalidToken"
    assert httpx.get(f"{stack.front.url}/{BUCKET}/{key}").status_code == 403


def test_large_objects_and_unusual_keys_are_forwarded_unchanged(stack: Stack) -> None:
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


def test_a_chunked_body_is_forwarded(stack: Stack) -> None:
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


def test_the_tables_credential_covers_its_write_paths(stack: Stack) -> None:
    stack.allow(ALLOW_OVERLAP, ALLOW_UNSTRUCTURED)
    table = orders(stack, **{"write.data.path": f"s3://{BUCKET}/elsewhere/orders"})
    table.append(rows((1, "eu")))
    [key] = objects(stack, "elsewhere/")
    loaded = polaris(stack).load_table(ORDERS)
    credential = select_credential(loaded, f"s3://{BUCKET}/{key}")
    assert credential.prefix == table.location()
    stack.s3_as(credential).delete_object(Bucket=BUCKET, Key=key)
    assert objects(stack, "elsewhere/") == []
