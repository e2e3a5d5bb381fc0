"""What every ObjectStore and PlanStore must do: one suite over memory and S3 (moto)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from delegation.polaris.model import S3Settings
from delegation.purge.files import FilePlanStore
from delegation.purge.locations import ObjectLocation
from delegation.purge.memory import MemoryObjectStore, MemoryPlanStore
from delegation.purge.objectstore import ObjectNotFound, ObjectStore, ObjectTooLarge, PlanStore
from delegation.purge.s3 import S3ObjectStore, S3PlanStore

ODD_KEYS = [
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


@dataclass
class Side:
    """A store under test and the side door to its objects."""

    store: ObjectStore
    plans: PlanStore
    put: Callable[[str, str, bytes], None]
    keys: Callable[[str], set[str]]


@pytest.fixture(params=["memory", "files", "s3"])
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Side]:
    if request.param != "s3":
        memory = MemoryObjectStore(versioned_buckets=["versions"])
        yield Side(
            memory,
            MemoryPlanStore() if request.param == "memory" else FilePlanStore(tmp_path / "plans"),
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
        yield Side(
            S3ObjectStore(settings=S3Settings(region="us-east-1")),
            S3PlanStore(client, "plans", "some/prefix/"),
            lambda bucket, key, data: _put(client, bucket, key, data),
            lambda bucket: _keys(client, bucket),
        )


def _put(client: Any, bucket: str, key: str, data: bytes) -> None:
    client.put_object(Bucket=bucket, Key=key, Body=data)


def _keys(client: Any, bucket: str) -> set[str]:
    return {one["Key"] for one in client.list_objects_v2(Bucket=bucket).get("Contents", [])}


def test_read_what_is_there_and_say_what_is_not(side: Side) -> None:
    side.put("lake", "a", b"12345")
    assert side.store.read(ObjectLocation("lake", "a"), limit=5) == b"12345"
    assert side.store.exists(ObjectLocation("lake", "a"))
    assert not side.store.exists(ObjectLocation("lake", "b"))
    with pytest.raises(ObjectNotFound):
        side.store.read(ObjectLocation("lake", "b"), limit=5)
    with pytest.raises(ObjectTooLarge):
        side.store.read(ObjectLocation("lake", "a"), limit=4)


def test_delete_says_so_for_every_key_absent_ones_too(side: Side) -> None:
    side.put("lake", "a", b"")
    side.put("lake", "stays", b"")
    result = side.store.delete("lake", ["a", "absent"])
    assert (set(result.deleted), result.failed, result.markers) == ({"a", "absent"}, (), False)
    assert side.keys("lake") == {"stays"}


def test_odd_keys_are_deleted_exactly(side: Side) -> None:
    for key in ODD_KEYS:
        side.put("lake", key, b"")
    decoys = {"a", "b", "a/b", "trail", "new", "leading", "x" * 899, "a%252Fb"}
    for key in decoys:
        side.put("lake", key, b"")
    result = side.store.delete("lake", ODD_KEYS)
    assert set(result.deleted) == set(ODD_KEYS)
    assert result.failed == ()
    assert side.keys("lake") == decoys


def test_a_thousand_keys_in_one_go(side: Side) -> None:
    keys = [f"k{number}" for number in range(1000)]
    side.put("lake", "k7", b"")
    assert set(side.store.delete("lake", keys).deleted) == set(keys)
    assert side.keys("lake") == set()


def test_versioned_buckets_are_told_apart(side: Side) -> None:
    assert side.store.versioned("versions") is True
    assert side.store.versioned("lake") is False
    side.put("versions", "a", b"")
    assert side.store.delete("versions", ["a"]).markers


def test_a_probe_leaves_nothing_behind(side: Side) -> None:
    side.put("lake", "t/a", b"")
    assert side.store.probe_delete("s3://lake/t/") is None
    assert side.keys("lake") == {"t/a"}


def test_plans_are_stored_listed_and_missed(side: Side) -> None:
    for key in ("t/1/b", "t/1/a", "t/10/a", "u/1/a"):
        side.plans.put(key, key.encode())
    assert side.plans.get("t/1/a") == b"t/1/a"
    assert list(side.plans.keys("t/1/")) == ["t/1/a", "t/1/b"]
    assert list(side.plans.keys("nothing")) == []
    with pytest.raises(ObjectNotFound):
        side.plans.get("t/1/c")
    side.plans.put("t/1/a", b"again")
    assert side.plans.get("t/1/a") == b"again"
