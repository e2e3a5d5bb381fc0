"""The contract of VersionedStore, and the delete markers of conditional deletes, for memory and S3 (moto)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from delegation.storage.base import ObjectStoreDenied
from delegation.storage.credentials import S3Settings
from delegation.storage.listing.model import KeyVersions, ListableStore, ListedObject, VersionedStore
from delegation.storage.listing.tags_s3 import S3Versions
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import MemoryObjectStore
from delegation.storage.s3 import S3ObjectStore
from tests.aws import s3_in_moto


@dataclass
class Versioned:
    """A bucket with versions under test."""

    store: ListableStore
    kept: VersionedStore
    put: Callable[[str, bytes], Any]

    def listed(self, key: str) -> ListedObject:
        [found] = [one for one in self.store.page("lake", key).objects if one.key == key]
        return found

    def delete(self, *keys: str) -> dict[str, str]:
        """Delete objects as they are; return the delete markers that were written."""
        done = self.store.delete_unchanged("lake", [self.listed(key) for key in keys])
        assert sorted(done.result.deleted) == sorted(keys)
        assert done.result.delete_markers
        return dict(done.markers)

    def exists(self, key: str) -> bool:
        return self.store.exists(ObjectLocation("lake", key))

    def versions(self, key: str) -> KeyVersions:
        return self.kept.versions("lake", key)


@pytest.fixture(params=["memory", "s3"])
def lake(request: pytest.FixtureRequest) -> Iterator[Versioned]:
    if request.param == "memory":
        memory = MemoryObjectStore(versioned_buckets=["lake"])
        yield Versioned(memory, memory, lambda key, data: memory.put(ObjectLocation("lake", key), data))
        return
    with s3_in_moto("lake", versioned=True) as client:
        store = S3ObjectStore(settings=S3Settings(region="us-east-1"))
        put = lambda key, data: client.put_object(Bucket="lake", Key=key, Body=data)  # noqa: E731
        yield Versioned(store, S3Versions(client), put)


def test_a_delete_says_which_marker_it_wrote_and_without_it_the_object_is_back(lake: Versioned) -> None:
    for key in ("t/a", "t/a b%2F", "t/ü"):
        lake.put(key, b"12345")
    before = {key: lake.listed(key) for key in ("t/a", "t/a b%2F", "t/ü")}
    markers = lake.delete(*before)
    assert markers.keys() == before.keys()
    for key, marker in markers.items():
        found = lake.versions(key)
        assert found.newest is not None
        assert found.newest_object is not None
        assert (found.newest.version_id, found.newest.object) == (marker, None)
        assert found.newest_object.object == before[key]
        lake.kept.remove_version("lake", key, marker)
        lake.kept.remove_version("lake", key, marker)
        assert lake.listed(key) == before[key]


def test_a_key_that_is_written_again_has_its_new_object_on_top(lake: Versioned) -> None:
    lake.put("t/a", b"old")
    marker = lake.delete("t/a")["t/a"]
    lake.put("t/a", b"other")
    found = lake.versions("t/a")
    assert found.newest == found.newest_object
    assert found.newest is not None
    assert found.newest.object is not None
    assert found.newest.object.size == 5
    lake.kept.remove_version("lake", "t/a", marker)
    assert lake.listed("t/a").size == 5


def test_a_key_that_was_deleted_again_has_another_marker_on_top(lake: Versioned) -> None:
    lake.put("t/a", b"old")
    first = lake.delete("t/a")["t/a"]
    lake.put("t/a", b"other")
    second = lake.delete("t/a")["t/a"]
    found = lake.versions("t/a").newest
    assert first != second
    assert found is not None
    assert found.version_id == second


def test_of_keys_with_one_beginning_only_the_asked_one_counts(lake: Versioned) -> None:
    for key in ("t/a", "t/a1", "t/a/b"):
        lake.put(key, key.encode())
    markers = lake.delete("t/a1", "t/a/b")
    found = lake.versions("t/a").newest
    assert found is not None
    assert found.object is not None
    assert found.object.key == "t/a"
    marked = lake.versions("t/a1").newest
    assert marked is not None
    assert marked.version_id == markers["t/a1"]
    assert lake.versions("t/none") == KeyVersions()


def test_a_denied_call_is_that() -> None:
    class Denying:
        def __getattr__(self, _name: str) -> Any:
            from botocore.exceptions import ClientError

            def call(**_named: Any) -> Any:
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListObjectVersions")

            return call

    store = S3Versions(Denying())  # type: ignore[arg-type]
    with pytest.raises(ObjectStoreDenied):
        store.versions("lake", "t/a")
    with pytest.raises(ObjectStoreDenied):
        store.remove_version("lake", "t/a", "1")
