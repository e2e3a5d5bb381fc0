"""The interface of stores that list their objects and delete only unchanged ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from delegation.storage.base import BatchResult, ObjectStore, ObjectStoreError
from delegation.storage.locations import ObjectLocation
from polaris_common.errors import printable

CHANGED: Final = "ObjectChanged"
"""The code of a key that was not deleted because its object is not the listed one."""
PAGE: Final = 1_000
"""The maximum number of objects in a page (Amazon S3 API Reference, ListObjectsV2, `max-keys`)."""
_MOST_APART: Final = timedelta(hours=1)
"""The maximum difference between the store's clock and this process's."""
_MOST_BEHIND: Final = 60
"""The maximum difference in seconds between the clocks of a store's servers, which may list each other's objects."""


class ListedObject(NamedTuple):
    """A listed object. `size` is in bytes, `etag` as the store writes it. `modified` is in whole seconds since 1970 by
    the store's clock. It is a tuple because a listing creates millions."""

    key: str
    size: int
    etag: str
    modified: int


@dataclass(frozen=True, slots=True)
class ListedPage:
    """Objects in the order of keys. `is_last` is true if no more follow. `at` is the store's time for the page, in
    whole seconds since 1970."""

    objects: tuple[ListedObject, ...]
    at: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class ListedFolder:
    """The contents of a prefix: the first page of objects without a further `/`, and the longer prefixes. `is_whole` is
    False if either has more than one page."""

    objects: tuple[ListedObject, ...]
    folders: tuple[str, ...]
    at: int
    is_whole: bool


def check_clock(bucket: str, listed: ListedPage | ListedFolder, now: datetime) -> None:
    """Raise ObjectStoreError (STORE_CLOCK_OFF) for a listing over an hour from `now`, or older than its objects."""
    there = datetime.fromtimestamp(listed.at, UTC)
    what = f"the clock of the store of s3://{bucket}/ shows {there:%Y-%m-%dT%H:%M:%SZ}"
    if abs(there - now) > _MOST_APART:
        raise ObjectStoreError(
            f"{what}, but the service's clock shows {now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}, over an hour apart, so "
            "the age of files there is unknown. Correct the wrong clock",
            code="STORE_CLOCK_OFF",
        )
    newest = max(listed.objects, key=lambda listed_object: listed_object.modified, default=None)
    if newest is not None and newest.modified > listed.at + _MOST_BEHIND:
        written = datetime.fromtimestamp(newest.modified, UTC)
        raise ObjectStoreError(
            f"{what}, but its object {printable(newest.key)} is dated later, {written:%Y-%m-%dT%H:%M:%SZ}, so the age "
            "of files there is unknown. Correct the clocks of the store's servers, or write that object again",
            code="STORE_CLOCK_OFF",
        )


@dataclass(frozen=True, slots=True)
class UnchangedResult:
    """The result of a conditional delete. A key whose object has changed is in `result.failed` with the code CHANGED.
    `looked_only` are keys deleted after a check but without a condition. `markers` maps keys to the version ids of the
    delete markers written in a versioned bucket."""

    result: BatchResult
    looked_only: int = 0
    markers: Mapping[str, str] = field(default_factory=dict)


class ListableStore(ObjectStore, Protocol):
    """An ObjectStore that lists its objects. Thread-safe."""

    def part(self, location: ObjectLocation, *, start: int, length: int) -> bytes:
        """Return up to `length` bytes of an object from byte `start`, none beyond its end; raises as `read`."""
        ...

    def page(self, bucket: str, prefix: str, *, after: str = "") -> ListedPage:
        """Return the next page of objects whose keys start with `prefix` and sort after `after`, by code point. Raises
        BucketNotFound or another store error (STORE_CLOCK_UNKNOWN)."""
        ...

    def folder(self, bucket: str, prefix: str) -> ListedFolder:
        """Return the contents directly below a prefix that ends in `/`. Raises as `page`."""
        ...

    def delete_unchanged(self, bucket: str, listed: Sequence[ListedObject]) -> UnchangedResult:
        """Delete up to 1,000 objects, each only if it still has its listed ETag and time; otherwise as `delete`. Each
        is checked just before. In stores with conditional deletes the ETag is also the condition; in others an object
        written between the check and the delete is deleted."""
        ...


TAG: Final = ("delegation-quarantine", "orphan")
"""Key and value of the tag. All files have the same pair, because the filter of a lifecycle rule names both."""
MOST_TAGS: Final = 10
"""The maximum number of tags of an object (Amazon S3 User Guide, "Categorizing your objects using tags")."""
TAGS_FULL: Final = "TagsFull"
"""The code of an object that was not tagged because it already has MOST_TAGS other tags."""
GONE: Final = "NoSuchKey"
"""The code of an object that no longer exists."""
TAG_RIGHTS: Final = (
    "s3:GetObject",
    "s3:GetObjectVersion",
    *(f"s3:{verb}Object{part}Tagging" for verb in ("Get", "Put", "Delete") for part in ("", "Version")),
)
"""Permissions that the credentials need on the objects (Amazon S3 User Guide, Actions for Amazon S3)."""


class TagFound(StrEnum):
    """The state in which `TagStore.untag` found an object."""

    TAGGED = "tagged"
    """The listed object had the tag, which is removed."""
    UNTAGGED = "untagged"
    """The listed object did not have the tag."""
    CHANGED = "changed"
    """The key has another object now. If it had the tag, the tag is removed."""
    ABSENT = "absent"


class TagStore(Protocol):
    """Objects and their tags. Thread-safe."""

    def tag(self, bucket: str, listed: ListedObject) -> str | None:
        """Tag an unchanged object and keep its other tags; return None, or an error code: CHANGED, TAGS_FULL, GONE or
        one of a delete. In a versioned bucket the listed version is tagged. Otherwise the object is checked before and
        after. An object written in between loses the tag again; after a crash, by the next call for its key."""
        ...

    def untag(self, bucket: str, listed: ListedObject, *, dry_run: bool = False) -> TagFound:
        """Remove only this tag; with `dry_run` only check. Raises ObjectStoreError."""
        ...


RIGHTS: Final = ("s3:ListBucketVersions", "s3:DeleteObjectVersion")
"""Permissions that the credentials need on the bucket (Amazon S3 User Guide, Actions for Amazon S3)."""


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version of a key. `object` is None for a delete marker."""

    version_id: str
    object: ListedObject | None


@dataclass(frozen=True, slots=True)
class KeyVersions:
    """A key's newest version and its newest version that is not a delete marker, each None if there is none."""

    newest: StoredVersion | None = None
    newest_object: StoredVersion | None = None


class VersionedStore(Protocol):
    """A versioned bucket. Thread-safe. Methods raise ObjectStoreError."""

    def versions(self, bucket: str, key: str) -> KeyVersions: ...

    def remove_version(self, bucket: str, key: str, version_id: str) -> None:
        """Remove one version permanently; an absent version counts as removed. Removing the newest delete marker makes
        the version below it the current object again."""
        ...
