"""Unfinished uploads in S3: against moto, and against a client whose answers are given."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from delegation.storage.base import ObjectStoreDenied, ObjectStoreError
from delegation.storage.listing.uploads import Upload
from delegation.storage.listing.uploads_s3 import S3Uploads
from tests.aws import mock_aws

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GONE = ClientError({"Error": {"Code": "NoSuchUpload"}}, "ListParts")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        made = boto3.client("s3", region_name="us-east-1")
        made.create_bucket(Bucket="lake")
        yield made


class Answers:
    """A client that gives the next answer, or raises it, and notes what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def __getattr__(self, _name: str) -> Any:
        def call(**named: Any) -> Any:
            self.asked.append(named)
            found = self._answers.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        return call


def of(*answers: Any) -> tuple[S3Uploads, Answers]:
    made = Answers(*answers)
    return S3Uploads(made), made  # type: ignore[arg-type]


def test_an_upload_is_listed_with_its_bytes_until_it_is_aborted(client: Any) -> None:
    store = S3Uploads(client)
    begun = client.create_multipart_upload(Bucket="lake", Key="t/data/a b.parquet")["UploadId"]
    client.create_multipart_upload(Bucket="lake", Key="tt/other.parquet")
    client.put_object(Bucket="lake", Key="t/data/whole.parquet", Body=b"1")
    for number in (1, 2):
        client.upload_part(
            Bucket="lake", Key="t/data/a b.parquet", UploadId=begun, PartNumber=number, Body=b"x" * 100 * number
        )
    [found] = store.uploads("lake", "t/")
    assert (found.key, found.upload_id) == ("t/data/a b.parquet", begun)
    assert store.size("lake", found) == 300
    assert store.abort("lake", found)
    assert not store.abort("lake", found)
    assert store.size("lake", found) is None
    assert list(store.uploads("lake", "t/")) == []
    assert client.head_object(Bucket="lake", Key="t/data/whole.parquet")["ContentLength"] == 1


def test_keys_are_decoded_and_each_page_begins_where_the_one_before_ended() -> None:
    store, asked = of(
        {
            "EncodingType": "url",
            "Uploads": [{"Key": "t/a+b%2Bc%0A", "UploadId": "1", "Initiated": BEGAN}],
            "IsTruncated": True,
            "NextKeyMarker": "t/a+b%2Bc%0A",
            "NextUploadIdMarker": "1",
        },
        {"Uploads": [{"Key": "t/a+b%2F", "UploadId": "2", "Initiated": BEGAN}], "IsTruncated": False},
    )
    began = int(BEGAN.timestamp())
    assert list(store.uploads("lake", "t/")) == [Upload("t/a b+c\n", "1", began), Upload("t/a+b%2F", "2", began)]
    assert asked.asked == [
        {"Bucket": "lake", "Prefix": "t/", "EncodingType": "url"},
        {"Bucket": "lake", "Prefix": "t/", "EncodingType": "url", "KeyMarker": "t/a b+c\n", "UploadIdMarker": "1"},
    ]


@pytest.mark.parametrize(
    "pages",
    [
        [{"IsTruncated": True}],
        [{"IsTruncated": True, "NextKeyMarker": "t/a"}],
        [{"IsTruncated": True, "NextKeyMarker": "t/a", "NextUploadIdMarker": "1"}] * 2,
    ],
    ids=["no marker", "no upload", "the same marker again"],
)
def test_a_listing_that_gets_no_further_ends_with_an_error(pages: list[dict[str, Any]]) -> None:
    store, _ = of(*pages)
    with pytest.raises(ObjectStoreError, match="where the next uploads below"):
        list(store.uploads("lake", "t/"))


@pytest.mark.parametrize("marker", [None, 7], ids=["none", "the same again"])
def test_parts_that_get_no_further_end_with_an_error(marker: int | None) -> None:
    page = {"Parts": [{"Size": 1}], "IsTruncated": True, "NextPartNumberMarker": marker}
    store, _ = of(page, page)
    with pytest.raises(ObjectStoreError, match="where the next parts of"):
        store.size("lake", Upload("t/a", "1", 0))


def test_the_bytes_of_all_pages_of_parts_count() -> None:
    store, asked = of(
        {"Parts": [{"Size": 5}, {"Size": 6}], "IsTruncated": True, "NextPartNumberMarker": 2},
        {"Parts": [{"Size": 7}], "IsTruncated": False},
    )
    assert store.size("lake", Upload("t/a", "1", 0)) == 18
    assert asked.asked[1]["PartNumberMarker"] == 2


def test_an_upload_that_ends_between_two_pages_of_parts_is_gone() -> None:
    store, _ = of({"Parts": [{"Size": 5}], "IsTruncated": True, "NextPartNumberMarker": 1}, GONE)
    assert store.size("lake", Upload("t/a", "1", 0)) is None


def test_what_the_credentials_may_not_do_is_an_error() -> None:
    denied = ClientError({"Error": {"Code": "AccessDenied"}}, "x")
    store, _ = of(denied, denied, denied)
    one = Upload("t/a", "1", 0)
    for call in (lambda: list(store.uploads("lake", "t/")), lambda: store.size("lake", one)):
        with pytest.raises(ObjectStoreDenied):
            call()
    with pytest.raises(ObjectStoreDenied):
        store.abort("lake", one)
