"""Queue of the keys to delete: lots of files (one per chunk), batches to retry, and each lot's outcome."""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from delegation.storage.base import BatchResult, Deletable
from delegation.storage.locations import split, uri_of

T = TypeVar("T")

THROTTLED: Final = frozenset(
    {"SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "RequestLimitExceeded", "503"}
)
# Codes of a store that is overloaded or failing; an expired token is for the service to renew.
STORE_FAILURES: Final = THROTTLED | {
    "InternalError", "OperationAborted", "RequestTimeout", "ConnectionFailed", "NoAnswer", "AnswerTooLarge",
    "500",
}  # fmt: skip
# With one of these the store was not reached, or did not look at the key.
NOT_OF_KEY: Final = THROTTLED | {
    "AnswerTooLarge", "BucketNotFound", "ConnectionFailed", "ExpiredToken", "NoSuchBucket", "RequestTimeout",
}  # fmt: skip
TRANSIENT: Final = STORE_FAILURES | {"ExpiredToken"}


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that was not deleted, and the store's last error code."""

    path: str
    code: str

    @property
    def transient(self) -> bool:
        return self.code in TRANSIENT


@dataclass(slots=True)
class Outcome:
    """The result of deleting some files: numbers of files and bytes, and failures. `files` includes `absent` ones,
    `bytes` does not include their `absent_bytes`."""

    files: int = 0
    bytes: int = 0
    absent: int = 0
    absent_bytes: int = 0
    failures: list[Failure] = field(default_factory=list)
    delete_markers: bool = False


@dataclass(slots=True)
class Lot(Generic[T]):
    """Files with a common outcome; `pending` batched keys have no outcome yet."""

    name: T
    outcome: Outcome = field(default_factory=Outcome)
    pending: int = 0
    all_queued: bool = False


@dataclass(slots=True)
class Batch(Generic[T]):
    lot: Lot[T]
    bucket: str
    sizes: dict[str, int]
    tries: int = 0
    throttled: int = 0
    not_before: float = 0.0
    codes: Mapping[str, str] = field(default_factory=dict)
    """The answers for its keys when they were sent the last time."""

    def deleted(self, result: BatchResult) -> dict[str, int]:
        """Count the keys that the store deleted; return the others with their sizes."""
        outcome, deleted = self.lot.outcome, self.sizes.keys() & set(result.deleted)
        outcome.delete_markers = outcome.delete_markers or result.delete_markers
        whole = len(deleted) == len(self.sizes)
        left = {} if whole else {key: size for key, size in self.sizes.items() if key not in deleted}
        outcome.files += len(deleted)
        outcome.bytes += sum(self.sizes.values()) - sum(left.values())
        # A key that was sent before may be absent because of that.
        if result.absent and not (self.tries or self.throttled):
            sizes = [self.sizes[key] for key in set(result.absent) & deleted]
            outcome.absent += len(sizes)
            outcome.absent_bytes += sum(sizes)
            outcome.bytes -= sum(sizes)
        self.lot.pending -= len(deleted)
        return left

    def failed(self, codes: Mapping[str, str]) -> None:
        """Record keys as not deleted, each with its error code."""
        self.lot.outcome.failures.extend(Failure(uri_of(self.bucket, key), code) for key, code in codes.items())
        self.lot.pending -= len(codes)


class WaitingBatches(Generic[T]):
    """Keys to send: batches to retry after their pause, else new keys."""

    def __init__(self, lots: Iterable[tuple[T, Iterable[Deletable]]]) -> None:
        self._lots = iter(lots)
        self._open: list[Lot[T]] = []
        self._fresh: Iterator[Deletable] = iter(())
        self._next: Deletable | None = None
        self._again: list[tuple[float, int, Batch[T]]] = []
        self._order = itertools.count()

    def __bool__(self) -> bool:
        return self._has_fresh() or bool(self._again)

    def not_before(self) -> float:
        """Return the time of the next batch on the caller's clock; requires one."""
        return 0.0 if self._next is not None else self._again[0][0]

    def put(self, batch: Batch[T] | None) -> None:
        if batch is not None:
            heapq.heappush(self._again, (batch.not_before, next(self._order), batch))

    def take(self, most: int, now: float) -> Batch[T]:
        """Remove and return the next batch, of one lot and bucket, at most `most` keys; requires one."""
        if self._again and (self._next is None or self._again[0][0] <= now):
            _, _, batch = heapq.heappop(self._again)
            keys = iter(batch.sizes.items())
            first = dict(itertools.islice(keys, most))
            rest = dict(keys)
            if rest:
                self.put(replace(batch, sizes=rest))
            return replace(batch, sizes=first)
        return self._new(most)

    def drain(self, most: int) -> Iterator[Batch[T]]:
        """Remove and yield all batches of the lots begun."""
        while self._again:
            yield heapq.heappop(self._again)[2]
        while self._next is not None:
            yield self._new(most)

    def finished(self) -> Iterator[tuple[T, Outcome]]:
        for lot in [lot for lot in self._open if lot.all_queued and not lot.pending]:
            self._open.remove(lot)
            yield lot.name, lot.outcome

    def _has_fresh(self) -> bool:
        """Return whether a new key waits; begin the next lots until one does."""
        while self._next is None:
            lot = next(self._lots, None)
            if lot is None:
                return False
            name, records = lot
            self._open.append(Lot(name))
            self._fresh = iter(records)
            self._next = next(self._fresh, None)
            self._open[-1].all_queued = self._next is None
        return True

    def _new(self, most: int) -> Batch[T]:
        """Return a batch of new keys; requires one. Sorted records come by bucket."""
        lot, record = self._open[-1], self._next
        if record is None:
            raise LookupError("there is no record that was never sent")
        bucket, key = split(record.path)
        inside = uri_of(bucket, "")
        start, sizes = len(inside), {key: record.size}
        # Millions of records pass here: nothing is called for one but its own attributes and the comparison.
        for record in itertools.islice(self._fresh, most - 1):
            path = record.path
            if not path.startswith(inside):
                break
            sizes[path[start:]] = record.size
        else:
            record = next(self._fresh, None)
        self._next = record
        lot.all_queued = record is None
        lot.pending += len(sizes)
        return Batch(lot, bucket, sizes)
