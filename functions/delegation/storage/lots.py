"""The files to delete, lot by lot: what was never sent, what is to be sent again, and the outcome of each lot."""

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
# Codes of a store that is overloaded or out of order; an expired token is ours to renew.
TROUBLE: Final = THROTTLED | {
    "InternalError", "OperationAborted", "RequestTimeout", "ConnectionFailed", "NoAnswer", "500",
}  # fmt: skip
PASSING: Final = TROUBLE | {"ExpiredToken"}


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that is still there, and the store's last word on it."""

    path: str
    code: str

    @property
    def passing(self) -> bool:
        return self.code in PASSING


@dataclass(slots=True)
class Outcome:
    """What became of some files: how many and how many bytes are gone, and each one that is not."""

    files: int = 0
    bytes: int = 0
    failures: list[Failure] = field(default_factory=list)
    delete_markers: bool = False


@dataclass(slots=True)
class Lot(Generic[T]):
    """Files whose outcome is wanted by itself; `unknown` of those taken from it so far have none yet."""

    name: T
    outcome: Outcome = field(default_factory=Outcome)
    unknown: int = 0
    taken_whole: bool = False


@dataclass(slots=True)
class Batch(Generic[T]):
    lot: Lot[T]
    bucket: str
    sizes: dict[str, int]
    tries: int = 0
    throttled: int = 0
    not_before: float = 0.0

    def deleted(self, result: BatchResult) -> dict[str, int]:
        """Count the keys that the store deleted; returns the rest with their sizes."""
        outcome, deleted = self.lot.outcome, self.sizes.keys() & set(result.deleted)
        outcome.delete_markers = outcome.delete_markers or result.delete_markers
        whole = len(deleted) == len(self.sizes)
        left = {} if whole else {key: size for key, size in self.sizes.items() if key not in deleted}
        outcome.files += len(deleted)
        outcome.bytes += sum(self.sizes.values()) - sum(left.values())
        self.lot.unknown -= len(deleted)
        return left

    def failed(self, codes: Mapping[str, str]) -> None:
        """Count keys as not deleted, each for the reason given by its code."""
        self.lot.outcome.failures.extend(Failure(uri_of(self.bucket, key), code) for key, code in codes.items())
        self.lot.unknown -= len(codes)


class WaitingBatches(Generic[T]):
    """What is to be sent: batches to be tried again once their pause is over, and before that what was never tried."""

    def __init__(self, lots: Iterable[tuple[T, Iterable[Deletable]]]) -> None:
        self._lots = iter(lots)
        self._open: list[Lot[T]] = []
        self._fresh: Iterator[Deletable] = iter(())
        self._next: Deletable | None = None
        self._again: list[tuple[float, int, Batch[T]]] = []
        self._order = itertools.count()

    def __bool__(self) -> bool:
        return self._some_fresh() or bool(self._again)

    def not_before(self) -> float:
        """When the next batch may go, on the clock of the batches; only if there is one."""
        return 0.0 if self._next is not None else self._again[0][0]

    def put(self, batch: Batch[T] | None) -> None:
        if batch is not None:
            heapq.heappush(self._again, (batch.not_before, next(self._order), batch))

    def take(self, most: int, now: float) -> Batch[T]:
        """The next batch, of one lot and bucket and at most so many keys; only if there is one."""
        if self._again and (self._next is None or self._again[0][0] <= now):
            _, _, batch = heapq.heappop(self._again)
            keys = iter(batch.sizes.items())
            first = dict(itertools.islice(keys, most))
            rest = dict(keys)
            if rest:
                self.put(replace(batch, sizes=rest))
            return replace(batch, sizes=first)
        return self._new(most)

    def give_up(self, most: int) -> Iterator[Batch[T]]:
        """All that waits of the lots begun, in batches."""
        while self._again:
            yield heapq.heappop(self._again)[2]
        while self._next is not None:
            yield self._new(most)

    def finished(self) -> Iterator[tuple[T, Outcome]]:
        """The lots that came to their end since this was last asked."""
        for lot in [lot for lot in self._open if lot.taken_whole and not lot.unknown]:
            self._open.remove(lot)
            yield lot.name, lot.outcome

    def _some_fresh(self) -> bool:
        """Whether a record was never tried; begins the next lots until there is one."""
        while self._next is None:
            lot = next(self._lots, None)
            if lot is None:
                return False
            name, records = lot
            self._open.append(Lot(name))
            self._fresh = iter(records)
            self._step()
        return True

    def _step(self) -> None:
        self._next = next(self._fresh, None)
        self._open[-1].taken_whole = self._next is None

    def _new(self, most: int) -> Batch[T]:
        """Sorted records come bucket by bucket."""
        lot = self._open[-1]
        batch = Batch(lot, "", {})
        while self._next is not None and len(batch.sizes) < most:
            bucket, key = split(self._next.path)
            if batch.sizes and bucket != batch.bucket:
                break
            batch.bucket = bucket
            batch.sizes[key] = self._next.size
            self._step()
        lot.unknown += len(batch.sizes)
        return batch
