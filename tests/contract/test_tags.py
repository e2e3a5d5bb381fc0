"""The contract of TagStore, for memory and S3 (moto), with and without versions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from delegation.storage.base import BucketNotFound
from delegation.storage.credentials import S3Settings
from delegation.storage.listing.model import (
    CHANGED,
    GONE,
    TAG,
    TAGS_FULL,
    ListableStore,
    ListedObject,
    TagFound,
    TagStore,
)
from delegation.storage.listing.tags_s3 import S3Tags
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import MemoryObjectStore
from delegation.storage.s3 import S3ObjectStore
from tests.aws import s3_in_moto

KEY = "t/a b+%41.parquet"


@dataclass
class Tagged:
    """A bucket under test; `tags` reads the tags of the object that is there now, `others` sets them."""

    store: ListableStore
    role: TagStore
    put: Callable[[str, bytes], Any]
    remove: Callable[[str], Any]
    tags: Callable[[str], dict[str, str]]
    others: Callable[[str, dict[str, str]], Any]

    def listed(self, key: str = KEY) -> ListedObject:
        [found] = [one for one in self.store.page("lake", key).objects if one.key == key]
        return found


@pytest.fixture(params=["memory", "s3", "versions"])
def lake(request: pytest.FixtureRequest) -> Iterator[Tagged]:
    if request.param == "memory":
        memory = MemoryObjectStore()

        def now(key: str) -> tuple[str, ListedObject]:
            return "lake", memory.page("lake", key).objects[0]

        yield Tagged(
            memory,
            memory,
            lambda key, data: memory.put(ObjectLocation("lake", key), data),
            lambda key: memory.objects.pop(("lake", key)),
            lambda key: dict(memory.tags.get(now(key), {})),
            lambda key, tags: memory.tags.update({now(key): dict(tags)}),
        )
        return
    with s3_in_moto("lake", versioned=request.param == "versions") as client:

        def pairs(tags: dict[str, str]) -> Any:
            return {"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]}

        yield Tagged(
            S3ObjectStore(settings=S3Settings(region="us-east-1")),
            S3Tags(lambda: client),
            lambda key, data: client.put_object(Bucket="lake", Key=key, Body=data),
            lambda key: client.delete_object(Bucket="lake", Key=key),
            lambda key: {
                one["Key"]: one["Value"] for one in client.get_object_tagging(Bucket="lake", Key=key)["TagSet"]
            },
            lambda key, tags: client.put_object_tagging(Bucket="lake", Key=key, Tagging=pairs(tags)),
        )


@pytest.fixture
def one(lake: Tagged) -> ListedObject:
    lake.put(KEY, b"orphan")
    return lake.listed()


def test_an_object_as_it_was_listed_gets_the_tag_and_loses_it_again(lake: Tagged, one: ListedObject) -> None:
    assert lake.role.tag("lake", one) is None
    assert lake.tags(KEY) == dict([TAG])
    assert lake.listed() == one
    assert lake.role.tag("lake", one) is None
    assert lake.role.untag("lake", one, dry_run=True) is TagFound.TAGGED
    assert lake.tags(KEY) == dict([TAG])
    assert lake.role.untag("lake", one) is TagFound.TAGGED
    assert lake.tags(KEY) == {}
    assert lake.role.untag("lake", one) is TagFound.UNTAGGED


def test_other_tags_stay(lake: Tagged, one: ListedObject) -> None:
    mine = {"team": "a", "cost": "7"}
    lake.others(KEY, mine)
    assert lake.role.tag("lake", one) is None
    assert lake.tags(KEY) == {**mine, TAG[0]: TAG[1]}
    assert lake.role.untag("lake", one) is TagFound.TAGGED
    assert lake.tags(KEY) == mine


def test_an_object_with_ten_tags_of_others_keeps_them_and_gets_none(lake: Tagged, one: ListedObject) -> None:
    full = {f"k{number}": "v" for number in range(10)}
    lake.others(KEY, full)
    assert lake.role.tag("lake", one) == TAGS_FULL
    assert lake.tags(KEY) == full
    assert lake.role.untag("lake", one) is TagFound.UNTAGGED


def test_an_object_that_was_written_again_gets_no_tag(lake: Tagged, one: ListedObject) -> None:
    lake.put(KEY, b"another")
    assert lake.role.tag("lake", one) == CHANGED
    assert lake.tags(KEY) == {}
    assert lake.role.tag("lake", lake.listed()._replace(modified=1)) == CHANGED
    assert lake.role.untag("lake", one) is TagFound.CHANGED


def test_an_object_that_is_gone_gets_no_tag(lake: Tagged, one: ListedObject) -> None:
    lake.remove(KEY)
    assert lake.role.tag("lake", one) == GONE
    assert lake.role.untag("lake", one) is TagFound.ABSENT


class _Between:
    """A client that writes the key again between the look and the tag."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        if name == "put_object_tagging":
            self._client.put_object(Bucket="lake", Key=KEY, Body=b"in between")
        return getattr(self._client, name)


@pytest.mark.parametrize("versions", [False, True])
def test_an_object_that_is_written_between_the_look_and_the_tag_keeps_none(versions: bool) -> None:
    """S3 has no condition for tags: the object is looked at again, or the version that was listed is named."""
    with s3_in_moto("lake", versioned=versions) as client:
        client.put_object(Bucket="lake", Key=KEY, Body=b"orphan")
        [one] = S3ObjectStore(settings=S3Settings(region="us-east-1")).page("lake", KEY).objects
        between: Any = _Between(client)
        assert S3Tags(lambda: between).tag("lake", one) == (None if versions else CHANGED)
        assert client.get_object(Bucket="lake", Key=KEY)["Body"].read() == b"in between"
        assert client.get_object_tagging(Bucket="lake", Key=KEY)["TagSet"] == []


def test_a_bucket_that_is_not_there_is_no_absent_object() -> None:
    with s3_in_moto() as client:
        role, one = S3Tags(lambda: client), ListedObject(KEY, 1, '"e"', 1)
        assert role.tag("absent", one) == "NoSuchBucket"
        with pytest.raises(BucketNotFound):
            role.untag("absent", one)
