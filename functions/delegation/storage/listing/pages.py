"""Pages of S3's listings (Amazon S3 API Reference: ListObjectsV2)."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from delegation.storage.listing.model import PAGE, ClockUnknown, ListedFolder, ListedObject, ListedPage

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def page(client: "S3Client", bucket: str, prefix: str, after: str) -> ListedPage:
    """See ListableStore.page."""
    more: dict[str, Any] = {"StartAfter": after} if after else {}
    answer = client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=PAGE, **more)
    return ListedPage(_objects(answer), _date(answer), not answer.get("IsTruncated", False))


def folder(client: "S3Client", bucket: str, prefix: str) -> ListedFolder:
    """See ListableStore.folder."""
    answer = client.list_objects_v2(Bucket=bucket, Prefix=prefix, Delimiter="/", MaxKeys=PAGE)
    folders = tuple(str(one["Prefix"]) for one in answer.get("CommonPrefixes", ()))
    return ListedFolder(_objects(answer), folders, _date(answer), not answer.get("IsTruncated", False))


def _objects(answer: Any) -> tuple[ListedObject, ...]:
    """Return the objects of a listing; raise ValueError, which the store translates, if one is not described."""
    try:
        return tuple(
            ListedObject(one["Key"], one["Size"], one.get("ETag", ""), seconds(one["LastModified"]))
            for one in answer.get("Contents", ())
        )
    except KeyError as error:
        raise ValueError(f"a listing has an object without {error.args[0]}") from error


def seconds(moment: datetime) -> int:
    """Return a time of the store in seconds since 1970."""
    # A listing may have fractions of a second, which the header of an object never has.
    return int(moment.timestamp())


def _date(answer: Any) -> int:
    """Return when the store answered; raise ClockUnknown."""
    text = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        return int(parsedate_to_datetime(text).timestamp())
    except ValueError as error:
        raise ClockUnknown(f"a listing has no valid Date header ({text[:40]!r}); check the endpoint") from error
