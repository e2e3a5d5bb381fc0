"""The versions of keys in a bucket that keeps them, and the removal of a delete marker: the seam, and its rights.

Vended credentials have neither right, so only an operator's own credentials work here.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from delegation.storage.listing.model import ListedObject

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
