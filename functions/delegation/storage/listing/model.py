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
"""The code of a key that was not deleted, because its object is not the one that was listed."""
PAGE: Final = 1_000
"""The most objects of a page (Amazon S3 API Reference, ListObjectsV2, `max-keys`)."""
_MOST_APART: Final = timedelta(hours=1)
"""Between the clocks of a store and of this process."""
_MOST_BEHIND: Final = 60
"""Seconds between the clocks of one store's servers: one may have written an object that another lists."""


class ListedObject(NamedTuple):
    """A listed object: its size in bytes, its ETag as the store writes it, and its time of writing. `modified` is in
    whole seconds since 1970 by the store's clock. A tuple: a listing makes millions of them."""

    key: str
    size: int
    etag: str
    modified: int


@dataclass(frozen=True, slots=True)
class ListedPage:
    """Some objects in the order of keys; `is_last` if there are no more. `at` is when the store made the page, by its
    own clock, in whole seconds since 1970."""

    objects: tuple[ListedObject, ...]
    at: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class ListedFolder:
    """What is directly below a prefix: the first page of its objects without a further `/`, and longer prefixes.
    `is_whole` is False if there is more of either than one page has."""

    objects: tuple[ListedObject, ...]
    folders: tuple[str, ...]
    at: int
    is_whole: bool


def check_clock(bucket: str, listed: ListedPage | ListedFolder, now: datetime) -> None:
    """Raise ObjectStoreError (STORE_CLOCK_OFF) for a listing over an hour from `now`, or older than its objects."""
    there = datetime.fromtimestamp(listed.at, UTC)
    what = f"the store of s3://{bucket}/ dates a listing {there:%Y-%m-%dT%H:%M:%SZ}"
    if abs(there - now) > _MOST_APART:
        raise ObjectStoreError(
            f"{what}, more than an hour from the service's clock, {now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}, so the age "
            "of files there is unknown. Correct the clock that is wrong",
            code="STORE_CLOCK_OFF",
        )
    newest = max(listed.objects, key=lambda listed_object: listed_object.modified, default=None)
    if newest is not None and newest.modified > listed.at + _MOST_BEHIND:
        written = datetime.fromtimestamp(newest.modified, UTC)
        raise ObjectStoreError(
            f"{what}, before it wrote {printable(newest.key)}, {written:%Y-%m-%dT%H:%M:%SZ}, so the age of files there "
            "is unknown. Correct the clocks of the store's servers, or write that object again",
            code="STORE_CLOCK_OFF",
        )


@dataclass(frozen=True, slots=True)
class UnchangedResult:
    """The result of a conditional delete; `looked_only` are keys deleted after a check, without a condition. A key
    whose object has changed is in `result.failed` with the code CHANGED, and is not deleted. `markers` are version ids,
    by key, of the delete markers written in a versioned bucket."""

    result: BatchResult
    looked_only: int = 0
    markers: Mapping[str, str] = field(default_factory=dict)


class ListableStore(ObjectStore, Protocol):
    """An ObjectStore that lists its objects. Thread-safe."""

    def part(self, location: ObjectLocation, *, start: int, length: int) -> bytes:
        """Return up to `length` bytes of an object from byte `start`, none beyond its end; raises as `read`."""
        ...

    def page(self, bucket: str, prefix: str, *, after: str = "") -> ListedPage:
        """Return the next page of objects whose keys begin with `prefix` and are above `after`, by code point. Raises
        BucketNotFound or another store error (STORE_CLOCK_UNKNOWN)."""
        ...

    def folder(self, bucket: str, prefix: str) -> ListedFolder:
        """Return what is directly below a prefix that ends in `/`; raises as `page`."""
        ...

    def delete_unchanged(self, bucket: str, listed: Sequence[ListedObject]) -> UnchangedResult:
        """Delete up to 1,000 objects, each only if it still has the listing's ETag and time; otherwise as `delete`.
        Each is checked just before. Where the store has conditional deletes, the ETag is also their condition;
        elsewhere an object written between the check and the delete is deleted."""
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

    def tag(self, bucket: str, listed: ListedObject) -> str | None:
        """Tag an object that is as listed, beside its other tags; return None, or an error code. The codes are CHANGED,
        TAGS_FULL, GONE, and those of a delete. With versions the listed version is tagged. Otherwise the object is
        checked before and after, and one written in between loses the tag again; after a crash, by the next call for
        the key."""
        ...

    def untag(self, bucket: str, listed: ListedObject, *, dry_run: bool = False) -> TagFound:
        """Remove the tag and no other; with `dry_run` only check. Raises the errors of an object store."""
        ...


RIGHTS: Final = ("s3:ListBucketVersions", "s3:DeleteObjectVersion")
"""What the credentials need for the bucket (Amazon S3 User Guide, Actions for Amazon S3)."""


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One version of a key: its id, and its object, None for a delete marker."""

    version_id: str
    object: ListedObject | None


@dataclass(frozen=True, slots=True)
class KeyVersions:
    """A key's newest version, None without one, and the newest that is no delete marker."""

    newest: StoredVersion | None = None
    newest_object: StoredVersion | None = None


class VersionedStore(Protocol):
    """A bucket with versions. Thread-safe. Methods raise the errors of an object store."""

    def versions(self, bucket: str, key: str) -> KeyVersions: ...

    def remove_version(self, bucket: str, key: str, version_id: str) -> None:
        """Remove one version for ever; an absent one counts as removed. Without the newest delete marker, the version
        below is the object again."""
        ...
