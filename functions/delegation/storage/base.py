"""The object store as a purge needs it: read one object, delete many, and store what is the service's own.

Two seams, for two identities that are never mixed: `ObjectStore` reaches the table's files with vended credentials,
`PlanStore` the service's own bucket with the service's role. Implementations: `s3`, `memory`, `file_system`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from delegation.errors import DelegationError
from delegation.storage.locations import ObjectLocation


class ObjectStoreError(DelegationError):
    """The object store did not do what it was asked."""

    code: ClassVar[str] = "STORAGE_ERROR"


class ObjectNotFound(ObjectStoreError):
    """There is no such object (or bucket)."""

    code = "OBJECT_NOT_FOUND"


class FileTooLarge(ObjectStoreError):
    """The object is larger than the limit given."""

    code = "OBJECT_TOO_LARGE"


class ObjectStoreDenied(ObjectStoreError):
    """The credentials in use do not allow it."""

    code = "STORAGE_ACCESS_DENIED"


class ObjectStoreUnavailable(ObjectStoreError):
    """Not reached, throttled, or a server error; the same call may succeed later."""

    code = "STORAGE_UNAVAILABLE"
    retryable = True


@dataclass(frozen=True, slots=True)
class KeyFailure:
    """A key that was not deleted and the store's code for it (S3 error codes, or NoAnswer for silence)."""

    key: str
    code: str


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What the store said about each key of a batch: every key is in exactly one of the two.

    `delete_markers` is true when a delete only added a delete marker: the bucket is versioned and nothing was freed.
    """

    deleted: tuple[str, ...]
    failed: tuple[KeyFailure, ...] = ()
    delete_markers: bool = False


class Deletable(Protocol):
    """A file to delete: the canonical URI of its object, and its size in bytes."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...


class ObjectStore(Protocol):
    """A table's files; safe to call from several threads."""

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        """The whole object, at most `limit` bytes; raises ObjectNotFound, FileTooLarge and the other store errors."""
        ...

    def exists(self, location: ObjectLocation) -> bool: ...

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        """Delete up to 1,000 keys of one bucket in one go, once: retrying is the caller's business.

        An absent key counts as deleted. Raises nothing that concerns keys: a call that failed as a whole is a failure
        of each of its keys.
        """
        ...

    def probe_delete(self, prefix: str) -> str | None:
        """Delete a random key below a canonical prefix that never existed; None if allowed, else the store's code.

        Leaves nothing behind, no delete marker either. Raises ObjectStoreUnavailable when the store gave no verdict.
        """
        ...

    def versioned(self, bucket: str) -> bool | None:
        """Whether the bucket keeps versions; None when the credentials may not ask."""
        ...


class PlanStore(Protocol):
    """The service's own bucket: plans, marks, receipts. Keys are relative; safe to call from several threads."""

    def put(self, key: str, data: bytes) -> None: ...

    def get(self, key: str) -> bytes:
        """Raises ObjectNotFound and the other store errors."""
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """Every key that starts with the prefix, in order."""
        ...
