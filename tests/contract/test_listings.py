"""The contract of ListableStore, for memory, the file system and S3 (moto)."""

import functools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from delegation.storage.base import BucketNotFound, ObjectNotFound, ObjectStoreError
from delegation.storage.credentials import S3Settings
from delegation.storage.file_system import FileObjectStore
from delegation.storage.listing import unchanged
from delegation.storage.listing.model import CHANGED, ListableStore, ListedObject
from delegation.storage.locations import LOCAL, ObjectLocation
from delegation.storage.memory import MemoryObjectStore
from delegation.storage.s3 import S3ObjectStore
from tests.aws import s3_in_moto
from tests.kit.errors import coded


@dataclass
class ListedStore:
    """A store under test; `put` writes an object at a time in seconds since 1970, None for now."""

    store: ListableStore
    put: Callable[[str, bytes], None]
    age: Callable[[str, int], None]
    bucket: str = "lake"
    below: str = ""
    odd_keys: bool = True

    def fill(self, *keys: str, data: bytes = b"12345") -> None:
        for key in keys:
            self.put(self.below + key, data)

    def all(self, prefix: str = "") -> list[ListedObject]:
        """Return everything below a prefix, page by page, with keys as the test wrote them."""
        found: list[ListedObject] = []
        after = ""
        while True:
            page = self.store.page(self.bucket, self.below + prefix, after=after)
            found += page.objects
            if page.is_last:
                return [one._replace(key=one.key.removeprefix(self.below)) for one in found]
            after = page.objects[-1].key

    def keys(self, prefix: str = "") -> list[str]:
        return [one.key for one in self.all(prefix)]

    def listed(self, *keys: str) -> list[ListedObject]:
        wanted = {one.key: one for one in self.all()}
        return [wanted[key]._replace(key=self.below + key) for key in keys]


@pytest.fixture(params=["memory", "files", "s3"])
def listed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ListedStore]:
    if request.param == "files":
        yield _on_disk(tmp_path)
        return
    if request.param == "memory":
        memory = MemoryObjectStore()
        yield ListedStore(
            memory,
            lambda key, data: memory.put(ObjectLocation("lake", key), data),
            lambda key, at: memory.modified.update({("lake", key): at}),
        )
        return
    with s3_in_moto("lake") as client:

        def put(key: str, data: bytes) -> None:
            client.put_object(Bucket="lake", Key=key, Body=data)

        yield ListedStore(S3ObjectStore(settings=S3Settings(region="us-east-1")), put, _age_of_moto)


def _age_of_moto(key: str, at: int) -> None:
    from datetime import UTC, datetime

    from moto.s3.models import s3_backends

    [backend] = [one["aws"] for one in s3_backends.values() if "aws" in one]
    backend.buckets["lake"].keys[key].last_modified = datetime.fromtimestamp(at, UTC).replace(tzinfo=None)


def _on_disk(place: Path) -> ListedStore:
    root = place / "lake"

    def put(key: str, data: bytes) -> None:
        path = Path("/", key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    below = root.relative_to("/").as_posix() + "/"
    age = lambda key, at: os.utime(Path("/", key), (at, at))  # noqa: E731
    return ListedStore(FileObjectStore(), put, age, LOCAL, below, odd_keys=False)


def test_a_prefix_is_listed_in_order_and_nothing_beside_it(listed: ListedStore) -> None:
    listed.fill("t/b", "t/a/2", "t/a/1", "t/a.x", "t2/a", "s/a")
    if listed.odd_keys:
        listed.fill("t")
    assert listed.keys("t/") == ["t/a.x", "t/a/1", "t/a/2", "t/b"]
    assert listed.keys("t/a/") == ["t/a/1", "t/a/2"]
    assert listed.keys("nothing/") == []


def test_a_listing_continues_after_any_key(listed: ListedStore) -> None:
    listed.fill("t/a/1", "t/a/2", "t/b")
    page = listed.store.page(listed.bucket, listed.below + "t/", after=listed.below + "t/a/1")
    assert [one.key.removeprefix(listed.below) for one in page.objects] == ["t/a/2", "t/b"]
    assert page.is_last


def test_more_objects_than_a_page_has_are_all_listed_once(listed: ListedStore) -> None:
    keys = [f"t/{number:04d}" for number in range(1_001)]
    listed.fill(*keys)
    assert not listed.store.page(listed.bucket, listed.below + "t/").is_last
    assert listed.keys("t/") == keys


def test_a_part_of_an_object_is_read(listed: ListedStore) -> None:
    listed.fill("t/a", data=b"12345")
    listed.fill("t/empty", data=b"")
    where = ObjectLocation(listed.bucket, listed.below + "t/a")
    parts = [(0, 2), (3, 2), (3, 100), (5, 1), (90, 1)]
    assert [listed.store.part(where, start=start, length=length) for start, length in parts] == [
        b"12", b"45", b"45", b"", b"",
    ]  # fmt: skip
    empty = ObjectLocation(listed.bucket, listed.below + "t/empty")
    assert listed.store.part(empty, start=0, length=1) == b""
    with pytest.raises(ObjectNotFound):
        listed.store.part(ObjectLocation(listed.bucket, listed.below + "t/gone"), start=0, length=1)


def test_a_page_has_size_etag_time_and_the_stores_clock(listed: ListedStore) -> None:
    listed.fill("t/a", data=b"123")
    listed.age(listed.below + "t/a", 1_500_000_000)
    listed.fill("t/b", data=b"1")
    page = listed.store.page(listed.bucket, listed.below + "t/")
    first, second = page.objects
    assert (first.size, first.modified, second.size) == (3, 1_500_000_000, 1)
    assert first.etag not in ("", second.etag)
    assert abs(page.at - second.modified) < 100


def test_keys_that_xml_cannot_contain_are_listed(listed: ListedStore) -> None:
    keys = ["t/a b", "t/a%2Fb", "t/a+b", "t/tab\tand\rreturn", "t/ü😀"]
    keys += ["t/a//b", "t//c", "t/control\x01"] if listed.odd_keys else []
    listed.fill(*keys)
    assert listed.keys("t/") == sorted(keys)


def test_a_folder_has_its_objects_and_the_longer_prefixes(listed: ListedStore) -> None:
    listed.fill("t/a", "t/b/1", "t/b/c/2", "t/d e/3", "u/1")
    found = listed.store.folder(listed.bucket, listed.below + "t/")
    assert [one.key.removeprefix(listed.below) for one in found.objects] == ["t/a"]
    assert [one.removeprefix(listed.below) for one in found.folders] == ["t/b/", "t/d e/"]
    assert found.is_whole
    assert listed.store.folder(listed.bucket, listed.below + "nothing/").folders == ()


def test_only_what_is_as_it_was_listed_is_deleted(listed: ListedStore) -> None:
    listed.fill("t/same", "t/other", "t/gone", "t/kept")
    found = listed.listed("t/same", "t/other", "t/gone")
    listed.fill("t/other", data=b"other")
    listed.store.delete(listed.bucket, [listed.below + "t/gone"])
    result = listed.store.delete_unchanged(listed.bucket, found).result
    assert {key.removeprefix(listed.below) for key in result.deleted} == {"t/same", "t/gone"}
    assert [(one.key.removeprefix(listed.below), one.code) for one in result.failed] == [("t/other", CHANGED)]
    assert listed.keys() == ["t/kept", "t/other"]


def test_the_same_content_written_again_is_another_object(listed: ListedStore) -> None:
    listed.fill("t/a")
    listed.age(listed.below + "t/a", 1_500_000_000)
    found = listed.listed("t/a")
    listed.fill("t/a")
    result = listed.store.delete_unchanged(listed.bucket, found).result
    assert [one.code for one in result.failed] == [CHANGED]
    assert listed.keys() == ["t/a"]


def test_odd_keys_are_deleted_exactly(listed: ListedStore) -> None:
    keys = ["t/a b", "t/a%2Fb", "t/a+b", "t/tab\tand\rreturn", "t/<x>&amp;"]
    keys += ["t/a//b", "t/control\x01"] if listed.odd_keys else []
    listed.fill(*keys, "t/a/b")
    result = listed.store.delete_unchanged(listed.bucket, listed.listed(*keys)).result
    assert ({one.removeprefix(listed.below) for one in result.deleted}, result.failed) == (set(keys), ())
    assert listed.keys() == ["t/a/b"]


@pytest.fixture
def s3() -> Iterator[S3ObjectStore]:
    with s3_in_moto("lake"):
        yield S3ObjectStore(settings=S3Settings(region="us-east-1"))


@functools.cache
def _writer() -> Any:
    return boto3.client("s3", region_name="us-east-1")


def put_object(key: str, data: bytes = b"1") -> None:
    _writer().put_object(Bucket="lake", Key=key, Body=data)


def answering(monkeypatch: pytest.MonkeyPatch, change: Callable[[str, dict[str, Any]], dict[str, Any]]) -> list[str]:
    """Have every request changed before it is sent; return the names of those sent."""
    usual, sent = BaseClient._make_api_call, []

    def call(client: Any, operation: str, arguments: dict[str, Any]) -> Any:
        sent.append(operation)
        return usual(client, operation, change(operation, arguments))

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    return sent


def test_what_is_written_after_the_look_is_kept_where_the_store_has_conditions(
    s3: S3ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("a", "b", "c"):
        put_object(key)
    found = s3.page("lake", "").objects
    usual = unchanged.head

    def look(client: Any, bucket: str, one: ListedObject) -> str | None:
        code = usual(client, bucket, one)
        if one.key == "c":
            put_object("c", b"of a writer")
        return code

    monkeypatch.setattr(unchanged, "head", look)
    done = s3.delete_unchanged("lake", found)
    # moto ignores the condition of DeleteObjects and has that of DeleteObject.
    assert (done.result.deleted, done.looked_only) == (("a", "b"), 1)
    assert [(one.key, one.code) for one in done.result.failed] == [("c", CHANGED)]
    assert [one.key for one in s3.page("lake", "").objects] == ["c"]


def test_a_key_that_xml_cannot_contain_has_its_condition_where_others_go_in_one_call(
    s3: S3ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a store that has the condition of DeleteObjects, which moto lacks; a writer comes after the look."""
    for key in ("a", "\x01"):
        put_object(key)
    head = boto3.client("s3", region_name="us-east-1").head_object(Bucket="lake", Key="\x01")
    odd = ListedObject("\x01", head["ContentLength"], head["ETag"], int(head["LastModified"].timestamp()))
    (plain,) = s3.page("lake", "a").objects
    usual = BaseClient._make_api_call

    def call(client: Any, operation: str, arguments: dict[str, Any]) -> Any:
        if operation == "DeleteObjects" and arguments["Delete"]["Objects"][0]["ETag"] != plain.etag:
            return {"Errors": [{"Key": plain.key, "Code": "PreconditionFailed"}]}
        if operation == "DeleteObject":
            put_object(odd.key, b"of a writer")
        return usual(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    done = s3.delete_unchanged("lake", [plain, odd])
    assert (done.result.deleted, done.looked_only) == (("a",), 0)
    assert [(one.key, one.code) for one in done.result.failed] == [(odd.key, CHANGED)]


def test_a_store_without_conditions_is_looked_at_and_says_so(
    s3: S3ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ["a", "b", "c", "d"]
    for key in keys:
        put_object(key)
    found = s3.page("lake", "").objects
    put_object("d", b"of a writer")
    answering(
        monkeypatch,
        lambda _operation, arguments: {name: value for name, value in arguments.items() if name != "IfMatch"},
    )
    done = s3.delete_unchanged("lake", found)
    assert (done.result.deleted, done.looked_only) == (("a", "b", "c"), 3)
    assert [one.key for one in s3.page("lake", "").objects] == ["d"]


def test_a_listing_without_a_date_has_no_age(s3: S3ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put_object("a")
    usual = BaseClient._make_api_call

    def call(client: Any, operation: str, arguments: Any) -> Any:
        answer = usual(client, operation, arguments)
        answer["ResponseMetadata"]["HTTPHeaders"].pop("date", None)
        return answer

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    for ask in (lambda: s3.page("lake", ""), lambda: s3.folder("lake", "t/")):
        with pytest.raises(ObjectStoreError, check=coded("STORE_CLOCK_UNKNOWN")):
            ask()


@pytest.mark.parametrize("date", [formatdate(1_000, usegmt=True), "Thu, 01 Jan 1970 00:16:40 -0000"])
def test_the_clock_is_the_stores_not_this_machines(
    s3: S3ObjectStore, monkeypatch: pytest.MonkeyPatch, date: str
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    usual = BaseClient._make_api_call

    def call(client: Any, operation: str, arguments: Any) -> Any:
        answer = usual(client, operation, arguments)
        answer["ResponseMetadata"]["HTTPHeaders"]["date"] = date
        return answer

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    found = s3.page("lake", "").at
    monkeypatch.undo()
    time.tzset()
    assert found == 1_000


def test_a_missing_bucket_deletes_nothing_and_lists_nothing(s3: S3ObjectStore) -> None:
    with pytest.raises(BucketNotFound):
        s3.page("nope", "")
    done = s3.delete_unchanged("nope", [ListedObject("a", 1, '"1"', 0)])
    assert done.result.deleted == ()
    assert [one.code for one in done.result.failed] == ["NoSuchBucket"]


@pytest.mark.parametrize("conditions", [400, 405, 501, 412])
@pytest.mark.parametrize("many", [405, 403, None])
def test_a_store_that_refuses_deletes_of_many_or_conditions_is_asked_for_each_object(
    s3: S3ObjectStore, monkeypatch: pytest.MonkeyPatch, conditions: int, many: int | None
) -> None:
    """`many` is the status of DeleteObjects, None an empty 200; `conditions` that of a delete with a condition."""
    for key in ("a", "b", "c"):
        put_object(key)
    found = s3.page("lake", "").objects
    put_object("c", b"of a writer")
    usual = BaseClient._make_api_call

    def call(client: Any, operation: str, arguments: dict[str, Any]) -> Any:
        status = many if operation == "DeleteObjects" else conditions if "IfMatch" in arguments else 0
        if status is None:
            return {"ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": {}}}
        if status in {0, 412}:
            return usual(client, operation, arguments)
        refused = {"Error": {"Code": "Oops"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise ClientError(refused, operation)  # type: ignore[arg-type]

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    done = s3.delete_unchanged("lake", found)
    assert (done.result.deleted, done.looked_only) == (("a", "b"), 0 if conditions == 412 else 2)
    assert [(one.key, one.code) for one in done.result.failed] == [("c", CHANGED)]
    assert [one.key for one in s3.page("lake", "").objects] == ["c"]
