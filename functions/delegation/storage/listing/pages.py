from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from delegation.storage.base import ObjectStoreError
from delegation.storage.listing.answers import READ, ListingAnswer
from delegation.storage.listing.model import PAGE, ListedFolder, ListedObject, ListedPage
from delegation.storage.locations import uri_of
from delegation.storage.s3_errors import check_keys, check_listing, listing_invalid

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


LONGEST_KEY: Final = 1_024
"""Bytes (Amazon S3 User Guide, naming objects)."""


def page(client: "S3Client", bucket: str, prefix: str, after: str) -> ListedPage:
    found = stated(client, bucket, prefix, after)
    check_keys(client, uri_of(bucket, prefix), [one.key for one in found.objects], prefix, after)
    if not (found.objects or found.is_last):
        raise listing_invalid(client, uri_of(bucket, prefix), "has an empty page that is not the last")
    return found


def stated(client: "S3Client", bucket: str, prefix: str, after: str) -> ListedPage:
    """Return the store's next page (Amazon S3 API Reference, ListObjectsV2), which may not be above `after`."""
    more: dict[str, Any] = {"StartAfter": after} if after else {}
    answer: Any = client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=PAGE, **more)
    check_listing(client, uri_of(bucket, prefix), answer)
    read: ListingAnswer | None = answer.get(READ)
    if read is not None:
        return ListedPage(read.objects, _date(answer), not read.truncated)
    return ListedPage(_objects(answer), _date(answer), not answer.get("IsTruncated", False))


def folder(client: "S3Client", bucket: str, prefix: str) -> ListedFolder:
    answer: Any = client.list_objects_v2(Bucket=bucket, Prefix=prefix, Delimiter="/", MaxKeys=PAGE)
    uri = uri_of(bucket, prefix)
    check_listing(client, uri, answer)
    read: ListingAnswer | None = answer.get(READ)
    objects = _objects(answer) if read is None else read.objects
    is_last = not answer.get("IsTruncated", False) if read is None else not read.truncated
    folders = [str(one["Prefix"]) for one in answer.get("CommonPrefixes", ())]
    check_keys(client, uri, [one.key for one in objects], prefix, "")
    check_keys(client, uri, folders, prefix, prefix)
    if any(not one.endswith("/") or len(one.encode()) > LONGEST_KEY for one in folders):
        raise listing_invalid(client, uri, "has prefixes that no key has")
    if not (objects or folders or is_last):
        raise listing_invalid(client, uri, "has an empty page that is not the last")
    return ListedFolder(objects, tuple(folders), _date(answer), is_last)


def _objects(answer: Any) -> tuple[ListedObject, ...]:
    """Return the objects of a listing. Raises ValueError, which the store translates, for an incomplete one."""
    try:
        found = tuple(
            ListedObject(one["Key"], one["Size"], one.get("ETag", ""), seconds(one["LastModified"]))
            for one in answer.get("Contents", ())
        )
    except KeyError as error:
        raise ValueError(f"a listing has an object without {error.args[0]}") from error
    # botocore returns XML elements for a text that is there twice.
    if not all(isinstance(one.key, str) and isinstance(one.etag, str) for one in found):
        raise ValueError("a listing has an object with two keys or ETags")
    return found


def seconds(moment: datetime) -> int:
    """Return a time of the store in seconds since 1970."""
    # A listing may have fractions of a second, which the header of an object never has.
    return int(moment.timestamp())


def _date(answer: Any) -> int:
    """Return when the store answered. Raises ObjectStoreError (STORE_CLOCK_UNKNOWN)."""
    text = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        there = parsedate_to_datetime(text)
        # A zone of -0000 is UTC, and is parsed to a time without one.
        return int((there if there.tzinfo else there.replace(tzinfo=UTC)).timestamp())
    except ValueError as error:
        raise ObjectStoreError(
            f"a listing has no valid Date header ({text[:40]!r}); check the endpoint", code="STORE_CLOCK_UNKNOWN"
        ) from error
