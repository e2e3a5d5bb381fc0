"""What every ObjectStore and PlanStore must do: one suite over memory, the file system and S3 (moto)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from delegation.storage.base import BatchResult, FileTooLarge, ObjectNotFound, ObjectStore, PlanStore
from delegation.storage.credentials import S3Settings
from delegation.storage.file_system import FileObjectStore, FilePlanStore
from delegation.storage.locations import LOCAL, ObjectLocation
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from delegation.storage.s3 import S3ObjectStore
from delegation.storage.s3_plans import S3PlanStore

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


# Keys of an object store that no file of a file system can have; under two of them another file must not be found.
NO_FILES = {"trail/", "a//b", "/leading", "x" * 900}


@dataclass
class Side:
    """A store under test and the side door to its objects; `lake` is the bucket, and `below` what its keys start with.

    `holds` tells whether the storage can have an object of that key at all, `versions` which bucket keeps versions.
    """

    store: ObjectStore
    plans: PlanStore
    put: Callable[[str, str, bytes], None]
    keys: Callable[[str], set[str]]
    lake: str = "lake"
    below: str = ""
    holds: Callable[[str], bool] = lambda _key: True
    versions: str | None = "versions"

    def at(self, key: str) -> ObjectLocation:
        return ObjectLocation(self.lake, self.below + key)


@pytest.fixture(params=["memory", "files", "s3"])
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Side]:
    if request.param == "files":
        yield _on_disk(tmp_path)
        return
    if request.param == "memory":
        memory = MemoryObjectStore(versioned_buckets=["versions"])
        yield Side(
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
        yield Side(
            S3ObjectStore(settings=S3Settings(region="us-east-1")),
            S3PlanStore(client, "plans", "some/prefix/"),
            lambda bucket, key, data: _put(client, bucket, key, data),
            lambda bucket: _keys(client, bucket),
        )


def _on_disk(place: Path) -> Side:
    root = place / "lake"

    def put(_bucket: str, key: str, data: bytes) -> None:
        path = Path("/", key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    below = root.relative_to("/").as_posix() + "/"
    return Side(
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


def fill(side: Side, *keys: str) -> None:
    for key in keys:
        side.put(side.lake, side.below + key, b"12345")


def left(side: Side) -> set[str]:
    return {key.removeprefix(side.below) for key in side.keys(side.lake)}


def delete(side: Side, *keys: str) -> BatchResult:
    result = side.store.delete(side.lake, [side.below + key for key in keys])
    return replace(result, deleted=tuple(key.removeprefix(side.below) for key in result.deleted))


def test_read_what_is_there_and_say_what_is_not(side: Side) -> None:
    fill(side, "a")
    assert side.store.read(side.at("a"), limit=5) == b"12345"
    assert side.store.exists(side.at("a"))
    for absent in ("b", "a/b", "a/"):
        assert not side.store.exists(side.at(absent))
        with pytest.raises(ObjectNotFound):
            side.store.read(side.at(absent), limit=5)
    with pytest.raises(FileTooLarge):
        side.store.read(side.at("a"), limit=4)


def test_delete_says_so_for_every_key_absent_ones_too(side: Side) -> None:
    fill(side, "a", "stays")
    result = delete(side, "a", "absent", "stays/below")
    assert (set(result.deleted), result.failed, result.delete_markers) == ({"a", "absent", "stays/below"}, (), False)
    assert left(side) == {"stays"}


def test_odd_keys_are_deleted_exactly(side: Side) -> None:
    fill(side, *(key for key in ODD_KEYS if side.holds(key)))
    decoys = {"a/b", "b", "trail", "new", "leading", "x" * 200, "a%252Fb"}
    fill(side, *decoys)
    result = delete(side, *ODD_KEYS)
    assert set(result.deleted) == set(ODD_KEYS)
    assert result.failed == ()
    assert left(side) == decoys


def test_a_thousand_keys_in_one_go(side: Side) -> None:
    keys = [f"k{number}" for number in range(1000)]
    fill(side, "k7")
    assert set(delete(side, *keys).deleted) == set(keys)
    assert left(side) == set()


def test_versioned_buckets_are_told_apart(side: Side) -> None:
    assert side.store.versioned(side.lake) is False
    if side.versions is not None:
        assert side.store.versioned(side.versions) is True
        side.put(side.versions, "a", b"")
        assert side.store.delete(side.versions, ["a"]).delete_markers


def test_a_probe_leaves_nothing_behind(side: Side) -> None:
    fill(side, "t/a")
    for prefix in ("t", "t/not/there"):
        assert side.store.probe_delete(side.at(prefix).uri + "/") is None
    assert left(side) == {"t/a"}


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
