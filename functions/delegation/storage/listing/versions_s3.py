"""Versions in S3 (Amazon S3 API Reference: ListObjectVersions, DeleteObject with a version id)."""

from typing import TYPE_CHECKING

from delegation.storage.base import ObjectStoreError
from delegation.storage.listing.model import KeyVersions, ListedObject, StoredVersion
from delegation.storage.locations import uri_of
from delegation.storage.s3_errors import FAILED, check_listing, translate

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3Versions:
    def __init__(self, client: "S3Client") -> None:
        self._client = client

    def versions(self, bucket: str, key: str) -> KeyVersions:
        """Return the newest versions; a key's newest version is listed first."""
        uri = uri_of(bucket, key)
        try:
            answer = self._client.list_object_versions(Bucket=bucket, Prefix=key, MaxKeys=1_000)
            check_listing(self._client, uri, answer)
            objects = [one for one in answer.get("Versions", ()) if one.get("Key") == key]
            markers = [one for one in answer.get("DeleteMarkers", ()) if one.get("Key") == key]
            found = None
            if objects:
                first = objects[0]
                held = ListedObject(key, first["Size"], first.get("ETag", ""), int(first["LastModified"].timestamp()))
                found = StoredVersion(first["VersionId"], held)
            marker = next((StoredVersion(one["VersionId"], None) for one in markers if one.get("IsLatest")), None)
        except FAILED as error:
            translate(uri, error)
        if marker is None and objects and not objects[0].get("IsLatest"):
            # A store that marks no version as the newest one cannot be relied upon to remove the right one.
            raise ObjectStoreError(f"the object store does not say which version of {uri} is its newest")
        return KeyVersions(marker or found, found)

    def remove_version(self, bucket: str, key: str, version_id: str) -> None:
        try:
            self._client.delete_object(Bucket=bucket, Key=key, VersionId=version_id)
        except FAILED as error:
            translate(uri_of(bucket, key), error)
