"""Tags in S3 (Amazon S3 API Reference: HeadObject, GetObjectTagging, PutObjectTagging, DeleteObjectTagging). S3 has no
conditional tagging, and PutObjectTagging replaces all tags. A version never changes, so where there are versions the
listed one is tagged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from delegation.storage.listing.model import CHANGED, GONE, MOST_TAGS, TAG, TAGS_FULL, ListedObject, TagFound
from delegation.storage.listing.pages import seconds
from delegation.storage.locations import uri_of
from delegation.storage.s3_errors import ABSENT, FAILED, code_of, delete_code_of, is_bare_404, translate

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_NULL: Final = "null"
"""The version that is written over where versioning is suspended."""


@dataclass(frozen=True, slots=True)
class _Present:
    """A key's object: whether it is the listed one, and the version to name, None without versions."""

    same: bool
    version: Mapping[str, str]


class S3Tags:
    """A TagStore; `client` returns one with an operator's unexpired credentials."""

    def __init__(self, client: "Callable[[], S3Client]") -> None:
        self._client = client

    def tag(self, bucket: str, one: ListedObject) -> str | None:
        client = self._client()
        try:
            return _tagged(client, bucket, one)
        except FAILED as error:
            code = delete_code_of(error)
            return GONE if code in ABSENT else code

    def untag(self, bucket: str, one: ListedObject, *, dry_run: bool = False) -> TagFound:
        client = self._client()
        try:
            found = _look(client, bucket, one)
            if found is None:
                return TagFound.ABSENT
            # Another version was never tagged for this one.
            had = (found.same or not found.version) and _remove(client, bucket, one.key, found.version, dry_run=dry_run)
        except FAILED as error:
            translate(uri_of(bucket, one.key), error)
        if not found.same:
            return TagFound.CHANGED
        return TagFound.TAGGED if had else TagFound.UNTAGGED


def _tagged(client: "S3Client", bucket: str, one: ListedObject) -> str | None:
    found = _look(client, bucket, one)
    if found is None:
        return GONE
    if not found.same:
        return _changed(client, bucket, one.key, found)
    tags = _tags(client, bucket, one.key, found.version)
    if TAG not in tags:
        others = [pair for pair in tags if pair[0] != TAG[0]]
        if len(others) >= MOST_TAGS:
            return TAGS_FULL
        _put(client, bucket, one.key, found.version, [*others, TAG])
    if found.version:
        return None
    after = _look(client, bucket, one)
    if after is None:
        return GONE
    return None if after.same else _changed(client, bucket, one.key, after)


def _changed(client: "S3Client", bucket: str, key: str, found: _Present) -> str:
    """Remove the tag, if any, from an object written over the listed one."""
    if not found.version:
        _remove(client, bucket, key, found.version, dry_run=False)
    return CHANGED


def _look(client: "S3Client", bucket: str, one: ListedObject) -> _Present | None:
    try:
        found = client.head_object(Bucket=bucket, Key=one.key)
    except ClientError as error:
        if code_of(error) not in ABSENT and not is_bare_404(error):
            raise
        return _again(client, bucket, one.key)
    same = found.get("ETag", "") == one.etag and seconds(found["LastModified"]) == one.modified
    version = found.get("VersionId", _NULL)
    return _Present(
        same and found["ContentLength"] == one.size, {} if version in ("", _NULL) else {"VersionId": version}
    )


def _again(client: "S3Client", bucket: str, key: str) -> _Present | None:
    """Ask by GET for what HEAD did not find: HEAD's 404 does not state whether the bucket exists."""
    try:
        client.get_object(Bucket=bucket, Key=key, Range="bytes=0-0")["Body"].close()
    except ClientError as error:
        if code_of(error) in ABSENT:
            return None
        raise
    return _Present(same=False, version={})


def _tags(client: "S3Client", bucket: str, key: str, version: Mapping[str, Any]) -> list[tuple[str, str]]:
    answer = client.get_object_tagging(Bucket=bucket, Key=key, **version)
    return [(one["Key"], one["Value"]) for one in answer["TagSet"]]


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
