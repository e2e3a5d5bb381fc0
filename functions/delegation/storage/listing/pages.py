"""Pages of S3's listings (Amazon S3 API Reference: ListObjectsV2)."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from delegation.storage.listing.answers import READ, ListingAnswer
from delegation.storage.listing.model import PAGE, ClockUnknown, ListedFolder, ListedObject, ListedPage

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def page(client: "S3Client", bucket: str, prefix: str, after: str) -> ListedPage:
    """See ListableStore.page."""
    more: dict[str, Any] = {"StartAfter": after} if after else {}
    answer: Any = client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=PAGE, **more)
    read: ListingAnswer | None = answer.get(READ)
    if read is not None:
        return ListedPage(read.objects, _date(answer), not read.truncated)
    return ListedPage(_objects(answer), _date(answer), not answer.get("IsTruncated", False))


def folder(client: "S3Client", bucket: str, prefix: str) -> ListedFolder:
    """See ListableStore.folder."""
    answer: Any = client.list_objects_v2(Bucket=bucket, Prefix=prefix, Delimiter="/", MaxKeys=PAGE)
    read: ListingAnswer | None = answer.get(READ)
    if read is not None:
        return ListedFolder(read.objects, (), _date(answer), not read.truncated)
    folders = tuple(str(one["Prefix"]) for one in answer.get("CommonPrefixes", ()))
    return ListedFolder(_objects(answer), folders, _date(answer), not answer.get("IsTruncated", False))


def _objects(answer: Any) -> tuple[ListedObject, ...]:
    """Return the objects of a listing; raise ValueError, which the store translates, if one is not described."""
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
    """Return when the store answered; raise ClockUnknown."""
    text = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        there = parsedate_to_datetime(text)
        # A zone of -0000 is UTC, and is parsed to a time without one.
        return int((there if there.tzinfo else there.replace(tzinfo=UTC)).timestamp())
    except ValueError as error:
        raise ClockUnknown(f"a listing has no valid Date header ({text[:40]!r}); check the endpoint") from error
