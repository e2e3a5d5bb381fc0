"""Interfaces to storage: `ObjectStore` for a table's files, `PlanStore` for the service's own objects.

The first uses vended credentials, the second the service's role. Implementations: `s3`, `file_system`, `memory`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from delegation.storage.locations import ObjectLocation
from polaris_common.errors import DelegationError


class ObjectStoreError(DelegationError):
    code = "STORAGE_ERROR"


class ObjectNotFound(ObjectStoreError):
    code = "OBJECT_NOT_FOUND"


class BucketNotFound(ObjectStoreError):
    """The store does not have the bucket, so nothing is known about a key: the endpoint or the account is wrong."""

    code = "BUCKET_NOT_FOUND"


class FileTooLarge(ObjectStoreError):
    """The object is larger than the caller's limit."""

    code = "OBJECT_TOO_LARGE"


class ObjectStoreDenied(ObjectStoreError):
    """The credentials do not allow the call."""

    code = "STORAGE_ACCESS_DENIED"


class ObjectStoreUnavailable(ObjectStoreError):
    """The store was not reached, throttled the call or failed; the same call may succeed later."""

    code = "STORAGE_UNAVAILABLE"
    retryable = True


@dataclass(frozen=True, slots=True)
class KeyFailure:
    """A key that was not deleted, and the store's error code for it.

    The code is `NoAnswer` if there was none, and `AnswerTooLarge` if the answer was not read to its end.
    """

    key: str
    code: str


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of deleting a batch of keys: each key is either in `deleted` or in `failed`.

    `absent` are those in `deleted` that the store said it did not have. S3 confirms the delete of an absent key like
    any other, and names as absent only a key with an error that states it.
    `delete_markers` is true if a delete only wrote a delete marker, as in a versioned bucket; no space was freed.
    """

    deleted: tuple[str, ...]
    failed: tuple[KeyFailure, ...] = ()
    delete_markers: bool = False
    absent: tuple[str, ...] = ()


class Deletable(Protocol):
    """A file to delete: the canonical URI of its object, and its size in bytes."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...


class ObjectStore(Protocol):
    """A table's files. Thread-safe."""

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        """Return the whole object; raise FileTooLarge beyond `limit` bytes, ObjectNotFound or another store error."""
        ...

    def exists(self, location: ObjectLocation) -> bool:
        """Return whether the object exists; raise BucketNotFound or another store error if the store does not know."""
        ...

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        """Send one delete for up to 1,000 keys of one bucket; the caller retries.

        An absent key counts as deleted, a key of an absent bucket does not. A call that fails as a whole is returned
        as a failure of each of its keys.
        """
        ...

    def probe_delete(self, prefix: str) -> str | None:
        """Test whether keys below a canonical prefix may be deleted: return None, or the store's error code.

        Leaves nothing behind, not even a delete marker. Raises ObjectStoreUnavailable if the store did not decide, and
        BucketNotFound.
        """
        ...

    def versioned(self, bucket: str, *, seen: ObjectLocation | None = None) -> bool | None:
        """Return whether the bucket keeps versions, or kept them before; None if nothing tells.

        If the credentials do not allow the question, an answer to a read of `seen`, an object in it, tells.
        """
        ...


class PlanStore(Protocol):
    """The service's own bucket: plans, marks, receipts. Keys are relative. Thread-safe."""

    def put(self, key: str, data: bytes) -> None: ...

    def get(self, key: str) -> bytes:
        """Return an object; raise ObjectNotFound or another store error."""
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with the prefix, in order."""
        ...

    def where(self, key: str) -> str:
        """Return the URI or path of an object, for commands."""
        ...
