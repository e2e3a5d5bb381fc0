"""Deletes keys in batches, with threads and an adaptive rate, and records the outcome of every key.

The rate, in keys per second, finds the store's limit and stays near it. It is needed because boto3's retry modes are
slow, or fail a tenth to a third of the keys, in a bucket limited to 3,500 keys/s. The rate multiplies until the first
SlowDown. After that each refused batch lowers it by a small part. Each accepted batch raises it, by more the longer ago
the last refusal was (a convex curve, as in RFC 9438, Section 4.5). So few batches are refused at the limit, and a
higher limit is found within seconds. Processes need no coordination: a process that sends more is refused more.

A key counts as deleted only when the store confirms it (Amazon S3 API Reference, DeleteObjects). Transient refusals are
retried, others reported. Only the calling thread schedules batches, so a stop takes effect once the batches already
sent are answered.
"""

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from delegation.storage.base import BatchResult, Deletable, ObjectStore, ObjectStoreError
from delegation.storage.locations import FOREIGN_LOCATION, ForeignLocations, ObjectLocation, split, uri_of
from polaris_common.backoff import exponential

T = TypeVar("T")

THROTTLED: Final = frozenset(
    {"SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "RequestLimitExceeded", "503"}
)
# Codes of an overloaded or failing store. An expired token is not one: the service renews it.
STORE_FAILURES: Final = THROTTLED | {
    "InternalError", "OperationAborted", "RequestTimeout", "ConnectionFailed", "NoAnswer", "AnswerTooLarge",
    "500",
}  # fmt: skip
# Codes that do not concern the key: the store was not reached, or did not examine the key.
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
    """The result of deleting files: numbers of files and bytes, and failures. `files` includes `absent` ones; `bytes`
    excludes their `absent_bytes`."""

    files: int = 0
    bytes: int = 0
    absent: int = 0
    absent_bytes: int = 0
    failures: list[Failure] = field(default_factory=list)
    delete_markers: bool = False


@dataclass(slots=True)
class Lot(Generic[T]):
    """Files with a common outcome. `pending` counts the batched keys without an outcome."""

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
    """The codes of its keys from the last try."""

    def deleted(self, result: BatchResult) -> dict[str, int]:
        """Count the keys that the store deleted; return the others with their sizes."""
        outcome, deleted = self.lot.outcome, self.sizes.keys() & set(result.deleted)
        outcome.delete_markers = outcome.delete_markers or result.delete_markers
        whole = len(deleted) == len(self.sizes)
        left = {} if whole else {key: size for key, size in self.sizes.items() if key not in deleted}
        outcome.files += len(deleted)
        outcome.bytes += sum(self.sizes.values()) - sum(left.values())
        # An earlier try may have deleted the key.
        if result.absent and not (self.tries or self.throttled):
            sizes = [self.sizes[key] for key in set(result.absent) & deleted]
            outcome.absent += len(sizes)
            outcome.absent_bytes += sum(sizes)
            outcome.bytes -= sum(sizes)
        self.lot.pending -= len(deleted)
        return left

    def failed(self, codes: Mapping[str, str]) -> None:
        self.lot.outcome.failures.extend(Failure(uri_of(self.bucket, key), code) for key, code in codes.items())
        self.lot.pending -= len(codes)


class WaitingBatches(Generic[T]):
    """Keys to send: batches to retry after their pause, then new keys."""

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
        """Return the time of the next batch on the caller's clock. At least one batch must wait."""
        return 0.0 if self._next is not None else self._again[0][0]

    def put(self, batch: Batch[T] | None) -> None:
        if batch is not None:
            heapq.heappush(self._again, (batch.not_before, next(self._order), batch))

    def take(self, most: int, now: float) -> Batch[T]:
        """Remove and return the next batch: at most `most` keys of one lot and bucket. At least one must wait."""
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
        """Remove and yield all batches of the lots that have started."""
        while self._again:
            yield heapq.heappop(self._again)[2]
        while self._next is not None:
            yield self._new(most)

    def finished(self) -> Iterator[tuple[T, Outcome]]:
        for lot in [lot for lot in self._open if lot.all_queued and not lot.pending]:
            self._open.remove(lot)
            yield lot.name, lot.outcome

    def _has_fresh(self) -> bool:
        """Return whether a new key waits. Starts the next lots until one does."""
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
        """Return a batch of new keys; at least one must wait. The records are sorted, so they come by bucket."""
        lot, record = self._open[-1], self._next
        if record is None:
            raise LookupError("there is no record that was never sent")
        bucket, key = split(record.path)
        inside = uri_of(bucket, "")
        start, sizes = len(inside), {key: record.size}
        # Millions of records pass here, so the loop calls no function per record.
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


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """Parameters of the rate, in keys per second and seconds.

    `start` and `minimum`: the first and the lowest rate. `search`: until the first SlowDown an accepted batch raises
    the rate by this multiple of its keys. `decrease`: the part of the rate that a refused batch takes away.
    `add_per_second`, `grow`: the increase per second, as a number and as a part of the rate. It has doubled `quiet`
    seconds after the last refusal, and then grows with the square of the time. `batch_seconds`: the time that the keys
    of one batch should take. `credit`: how many seconds of unused time may be made up for.
    """

    start: float = 2_000.0
    search: float = 4.0
    decrease: float = 0.05
    add_per_second: float = 20.0
    grow: float = 0.02
    quiet: float = 0.5
    batch_seconds: float = 0.03
    credit: float = 0.1
    minimum: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.decrease < 1:
            raise ValueError("decrease must be between 0 and 1")
        if min(self.start, self.quiet, self.batch_seconds, self.minimum) <= 0:
            raise ValueError("start, quiet, batch_seconds and minimum must be positive")
        if min(self.search, self.add_per_second, self.grow, self.credit) < 0:
            raise ValueError("search, add_per_second, grow and credit must be positive or 0")


class AdaptiveRate:
    """The rate shared by a process's threads. Times are seconds of a monotonic clock."""

    def __init__(self, policy: RatePolicy, *, now: float) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._rate = policy.start
        self._free_at = now
        self._refused_at = -math.inf
        self._used = True

    @property
    def keys_per_second(self) -> float:
        return self._rate

    def batch(self, most: int) -> int:
        """Return the size of the next batch, at most `most` keys."""
        return max(1, min(most, round(self._rate * self._policy.batch_seconds)))

    def wait(self, now: float) -> float:
        with self._lock:
            return max(0.0, self._free_at - now)

    def sent(self, keys: int, now: float) -> None:
        with self._lock:
            earliest = now - self._policy.credit
            # A rate that is not fully used, for lack of threads or work, must not grow.
            self._used = self._free_at >= earliest
            # No limit is known before the first refusal, so no unused time can be made up for.
            searching = self._refused_at == -math.inf
            self._free_at = max(self._free_at, now if searching else earliest) + keys / self._rate

    def answered(self, deleted: int, now: float, *, throttled: bool) -> None:
        """Adapt the rate to an answer: the number of deleted keys, and whether the store throttled the batch."""
        with self._lock:
            if throttled:
                self._refused_at = now
                self._rate = max(self._policy.minimum, self._rate * (1 - self._policy.decrease))
            elif self._used:
                self._rate += deleted * min(self._policy.search, self._growth(now - self._refused_at) / self._rate)

    def _growth(self, quiet: float) -> float:
        """Return the increase per second, `quiet` seconds after the last refusal; infinite before the first refusal."""
        policy = self._policy
        return (policy.add_per_second + policy.grow * self._rate) * (1 + (quiet / policy.quiet) ** 2)


_PRESENT_IN_A_ROW: Final = 20
"""After this many keys of a batch were found to exist, no further key is checked: they failed for another reason."""


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    """Limits of batch size (1 to 1,000 keys), concurrent calls and tries per key; times in seconds. A low rate makes
    batches smaller. At most `checkpoint_seconds` pass between two checkpoints. If the store only throttles, fails or
    does not answer for `patience` seconds, the remaining keys fail. Nothing at a `foreign` location is deleted."""

    batch: int = 1_000
    threads: int = 16
    tries: int = 8
    throttled_tries: int = 40
    pause: float = 0.1
    longest_pause: float = 5.0
    checkpoint_seconds: float = 1.0
    patience: float = 120.0
    rate: RatePolicy = field(default_factory=RatePolicy)
    foreign: ForeignLocations = field(default_factory=ForeignLocations)

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= 1_000:
            raise ValueError("batch must be 1 to 1,000 keys, the limit of S3 DeleteObjects")
        if self.threads < 1 or self.tries < 1 or self.throttled_tries < 1:
            raise ValueError("threads, tries and throttled_tries must be at least 1")


class Deleter:
    """Deletes any number of chunks. Use one per process, as a context manager: leaving it ends its threads."""

    def __init__(
        self,
        store: ObjectStore,
        policy: DeletePolicy,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rate: AdaptiveRate | None = None,
    ) -> None:
        self._store = store
        self._policy = policy
        self._now = now
        self._sleep = sleep
        self._rate = rate or AdaptiveRate(policy.rate, now=now())
        self._accepted_at = now()
        self._refusal = "SlowDown"
        self._of_absent: set[str] = set()
        self._pool = ThreadPoolExecutor(policy.threads, thread_name_prefix="delete")

    def __enter__(self) -> "Deleter":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def keys_per_second(self) -> float:
        return self._rate.keys_per_second

    def delete(self, records: Iterable[Deletable], checkpoint: Callable[[], None]) -> Outcome:
        ((_, outcome),) = self.delete_each([(None, records)], checkpoint)
        return outcome

    def delete_each(
        self, lots: Iterable[tuple[T, Iterable[Deletable]]], checkpoint: Callable[[], None]
    ) -> Generator[tuple[T, Outcome], None, None]:
        """Delete canonical paths lot by lot; yield each lot's name and outcome when all its keys have one. A lot starts
        when the lot before it is sent. `checkpoint` is called before each batch and while waiting, and stops the work
        by raising. No delete is in flight after this ends, raises or is closed."""
        waiting = WaitingBatches(lots)
        in_flight: dict[Future[BatchResult], Batch[T]] = {}
        self._accepted_at = self._now()
        try:
            while waiting or in_flight:
                checkpoint()
                delay = self._seconds_to_next(waiting, in_flight)
                if delay is None or (delay > 0 and in_flight):
                    longest = self._policy.checkpoint_seconds
                    timeout = longest if delay is None else min(delay, longest)
                    for future in wait(in_flight, timeout=timeout, return_when=FIRST_COMPLETED).done:
                        waiting.put(self._record(in_flight.pop(future), future.result()))
                    if self._now() - self._accepted_at > self._policy.patience:
                        # At the lowest rate it would take hours to have the rest refused too.
                        for batch in waiting.drain(self._policy.batch):
                            batch.failed(dict.fromkeys(batch.sizes, self._refusal))
                    yield from waiting.finished()
                    continue
                while delay > 0:
                    self._sleep(min(delay, self._policy.checkpoint_seconds))
                    delay -= self._policy.checkpoint_seconds
                    checkpoint()
                now = self._now()
                batch = self._ours(waiting.take(self._rate.batch(self._policy.batch), now))
                if not batch.sizes:
                    yield from waiting.finished()
                    continue
                self._rate.sent(len(batch.sizes), now)
                in_flight[self._pool.submit(self._send, batch)] = batch
            yield from waiting.finished()
        finally:
            wait(in_flight)

    def _seconds_to_next(self, waiting: WaitingBatches[T], in_flight: Sized) -> float | None:
        """Return the seconds until the next batch, None if an answer or a free thread is needed first."""
        if not waiting or len(in_flight) >= self._policy.threads:
            return None
        now = self._now()
        return max(self._rate.wait(now), waiting.not_before() - now)

    def _send(self, batch: Batch[T]) -> BatchResult:
        """Delete a batch. A key with a final or repeated error counts as deleted if it does not exist."""
        result = self._store.delete(batch.bucket, tuple(batch.sizes))
        absent: set[str] = set()
        present = 0
        for failure in result.failed:
            final = (
                failure.code not in TRANSIENT
                or batch.codes.get(failure.key) == failure.code
                or failure.code in self._of_absent
            )
            if final and failure.key in batch.sizes and failure.code not in NOT_OF_KEY:
                try:
                    exists = self._store.exists(ObjectLocation(batch.bucket, failure.key))
                except ObjectStoreError:
                    break
                if not exists:
                    absent.add(failure.key)
                    self._of_absent.add(failure.code)
                present = present + 1 if exists else 0
                if present == _PRESENT_IN_A_ROW:
                    break
        if not absent:
            return result
        return replace(
            result,
            deleted=(*result.deleted, *absent),
            absent=(*result.absent, *absent),
            failed=tuple(failure for failure in result.failed if failure.key not in absent),
        )

    def _ours(self, batch: Batch[T]) -> Batch[T]:
        """Record files at foreign locations as not deleted, and return the rest. Plans contain such files only if the
        setting is newer."""
        foreign, bucket = self._policy.foreign, batch.bucket
        theirs = {key for key in batch.sizes if foreign.contain(uri_of(bucket, key))} if foreign.uris else None
        if not theirs:
            return batch
        batch.failed(dict.fromkeys(theirs, FOREIGN_LOCATION))
        return replace(batch, sizes={key: size for key, size in batch.sizes.items() if key not in theirs})

    def _record(self, batch: Batch[T], result: BatchResult) -> Batch[T] | None:
        """Record the store's answer for each key, and return the keys to retry."""
        left = batch.deleted(result)
        answered = {failed.key: failed.code for failed in result.failed}
        codes = {key: answered.get(key, "NoAnswer") for key in left}
        throttled = any(code in THROTTLED for code in answered.values())
        now = self._now()
        self._adapt(len(batch.sizes) - len(left), codes, throttled=throttled, now=now)
        policy = self._policy
        tries, most = (batch.throttled, policy.throttled_tries) if throttled else (batch.tries, policy.tries)
        again = {key: size for key, size in left.items() if tries + 1 < most and codes[key] in TRANSIENT}
        batch.failed({key: codes[key] for key in left if key not in again})
        return self._retry(batch, again, codes, throttled=throttled, now=now) if again else None

    def _adapt(self, deleted: int, codes: Mapping[str, str], *, throttled: bool, now: float) -> None:
        refused = not deleted and all(code in STORE_FAILURES for code in codes.values())
        self._rate.answered(deleted, now, throttled=throttled or refused)
        if refused:
            self._refusal = next(iter(codes.values()))
        else:
            self._accepted_at = now

    def _retry(
        self, batch: Batch[T], sizes: dict[str, int], codes: Mapping[str, str], *, throttled: bool, now: float
    ) -> Batch[T]:
        # Throttling already slows the rate down.
        failures = 1 if throttled else batch.tries + 1
        pause = exponential(failures, self._policy.pause, self._policy.longest_pause)
        return replace(
            batch,
            sizes=sizes,
            tries=batch.tries + (not throttled),
            throttled=batch.throttled + throttled,
            not_before=now + pause,
            codes=codes,
        )
