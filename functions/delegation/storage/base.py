"""Storage interfaces: `ObjectStore` for a table's files, with vended credentials; `PlanStore` for the service's own
objects, with its role. Implementations: `s3`, `file_system`, `memory`."""

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
    """The store does not have the bucket, so a key's state is unknown: the endpoint or account is wrong."""

    code = "BUCKET_NOT_FOUND"


class FileTooLarge(ObjectStoreError):
    """The object is larger than the caller's limit."""

    code = "OBJECT_TOO_LARGE"


class ObjectStoreDenied(ObjectStoreError):
    """The credentials do not allow the call."""

    code = "STORAGE_ACCESS_DENIED"


class ObjectStoreUnavailable(ObjectStoreError):
    """The store was not reached, throttled the call or failed; repeating the call may succeed."""

    code = "STORAGE_UNAVAILABLE"
    retryable = True


@dataclass(frozen=True, slots=True)
class KeyFailure:
    """A key that was not deleted, and the store's error code: `NoAnswer` if there was no answer, `AnswerTooLarge` if
    the answer was not read completely."""

    key: str
    code: str


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of deleting a batch of keys. Each key is in `deleted` or `failed`. `absent` are keys in `deleted` that
    the store reported as missing; S3 confirms most absent keys like others. `delete_markers` is true if a delete in a
    versioned bucket only wrote a delete marker, and freed no space."""

    deleted: tuple[str, ...]
    failed: tuple[KeyFailure, ...] = ()
    delete_markers: bool = False
    absent: tuple[str, ...] = ()

    @classmethod
    def merged(cls, results: Sequence["BatchResult"]) -> "BatchResult":
        return cls(
            tuple(key for result in results for key in result.deleted),
            tuple(failure for result in results for failure in result.failed),
            any(result.delete_markers for result in results),
            tuple(key for result in results for key in result.absent),
        )


class Deletable(Protocol):
    """A file to delete: its canonical URI and its size in bytes."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...


class ReadableStore(Protocol):
    """A table's files for a reader. Thread-safe."""

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        """Return the whole object. Raises FileTooLarge beyond `limit` bytes, ObjectNotFound or another store error."""
        ...


class ObjectStore(ReadableStore, Protocol):
    """A table's files. Thread-safe."""

    def exists(self, location: ObjectLocation) -> bool:
        """Return whether the object exists. Raises BucketNotFound or another store error if that is unknown."""
        ...

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        """Send one delete for up to 1,000 keys of one bucket; the caller retries. An absent key counts as deleted, a
        key of an absent bucket does not. A failed call is returned as a failure of each key."""
        ...

    def probe_delete(self, prefix: str) -> str | None:
        """Return None if keys below a canonical prefix may be deleted, else the store's error code. Leaves nothing
        behind, not even a delete marker. Raises BucketNotFound, and ObjectStoreUnavailable if the answer is unknown."""
        ...

    def versioned(self, bucket: str, *, seen: ObjectLocation | None = None) -> bool | None:
        """Return whether the bucket keeps versions or once kept them, None if unknown. If the credentials may not ask,
        `seen`, an object in the bucket, is read instead."""
        ...


class PlanStore(Protocol):
    """The service's own bucket: plans, marks, receipts. Keys are relative. Thread-safe."""

    def put(self, key: str, data: bytes) -> None: ...

    def get(self, key: str) -> bytes:
        """Return an object. Raises ObjectNotFound or another store error."""
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with the prefix, in order."""
        ...

    def where(self, key: str) -> str:
        """Return the URI or path of an object, for display."""
        ...
