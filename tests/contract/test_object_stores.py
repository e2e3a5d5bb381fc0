"""The contract of ObjectStore and PlanStore, for memory, the file system and S3 (moto)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from delegation.storage.base import BatchResult, FileTooLarge, ObjectNotFound, ObjectStore, PlanStore
from delegation.storage.credentials import S3Settings
from delegation.storage.file_system import FileObjectStore, FilePlanStore
from delegation.storage.locations import LOCAL, ObjectLocation
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from delegation.storage.s3 import S3ObjectStore
from delegation.storage.s3_plans import S3PlanStore
from tests.aws import mock_aws

UNUSUAL_KEYS = [
    "a b",
    "a+b",
    "a%2Fb",
    "a%b",
    "a=b&c;d",
    "<tag>&amp;",
    "'quoted\"",
    "ünï/ço dé",
    "trail/",
    "a//b",
    "/leading",
    "new\nline",
    "tab\tand\rreturn",
    "control\x01\x7f",
    "astral😀",
    "x" * 900,
]


# Keys that no file can have; for two of them a file of a similar name must not be found.
NO_FILES = {"trail/", "a//b", "/leading", "x" * 900}


@dataclass
class StoreUnderTest:
    """A store under test, and direct access to its objects; `lake` is the bucket and `below` the prefix of its keys.

    `holds` returns whether the storage can have an object with a key; `versions` is a bucket that keeps versions.
    """

    store: ObjectStore
    plans: PlanStore
    put: Callable[[str, str, bytes], None]
    keys: Callable[[str], set[str]]
    lake: str = "lake"
    below: str = ""
    holds: Callable[[str], bool] = lambda _key: True
    versions: str | None = "versions"
    suspend: Callable[[str], object] = lambda _status: None

    def at(self, key: str) -> ObjectLocation:
        return ObjectLocation(self.lake, self.below + key)


@pytest.fixture(params=["memory", "files", "s3"])
def tested(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StoreUnderTest]:
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
        )
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        for bucket in ("lake", "versions", "plans"):
            client.create_bucket(Bucket=bucket)
        client.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
        yield StoreUnderTest(
            S3ObjectStore(settings=S3Settings(region="us-east-1")),
            S3PlanStore(client, "plans", "some/prefix/"),
            lambda bucket, key, data: _put(client, bucket, key, data),
            lambda bucket: _keys(client, bucket),
            suspend=lambda status: client.put_bucket_versioning(
                Bucket="versions", VersioningConfiguration={"Status": status}
            ),
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


def fill(tested: StoreUnderTest, *keys: str) -> None:
    for key in keys:
        tested.put(tested.lake, tested.below + key, b"12345")


def left(tested: StoreUnderTest) -> set[str]:
    return {key.removeprefix(tested.below) for key in tested.keys(tested.lake)}


def delete(tested: StoreUnderTest, *keys: str) -> BatchResult:
    result = tested.store.delete(tested.lake, [tested.below + key for key in keys])
    return replace(result, deleted=tuple(key.removeprefix(tested.below) for key in result.deleted))


def test_existing_objects_are_read_and_absent_ones_reported(tested: StoreUnderTest) -> None:
    fill(tested, "a")
    assert tested.store.read(tested.at("a"), limit=5) == b"12345"
    assert tested.store.exists(tested.at("a"))
    for absent in ("b", "a/b", "a/"):
        assert not tested.store.exists(tested.at(absent))
        with pytest.raises(ObjectNotFound):
            tested.store.read(tested.at(absent), limit=5)
    with pytest.raises(FileTooLarge):
        tested.store.read(tested.at("a"), limit=4)


def test_delete_confirms_every_key_absent_ones_too(tested: StoreUnderTest) -> None:
    fill(tested, "a", "kept")
    result = delete(tested, "a", "absent", "kept/below")
    assert (set(result.deleted), result.failed, result.delete_markers) == ({"a", "absent", "kept/below"}, (), False)
    assert left(tested) == {"kept"}


def test_unusual_keys_are_deleted_exactly(tested: StoreUnderTest) -> None:
    fill(tested, *(key for key in UNUSUAL_KEYS if tested.holds(key)))
    decoys = {"a/b", "b", "trail", "new", "leading", "x" * 200, "a%252Fb"}
    fill(tested, *decoys)
    result = delete(tested, *UNUSUAL_KEYS)
    assert set(result.deleted) == set(UNUSUAL_KEYS)
    assert result.failed == ()
    assert left(tested) == decoys


def test_a_thousand_keys_in_one_call(tested: StoreUnderTest) -> None:
    keys = [f"k{number}" for number in range(1000)]
    fill(tested, "k7")
    assert set(delete(tested, *keys).deleted) == set(keys)
    assert left(tested) == set()


def test_versioned_buckets_are_recognized(tested: StoreUnderTest) -> None:
    assert tested.store.versioned(tested.lake) is False
    if tested.versions is not None:
        assert tested.store.versioned(tested.versions) is True
        tested.put(tested.versions, "a", b"")
        assert tested.store.delete(tested.versions, ["a"]).delete_markers


@pytest.mark.parametrize("status", ["Enabled", "Suspended"])
def test_versions_are_recognized_by_an_object_where_the_bucket_may_not_be_asked(
    tested: StoreUnderTest, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tested, "a")
    if tested.versions is not None:
        tested.put(tested.versions, "a", b"12345")
        tested.suspend(status)
    deny_versioning(tested, monkeypatch)
    assert not tested.store.versioned(tested.lake, seen=tested.at("a"))
    assert not tested.store.versioned(tested.lake, seen=tested.at("absent"))
    if tested.versions is not None:
        assert tested.store.versioned(tested.versions) is None
        assert tested.store.versioned(tested.versions, seen=ObjectLocation(tested.versions, "absent")) is None
        assert tested.store.versioned(tested.versions, seen=ObjectLocation(tested.versions, "a")) is True


def deny_versioning(tested: StoreUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deny GetBucketVersioning, as vended credentials usually do."""
    if isinstance(tested.store, MemoryObjectStore):
        tested.store.versioning_denied = True
    usual = BaseClient._make_api_call

    def call(client: Any, operation: str, arguments: Any) -> Any:
        if operation == "GetBucketVersioning":
            raise ClientError({"Error": {"Code": "AccessDenied"}}, operation)
        return usual(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)


def test_a_probe_leaves_nothing_behind(tested: StoreUnderTest) -> None:
    fill(tested, "t/a")
    for prefix in ("t", "t/not/there"):
        assert tested.store.probe_delete(tested.at(prefix).uri + "/") is None
    assert left(tested) == {"t/a"}


def test_plans_are_stored_and_listed_and_absent_ones_reported(tested: StoreUnderTest) -> None:
    for key in ("t/1/b", "t/1/a", "t/10/a", "u/1/a"):
        tested.plans.put(key, key.encode())
    assert tested.plans.get("t/1/a") == b"t/1/a"
    assert list(tested.plans.keys("t/1/")) == ["t/1/a", "t/1/b"]
    assert list(tested.plans.keys("nothing")) == []
    with pytest.raises(ObjectNotFound):
        tested.plans.get("t/1/c")
    tested.plans.put("t/1/a", b"again")
    assert tested.plans.get("t/1/a") == b"again"


def test_only_keys_that_were_absent_are_reported_as_absent(tested: StoreUnderTest) -> None:
    """S3 confirms the delete of an absent key like any other, so a store need not know."""
    fill(tested, "a", "b")
    result = delete(tested, "a", "no-such", "b")
    absent = {key.removeprefix(tested.below) for key in result.absent}
    assert result.deleted == ("a", "no-such", "b")
    assert absent == ({"no-such"} if tested.lake == LOCAL else set())
