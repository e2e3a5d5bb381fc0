"""Listing a store, and deleting only what is still as it was listed: the seam, and what a page states."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from delegation.storage.base import BatchResult, ObjectStore, ObjectStoreError
from delegation.storage.locations import ObjectLocation
from polaris_common.errors import printable

CHANGED: Final = "ObjectChanged"
"""The code of a key that was not deleted, because its object is not the one that was listed."""
PAGE: Final = 1_000
"""The most objects of a page (Amazon S3 API Reference, ListObjectsV2, `max-keys`)."""
_MOST_APART: Final = timedelta(hours=1)
"""Between the clocks of a store and of this process."""
_MOST_BEHIND: Final = 60
"""Seconds between the clocks of one store's servers: one may have written an object that another lists."""


class ListedObject(NamedTuple):
    """An object as it was listed: its size in bytes, its ETag as the store writes it, and when it was written.

    `modified` is in whole seconds since 1970 by the store's clock. A tuple, because a listing makes millions of them.
    """

    key: str
    size: int
    etag: str
    modified: int


@dataclass(frozen=True, slots=True)
class ListedPage:
    """Some objects in the order of their keys; `is_last` if there are no more.

    `at` is when the store made the page, by its own clock, in whole seconds since 1970.
    """

    objects: tuple[ListedObject, ...]
    at: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class ListedFolder:
    """What is directly below a prefix: the first page of its objects without a further `/`, and the longer prefixes.

    `is_whole` is False if there is more of either than one page has.
    """

    objects: tuple[ListedObject, ...]
    folders: tuple[str, ...]
    at: int
    is_whole: bool


def check_clock(bucket: str, listed: ListedPage | ListedFolder, now: datetime) -> None:
    """Raise ObjectStoreError (STORE_CLOCK_OFF) for a listing that cannot be of its time.

    It is more than an hour from `now`, or older than an object that it has.
    """
    there = datetime.fromtimestamp(listed.at, UTC)
    what = f"the store of s3://{bucket}/ dates a listing {there:%Y-%m-%dT%H:%M:%SZ}"
    if abs(there - now) > _MOST_APART:
        raise ObjectStoreError(
            f"{what}, more than an hour from the service's clock, {now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}, so no age "
            "of a file there is known; correct the clock that is wrong",
            code="STORE_CLOCK_OFF",
        )
    newest = max(listed.objects, key=lambda one: one.modified, default=None)
    if newest is not None and newest.modified > listed.at + _MOST_BEHIND:
        written = datetime.fromtimestamp(newest.modified, UTC)
        raise ObjectStoreError(
            f"{what}, before it wrote {printable(newest.key)}, {written:%Y-%m-%dT%H:%M:%SZ}, so no age of a file there "
            "is known; correct the clocks of the store's servers, or write that object again",
            code="STORE_CLOCK_OFF",
        )


@dataclass(frozen=True, slots=True)
class UnchangedResult:
    """The result of a conditional delete; `looked_only` are keys that were deleted after a look, without a condition.

    A key whose object is another than was listed is among `result.failed` with the code CHANGED, and is not deleted.
    `markers` are the delete markers that were written in a bucket with versions, by key: their version ids.
    """

    result: BatchResult
    looked_only: int = 0
    markers: Mapping[str, str] = field(default_factory=dict)


class ListableStore(ObjectStore, Protocol):
    """An ObjectStore that lists its objects. Thread-safe."""

    def part(self, location: ObjectLocation, *, start: int, length: int) -> bytes:
        """Return up to `length` bytes of an object from the byte `start` on, none beyond its end; raises as `read`."""
        ...

    def page(self, bucket: str, prefix: str, *, after: str = "") -> ListedPage:
        """Return the next page of the objects whose keys begin with a prefix and are above `after` in order.

        Keys are ordered by code point. Raises BucketNotFound or another store error
        (STORE_CLOCK_UNKNOWN).
        """
        ...

    def folder(self, bucket: str, prefix: str) -> ListedFolder:
        """Return what is directly below a prefix that ends in `/`; raises what `page` does."""
        ...

    def delete_unchanged(self, bucket: str, listed: Sequence[ListedObject]) -> UnchangedResult:
        """Delete up to 1,000 objects, each only if it still has the ETag and the time of the listing.

        Each is looked at just before. Where the store has conditional deletes the ETag is their condition as well;
        elsewhere an object that is written between the look and the delete is deleted. Otherwise as `delete`.
        """
        ...


TAG: Final = ("delegation-quarantine", "orphan")
"""Key and value of the tag: one pair for all files, because the filter of a lifecycle rule names both."""
MOST_TAGS: Final = 10
"""Tags that an object has at most (Amazon S3 User Guide, "Categorizing your objects using tags")."""
TAGS_FULL: Final = "TagsFull"
"""The code of an object that was not tagged, because it has as many tags of others as an object may have."""
GONE: Final = "NoSuchKey"
"""The code of an object that is not there any more."""
TAG_RIGHTS: Final = (
    "s3:GetObject",
    "s3:GetObjectVersion",
    *(f"s3:{verb}Object{part}Tagging" for verb in ("Get", "Put", "Delete") for part in ("", "Version")),
)
"""What the credentials need for the objects (Amazon S3 User Guide, Actions for Amazon S3)."""


class TagFound(StrEnum):
    """How `TagStore.untag` found an object."""

    TAGGED = "tagged"
    """As it was listed, with the tag, which is removed."""
    UNTAGGED = "untagged"
    """As it was listed, without the tag."""
    CHANGED = "changed"
    """Another object is there now; a tag that it has is removed."""
    ABSENT = "absent"


class TagStore(Protocol):
    """Objects and their tags. Thread-safe."""

    def tag(self, bucket: str, one: ListedObject) -> str | None:
        """Set the tag of an object that is as it was listed, besides its other tags; return None, or an error code.

        The codes are CHANGED, TAGS_FULL, GONE, and those of a delete. With versions it is the
        listed version that is tagged. Elsewhere the object is looked at before and after, and an object that was
        written between loses the tag again: if nothing is left to do that, as after a crash, the next call for the key
        does.
        """
        ...

    def untag(self, bucket: str, one: ListedObject, *, dry_run: bool = False) -> TagFound:
        """Remove the tag, and no other; with `dry_run` only look. Raises the errors of an object store."""
        ...


RIGHTS: Final = ("s3:ListBucketVersions", "s3:DeleteObjectVersion")
"""What the credentials need for the bucket (Amazon S3 User Guide, Actions for Amazon S3)."""


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One version of a key: its id, and the object that it holds, None for a delete marker."""

    version_id: str
    object: ListedObject | None


@dataclass(frozen=True, slots=True)
class KeyVersions:
    """The newest version of a key, None if there is none, and the newest one that is no delete marker."""

    newest: StoredVersion | None = None
    newest_object: StoredVersion | None = None


class VersionedStore(Protocol):
    """A bucket with versions. Thread-safe. Methods raise the errors of an object store."""

    def versions(self, bucket: str, key: str) -> KeyVersions: ...

    def remove_version(self, bucket: str, key: str, version_id: str) -> None:
        """Remove one version for ever; one that is not there counts as removed.

        Without a delete marker that was newest, the version below is the object again.
        """
        ...
