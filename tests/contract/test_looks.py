"""How objects are looked at before they are deleted: one by one, or by listing their folder again."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.storage.credentials import S3Settings
from delegation.storage.listing import pages, unchanged
from delegation.storage.listing.model import CHANGED, ListedObject, ListedPage
from delegation.storage.s3 import S3ObjectStore
from tests.aws import s3_in_moto
from tests.contract.test_listings import answering, put_object
from tests.effort import examples


def _many(number: int, name: str = "t/data/{:05d}.parquet") -> list[str]:
    return [name.format(one) for one in range(number)]


@pytest.fixture
def s3() -> Iterator[S3ObjectStore]:
    with s3_in_moto("lake"):
        yield S3ObjectStore(settings=S3Settings(region="us-east-1"))


@pytest.fixture
def conditional(s3: S3ObjectStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A store of which it is known that it has conditions; the names of the requests sent."""
    for key in ("0", "1"):
        put_object(key)
    assert len(s3.delete_unchanged("lake", s3.page("lake", "").objects).result.deleted) == 2
    return answering(monkeypatch, lambda _operation, arguments: arguments)


def test_objects_that_are_close_together_are_looked_at_by_listing_them_again(
    s3: S3ObjectStore, conditional: list[str]
) -> None:
    keys = _many(200)
    for key in keys:
        put_object(key)
    found = s3.page("lake", "t/").objects
    conditional.clear()
    assert s3.delete_unchanged("lake", found).result.deleted == tuple(keys)
    sent = Counter(conditional)
    assert (sent["HeadObject"], sent["ListObjectsV2"]) == (0, 1)


def test_an_object_that_is_not_as_it_was_listed_stays_when_its_folder_is_listed_again(
    s3: S3ObjectStore, conditional: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = _many(100)
    for key in keys:
        put_object(key)
    found = [one._replace(modified=one.modified - (one.key == keys[3])) for one in s3.page("lake", "t/").objects]
    put_object(keys[0], b"of a writer")
    boto3.client("s3", region_name="us-east-1").delete_object(Bucket="lake", Key=keys[1])
    conditional.clear()
    done = s3.delete_unchanged("lake", found).result
    assert {(one.key, one.code) for one in done.failed} == {(keys[0], CHANGED), (keys[3], CHANGED)}
    assert done.absent == (keys[1],)
    assert [one.key for one in s3.page("lake", "t/").objects] == [keys[0], keys[3]]
    assert Counter(conditional)["HeadObject"] == 3


def test_objects_far_apart_take_few_pages_and_none_for_a_while(
    s3: S3ObjectStore, conditional: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE", 4)
    keys = _many(64, "t/{:03d}/orphan")
    for key in keys:
        for other in range(5):
            put_object(key.replace("orphan", f"live-{other:02d}"))
        put_object(key)
    found = sorted((s3.page("lake", key).objects[0] for key in keys), key=lambda one: one.key)
    conditional.clear()
    assert len(s3.delete_unchanged("lake", found[:32]).result.deleted) == 32
    assert (Counter(conditional)["HeadObject"], Counter(conditional)["ListObjectsV2"]) == (31, 1)
    conditional.clear()
    assert len(s3.delete_unchanged("lake", found[32:]).result.deleted) == 32
    assert (Counter(conditional)["HeadObject"], Counter(conditional)["ListObjectsV2"]) == (32, 0)


def test_objects_are_looked_at_one_by_one_where_the_bucket_may_not_be_listed_or_has_no_conditions(
    s3: S3ObjectStore, conditional: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = _many(80)
    for key in keys:
        put_object(key)
    found = s3.page("lake", "t/").objects
    conditional.clear()
    unknown = S3ObjectStore(settings=S3Settings(region="us-east-1"))
    assert len(unknown.delete_unchanged("lake", found[:40]).result.deleted) == 40
    assert Counter(conditional)["ListObjectsV2"] == 0

    def denied(*_arguments: Any) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied"}}, "ListObjectsV2")

    monkeypatch.setattr(unchanged, "page", denied)
    assert s3.delete_unchanged("lake", found[40:]).result.deleted == tuple(keys[40:])
    assert s3.page("lake", "t/").objects == ()


@settings(max_examples=examples(60), deadline=None)
@given(
    there=st.sets(st.text("ab/é\U0001f600", min_size=1, max_size=4), max_size=60),
    asked=st.data(),
    most=st.integers(1, 12),
    size=st.integers(1, 7),
)
def test_pages_settle_only_what_is_as_it_was_listed(
    there: set[str], asked: st.DataObject, most: int, size: int
) -> None:
    """Against a bucket that is a dictionary: pages from any place, of any size, as S3 orders keys."""
    bucket = {key: ListedObject(key, 1, '"1"', asked.draw(st.integers(0, 1))) for key in sorted(there)}
    some = [one._replace(modified=0) for one in bucket.values() if asked.draw(st.booleans())]
    some += [ListedObject("c-gone", 1, '"1"', 0)]

    def page(_client: Any, _bucket: str, prefix: str, after: str) -> ListedPage:
        left = [one for key, one in sorted(bucket.items()) if key.startswith(prefix) and key > after]
        return ListedPage(tuple(left[:size]), 0, len(left) <= size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unchanged, "page", page)
        patch.setattr(unchanged, "PAGE_PAYS", 0)
        found, pages_read = unchanged._pages(None, "lake", some, most)  # type: ignore[arg-type]
    same = {one.key for one in some if bucket.get(one.key) == one}
    assert found <= same
    assert pages_read <= most
    if most * size >= len(bucket) + len(some):
        assert found == same


@pytest.mark.parametrize(("apart", "pages"), [(1, 2), (100, 1)])
def test_no_more_pages_are_listed_after_one_that_settled_too_few(
    monkeypatch: pytest.MonkeyPatch, apart: int, pages: int
) -> None:
    """Of a thousand objects that are far apart, each page would settle ten."""
    bucket = [ListedObject(f"{number:07d}", 1, '"1"', 0) for number in range(200 * apart)]
    some = bucket[::apart]
    read: list[str] = []

    def page(_client: Any, _bucket: str, _prefix: str, after: str) -> ListedPage:
        read.append(after)
        left = [one for one in bucket if one.key > after]
        return ListedPage(tuple(left[:100]), 0, len(left) <= 100)

    monkeypatch.setattr(unchanged, "page", page)
    found, count = unchanged._pages(None, "lake", some, 9)  # type: ignore[arg-type]
    assert (count, len(read)) == (pages, pages)
    assert len(found) == (200 if apart == 1 else 1)
