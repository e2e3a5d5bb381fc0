"""Unfinished uploads in S3 (Amazon S3 API Reference: ListMultipartUploads, ListParts, AbortMultipartUpload)."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_plus

from botocore.exceptions import ClientError

from delegation.storage.base import ObjectStoreError
from delegation.storage.listing.uploads import Upload
from delegation.storage.locations import uri_of
from delegation.storage.s3_errors import FAILED, check_listing, code_of, translate

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_GONE: Final = "NoSuchUpload"


class S3Uploads:
    """An UploadStore with the credentials of its client."""

    def __init__(self, client: "S3Client") -> None:
        self._client = client

    def uploads(self, bucket: str, prefix: str) -> Iterator[Upload]:
        """See UploadStore.uploads. Keys come encoded, because XML cannot have every character of a key."""
        uri, after = uri_of(bucket, prefix), dict[str, Any]()
        while True:
            try:
                answer = self._client.list_multipart_uploads(Bucket=bucket, Prefix=prefix, EncodingType="url", **after)
                check_listing(self._client, uri, answer)
                # botocore decodes the keys of listings of objects alone.
                decoded = unquote_plus if answer.get("EncodingType") == "url" else str
                found = [
                    Upload(decoded(one["Key"]), one["UploadId"], int(one["Initiated"].timestamp()))
                    for one in answer.get("Uploads", ())
                ]
            except FAILED as error:
                translate(uri, error)
            yield from found
            if not answer.get("IsTruncated"):
                return
            after = _further(uri, after, decoded(answer.get("NextKeyMarker", "")), answer.get("NextUploadIdMarker"))

    def size(self, bucket: str, upload: Upload) -> int | None:
        """See UploadStore.size."""
        uri, total, after = uri_of(bucket, upload.key), 0, dict[str, Any]()
        named: dict[str, Any] = {"Bucket": bucket, "Key": upload.key, "UploadId": upload.upload_id}
        while True:
            try:
                answer = self._client.list_parts(**named, **after)
            except FAILED as error:
                if _is_gone(error):
                    return None
                translate(uri, error)
            total += sum(part["Size"] for part in answer.get("Parts", ()))
            if not answer.get("IsTruncated"):
                return total
            now = {"PartNumberMarker": answer.get("NextPartNumberMarker")}
            if now == after or now["PartNumberMarker"] is None:
                raise ObjectStoreError(f"the object store does not say where the next parts of {uri} begin")
            after = now

    def abort(self, bucket: str, upload: Upload) -> bool:
        """See UploadStore.abort."""
        try:
            self._client.abort_multipart_upload(Bucket=bucket, Key=upload.key, UploadId=upload.upload_id)
        except FAILED as error:
            if _is_gone(error):
                return False
            translate(uri_of(bucket, upload.key), error)
        return True


def _further(uri: str, after: Mapping[str, Any], key: str, upload_id: str | None) -> dict[str, Any]:
    """Return where the next page begins; raise ObjectStoreError if that is not known, or not further on."""
    now = {"KeyMarker": key, "UploadIdMarker": upload_id}
    if not key or upload_id is None or now == after:
        raise ObjectStoreError(f"the object store does not say where the next uploads below {uri} begin")
    return now


def _is_gone(error: Exception) -> bool:
    return isinstance(error, ClientError) and code_of(error) == _GONE
