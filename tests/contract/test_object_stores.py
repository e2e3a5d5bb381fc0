"""The contract of ObjectStore and PlanStore, for memory, the file system and S3 (moto)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from delegation.storage.credentials import S3Settings
from delegation.storage.file_system import FileObjectStore, FilePlanStore
from delegation.storage.locations import LOCAL, ObjectLocation
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from delegation.storage.s3 import S3ObjectStore
from delegation.storage.s3_plans import S3PlanStore
from delegation.testing.object_stores import ObjectStoreContract, StoreUnderTest
from tests.aws import s3_in_moto

# Keys that no file can have; for two of them a file of a similar name must not be found.
NO_FILES = {"trail/", "a//b", "/leading", "x" * 900}


@pytest.fixture(params=["memory", "files", "s3"])
def opened(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StoreUnderTest]:
    if request.param == "files":
        yield _on_disk(tmp_path)
        return
    if request.param == "memory":
        memory = MemoryObjectStore(versioned_buckets=["versions"])
        yield StoreUnderTest(
            memory,
            MemoryPlanStore(),
            lambda bucket, key, data: memory.put(ObjectLocation(bucket, key), data),
            lambda bucket: {key for where, key in memory.objects if where == bucket},
            deny_versioning=lambda: setattr(memory, "versioning_denied", True),
        )
        return
    with s3_in_moto("lake", "versions", "plans") as client:
        client.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
        yield StoreUnderTest(
            S3ObjectStore(settings=S3Settings(region="us-east-1")),
            S3PlanStore(client, "plans", "some/prefix/"),
            lambda bucket, key, data: _put(client, bucket, key, data),
            lambda bucket: _keys(client, bucket),
            suspend=lambda status: client.put_bucket_versioning(
                Bucket="versions", VersioningConfiguration={"Status": status}
            ),
            deny_versioning=lambda: deny_versioning(monkeypatch),
        )


def _on_disk(place: Path) -> StoreUnderTest:
    root = place / "lake"

    def put(_bucket: str, key: str, data: bytes) -> None:
        path = Path("/", key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    below = root.relative_to("/").as_posix() + "/"
    return StoreUnderTest(
        FileObjectStore(),
        FilePlanStore(place / "plans"),
        put,
        lambda _bucket: {path.relative_to("/").as_posix() for path in root.rglob("*") if path.is_file()},
        lake=LOCAL,
        below=below,
        holds=lambda key: key not in NO_FILES,
        versions=None,
    )


def _put(client: Any, bucket: str, key: str, data: bytes) -> None:
    client.put_object(Bucket=bucket, Key=key, Body=data)


def _keys(client: Any, bucket: str) -> set[str]:
    return {one["Key"] for one in client.list_objects_v2(Bucket=bucket).get("Contents", [])}


def deny_versioning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deny GetBucketVersioning, as vended credentials usually do."""
    usual = BaseClient._make_api_call

    def call(client: Any, operation: str, arguments: Any) -> Any:
        if operation == "GetBucketVersioning":
            raise ClientError({"Error": {"Code": "AccessDenied"}}, operation)
        return usual(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)


class TestObjectStores(ObjectStoreContract):
    @pytest.fixture
    def tested(self, opened: StoreUnderTest) -> StoreUnderTest:
        return opened
