"""Tags and versions in S3 (Amazon S3 API Reference: GetObjectTagging, PutObjectTagging, ListObjectVersions).

S3 has no conditional tagging, and PutObjectTagging replaces all tags. A version never changes, so in a versioned bucket
the listed version is tagged.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from delegation.storage.base import ObjectStoreError
from delegation.storage.listing.model import (
    CHANGED,
    GONE,
    MOST_TAGS,
    TAG,
    TAGS_FULL,
    KeyVersions,
    ListedObject,
    StoredVersion,
    TagFound,
)
from delegation.storage.listing.unchanged import Present, look
from delegation.storage.locations import uri_of
from delegation.storage.s3_errors import ABSENT, FAILED, check_listing, delete_code_of, translate

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3Tags:
    """A TagStore. `client` returns a client with an operator's unexpired credentials."""

    def __init__(self, client: "Callable[[], S3Client]") -> None:
        self._client = client

    def tag(self, bucket: str, listed: ListedObject) -> str | None:
        client = self._client()
        try:
            return _tagged(client, bucket, listed)
        except FAILED as error:
            code = delete_code_of(error)
            return GONE if code in ABSENT else code

    def untag(self, bucket: str, listed: ListedObject, *, dry_run: bool = False) -> TagFound:
        client = self._client()
        try:
            present = look(client, bucket, listed)
            if present is None:
                return TagFound.ABSENT
            # Another version was never tagged for this one.
            had = (present.same or not present.version) and _remove(
                client, bucket, listed.key, present.version, dry_run=dry_run
            )
        except FAILED as error:
            translate(uri_of(bucket, listed.key), error)
        if not present.same:
            return TagFound.CHANGED
        return TagFound.TAGGED if had else TagFound.UNTAGGED


def _tagged(client: "S3Client", bucket: str, listed: ListedObject) -> str | None:
    present = look(client, bucket, listed)
    if present is None:
        return GONE
    if not present.same:
        return _changed(client, bucket, listed.key, present)
    tags = _tags(client, bucket, listed.key, present.version)
    if TAG not in tags:
        others = [pair for pair in tags if pair[0] != TAG[0]]
        if len(others) >= MOST_TAGS:
            return TAGS_FULL
        _put(client, bucket, listed.key, present.version, [*others, TAG])
    if present.version:
        return None
    after = look(client, bucket, listed)
    if after is None:
        return GONE
    return None if after.same else _changed(client, bucket, listed.key, after)


def _changed(client: "S3Client", bucket: str, key: str, present: Present) -> str:
    """Remove the tag, if present, from an object that replaced the listed one."""
    if not present.version:
        _remove(client, bucket, key, present.version, dry_run=False)
    return CHANGED


def _tags(client: "S3Client", bucket: str, key: str, version: Mapping[str, Any]) -> list[tuple[str, str]]:
    answer = client.get_object_tagging(Bucket=bucket, Key=key, **version)
    return [(tag["Key"], tag["Value"]) for tag in answer["TagSet"]]


def _put(client: "S3Client", bucket: str, key: str, version: Mapping[str, Any], tags: list[tuple[str, str]]) -> None:
    named: Any = {"TagSet": [{"Key": name, "Value": value} for name, value in tags]}
    client.put_object_tagging(Bucket=bucket, Key=key, Tagging=named, **version)


def _remove(client: "S3Client", bucket: str, key: str, version: Mapping[str, Any], *, dry_run: bool) -> bool:
    """Remove the tag, if present, and keep the others; return whether it was present."""
    tags = _tags(client, bucket, key, version)
    if TAG not in tags:
        return False
    others = [pair for pair in tags if pair != TAG]
    if dry_run:
        return True
    if others:
        _put(client, bucket, key, version, others)
    else:
        client.delete_object_tagging(Bucket=bucket, Key=key, **version)
    return True


class S3Versions:
    def __init__(self, client: "S3Client") -> None:
        self._client = client

    def versions(self, bucket: str, key: str) -> KeyVersions:
        """Return the newest versions; a key's newest version is listed first."""
        uri = uri_of(bucket, key)
        try:
            answer = self._client.list_object_versions(Bucket=bucket, Prefix=key, MaxKeys=1_000)
            check_listing(self._client, uri, answer)
            objects = [version for version in answer.get("Versions", ()) if version.get("Key") == key]
            markers = [version for version in answer.get("DeleteMarkers", ()) if version.get("Key") == key]
            newest = None
            if objects:
                first = objects[0]
                held = ListedObject(key, first["Size"], first.get("ETag", ""), int(first["LastModified"].timestamp()))
                newest = StoredVersion(first["VersionId"], held)
            marker = next(
                (StoredVersion(version["VersionId"], None) for version in markers if version.get("IsLatest")), None
            )
        except FAILED as error:
            translate(uri, error)
        if marker is None and objects and not objects[0].get("IsLatest"):
            # Without a version marked as newest, the wrong version might be removed.
            raise ObjectStoreError(f"the object store does not say which version of {uri} is its newest")
        return KeyVersions(marker or newest, newest)

    def remove_version(self, bucket: str, key: str, version_id: str) -> None:
        try:
            self._client.delete_object(Bucket=bucket, Key=key, VersionId=version_id)
        except FAILED as error:
            translate(uri_of(bucket, key), error)
