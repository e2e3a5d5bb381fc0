"""What each server does differently from AWS: the table of docs/s3-servers.md, row by row."""

import itertools
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from delegation.storage.base import ObjectStoreError
from delegation.storage.locations import ObjectLocation
from delegation.storage.s3 import S3ObjectStore
from tests.s3_servers.servers import AWS, RealServer

pytestmark = pytest.mark.long
_numbers = itertools.count()


@pytest.fixture
def bucket(server: RealServer) -> str:
    name = f"differences-{next(_numbers)}"
    server.client().create_bucket(Bucket=name)
    return name


def refusal(call: Callable[[], object]) -> tuple[int, str] | None:
    """Return status and code of a refused call, None if it was answered."""
    try:
        call()
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
    return None


def put(server: RealServer, bucket: str, key: str, data: bytes = b"x") -> tuple[int, str] | None:
    return refusal(lambda: server.client().put_object(Bucket=bucket, Key=key, Body=data))


def keys(server: RealServer, bucket: str) -> list[str]:
    return [one["Key"] for one in server.client().list_objects_v2(Bucket=bucket).get("Contents", [])]


def of(server: RealServer, **expected: Any) -> Any:
    return expected[server.name]


def delete(server: RealServer, bucket: str, key: str) -> tuple[bool, list[str]]:
    """Return whether the store confirmed the delete, and the codes of failures."""
    result = S3ObjectStore(settings=server.settings).delete(bucket, [key])
    return result.deleted == (key,), [failure.code for failure in result.failed]


def test_a_key_is_a_path(server: RealServer, bucket: str) -> None:
    put(server, bucket, "a/b")
    assert put(server, bucket, "a//b") == of(server, versitygw=None, rclone=(400, "InvalidArgument"))
    assert keys(server, bucket) == ["a/b"]
    confirmed, _ = delete(server, bucket, "a//b")
    assert confirmed == of(server, versitygw=True, rclone=False)
    assert keys(server, bucket) == of(server, versitygw=[], rclone=["a/b"])


def test_an_object_that_ends_with_a_slash_has_no_data(server: RealServer, bucket: str) -> None:
    expected = of(server, versitygw=(400, "DirectoryObjectContainsData"), rclone=(400, "InvalidArgument"))
    assert put(server, bucket, "trail/") == expected


def test_a_slash_at_the_end_names_no_object(server: RealServer, bucket: str) -> None:
    """Deleting such a key leaves the object without the slash."""
    put(server, bucket, "a")
    there = S3ObjectStore(settings=server.settings).exists(ObjectLocation(bucket, "a/"))
    assert there == of(server, versitygw=False, rclone=True)
    delete(server, bucket, "a/")
    assert keys(server, bucket) == ["a"]


def test_no_object_lies_below_another(server: RealServer, bucket: str) -> None:
    put(server, bucket, "a")
    assert put(server, bucket, "a/b") == of(
        server, versitygw=(409, "ObjectParentIsFile"), rclone=(400, "InvalidRequest")
    )


def test_a_name_between_two_slashes_has_255_bytes(server: RealServer, bucket: str) -> None:
    assert put(server, bucket, "x" * 255) is None
    long = put(server, bucket, "x" * 900)
    assert long == of(server, versitygw=(400, "KeyTooLongError"), rclone=(500, "InternalError"))


def test_keys_in_one_delete(server: RealServer, bucket: str) -> None:
    objects = [{"Key": f"k{number}"} for number in range(1001)]
    call = refusal(lambda: server.client().delete_objects(Bucket=bucket, Delete={"Objects": objects}))  # type: ignore[typeddict-item]
    assert call == of(server, versitygw=None, rclone=(400, "MalformedXML"))


def test_a_quiet_delete(server: RealServer, bucket: str) -> None:
    answer = server.client().delete_objects(Bucket=bucket, Delete={"Quiet": True, "Objects": [{"Key": "a"}]})
    assert ("Deleted" in answer) == of(server, versitygw=True, rclone=False)


def test_versions(server: RealServer, bucket: str) -> None:
    on = {"Status": "Enabled"}
    call = refusal(lambda: server.client().put_bucket_versioning(Bucket=bucket, VersioningConfiguration=on))  # type: ignore[arg-type]
    assert call == of(server, versitygw=None, rclone=(501, "NotImplemented"))


def client_of(server: RealServer, **more: str) -> Any:
    names = {"aws_access_key_id": AWS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": AWS["AWS_SECRET_ACCESS_KEY"]}
    return boto3.client("s3", endpoint_url=server.url, region_name="us-east-1", **{**names, **more})


def test_a_session_token(server: RealServer, bucket: str) -> None:
    call = refusal(lambda: client_of(server, aws_session_token="token").list_objects_v2(Bucket=bucket))
    assert call == of(server, versitygw=(400, "InvalidToken"), rclone=None)


def test_an_unknown_access_key_is_never_taken_for_an_absent_object(
    server: RealServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = refusal(lambda: client_of(server, aws_access_key_id="unknown").list_objects_v2(Bucket=bucket))
    assert call == of(server, versitygw=(404, "XAdminUserNotFound"), rclone=(403, "InvalidAccessKeyId"))
    put(server, bucket, "a")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown")
    store = S3ObjectStore(settings=server.settings)
    with pytest.raises(ObjectStoreError):
        store.exists(ObjectLocation(bucket, "a"))
    result = store.delete(bucket, ["a"])
    assert (result.deleted, len(result.failed)) == ((), 1)
    assert keys(server, bucket) == ["a"]
