"""Deleting the keys of chunks: batches, threads, an adaptive rate, and an account of every single key.

A key is deleted when the store said so for that key, and not before; an absent one is deleted (S3 `DeleteObjects`).
What the store refuses is retried when the reason can pass, and is kept for the account when it cannot.

The calling thread decides when the next batch goes, the pool's threads only send: nothing waits for its turn where it
could not be called back, so being told to stop takes no longer than the batches under way. Nor does a chunk wait for
the last answer about the one before it.
"""

import heapq
import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Generic, TypeVar

from delegation.backoff import exponential
from delegation.storage.base import BatchResult, Deletable, ObjectStore
from delegation.storage.locations import split, uri_of
from delegation.storage.rate import AdaptiveRate, RatePolicy

T = TypeVar("T")

# S3 error codes (and ours) after which the same delete may succeed. Everything else is for a person.
THROTTLED = frozenset(
    {"SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "RequestLimitExceeded", "503"}
)
PASSING = THROTTLED | frozenset(
    {
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "ExpiredToken",
        "ConnectionFailed",
        "NoAnswer",
        "500",
    }
)
_TROUBLE = PASSING - {"ExpiredToken"}
"""What a store says that is short of something; the token is ours to renew."""


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    """At most `batch` keys a call (up to 1,000), `threads` calls at a time, tries per key, seconds between tries.

    The rate makes batches smaller while it is low. `look_up` is the longest time between two checkpoints, in seconds;
    a store that has only asked to slow down, failed or not answered for `patience` seconds is left for a later attempt,
    lot after lot.
    """

    batch: int = 1_000
    threads: int = 16
    tries: int = 8
    throttled_tries: int = 40
    pause: float = 0.1
    longest_pause: float = 5.0
    look_up: float = 1.0
    patience: float = 120.0
    rate: RatePolicy = field(default_factory=RatePolicy)

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= 1_000:
            raise ValueError("a batch holds 1 to 1,000 keys (S3 DeleteObjects)")
        if self.threads < 1 or self.tries < 1 or self.throttled_tries < 1:
            raise ValueError("threads and tries are at least 1")


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
    markers: bool = False


@dataclass(slots=True)
class _Lot(Generic[T]):
    """Files whose outcome is wanted by itself; `unknown` of those taken from it so far have none yet."""

    name: T
    outcome: Outcome = field(default_factory=Outcome)
    unknown: int = 0
    taken_whole: bool = False


@dataclass(slots=True)
class _Batch(Generic[T]):
    lot: _Lot[T]
    bucket: str
    sizes: dict[str, int]
    tries: int = 0
    throttled: int = 0
    not_before: float = 0.0


class Deleter:
    """One per process, for any number of chunks; as a context manager it ends its threads.

    `now` is a monotonic clock and `sleep` waits, both in seconds.
    """

    def __init__(
        self,
        store: ObjectStore,
        policy: DeletePolicy,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._policy = policy
        self._now = now
        self._sleep = sleep
        self._rate = AdaptiveRate(policy.rate, now=now())
        self._taken_at = now()
        self._refusal = "SlowDown"
        self._pool = ThreadPoolExecutor(policy.threads, thread_name_prefix="delete")

    def __enter__(self) -> "Deleter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def keys_per_second(self) -> float:
        return self._rate.keys_per_second

    def delete(self, records: Iterable[Deletable], checkpoint: Callable[[], None]) -> Outcome:
        """`delete_each` of a single lot."""
        ((_, outcome),) = self.delete_each([(None, records)], checkpoint)
        return outcome

    def delete_each(
        self, lots: Iterable[tuple[T, Iterable[Deletable]]], checkpoint: Callable[[], None]
    ) -> Generator[tuple[T, Outcome], None, None]:
        """Delete canonical paths lot by lot; each is given back with its outcome once every key of it has one.

        A lot is asked for when all of the one before it is sent, not when all of that is answered. `checkpoint` is
        called before each batch and while waiting, and ends all by raising. Batches already sent are waited for even
        then, so that no delete is on its way when this ends, raises or is closed.
        """
        waiting = _Waiting(lots)
        running: dict[Future[BatchResult], _Batch[T]] = {}
        self._taken_at = self._now()
        try:
            while waiting or running:
                checkpoint()
                delay = self._until_next(waiting, running)
                if delay is None or (delay > 0 and running):
                    longest = self._policy.look_up if delay is None else min(delay, self._policy.look_up)
                    for future in wait(running, timeout=longest, return_when=FIRST_COMPLETED).done:
                        waiting.put(self._account(running.pop(future), future.result()))
                    if self._now() - self._taken_at > self._policy.patience:
                        self._leave(waiting)
                    yield from waiting.finished()
                    continue
                while delay > 0:
                    self._sleep(min(delay, self._policy.look_up))
                    delay -= self._policy.look_up
                    checkpoint()
                now = self._now()
                batch = waiting.take(self._rate.batch(self._policy.batch), now)
                self._rate.sent(len(batch.sizes), now)
                running[self._pool.submit(self._store.delete, batch.bucket, tuple(batch.sizes))] = batch
            yield from waiting.finished()
        finally:
            wait(running)

    def _until_next(self, waiting: "_Waiting[T]", running: Sized) -> float | None:
        """Seconds until the next batch may go; None while only an answer can bring one, or a free thread."""
        if not waiting or len(running) >= self._policy.threads:
            return None
        now = self._now()
        return max(self._rate.wait(now), waiting.not_before() - now)

    def _account(self, batch: _Batch[T], result: BatchResult) -> _Batch[T] | None:
        """Book what the store said; the answer is what has to be tried again."""
        outcome, sizes = batch.lot.outcome, batch.sizes
        outcome.markers = outcome.markers or result.markers
        deleted = sizes.keys() & set(result.deleted)
        gone = len(deleted)
        left = {} if gone == len(sizes) else {key: size for key, size in sizes.items() if key not in deleted}
        outcome.files += gone
        outcome.bytes += sum(sizes.values()) - sum(left.values())
        batch.lot.unknown -= gone
        said = {failure.key: failure.code for failure in result.failed}
        codes = {key: said.get(key, "NoAnswer") for key in left}
        throttled = any(code in THROTTLED for code in said.values())
        now = self._now()
        refused = not gone and all(code in _TROUBLE for code in codes.values())
        self._rate.answered(gone, now, throttled=throttled or refused)
        if refused:
            self._refusal = next(iter(codes.values()))
        else:
            self._taken_at = now
        again: dict[str, int] = {}
        for key, size in left.items():
            code = codes[key]
            if code in PASSING and self._may_try_again(batch, throttled=throttled):
                again[key] = size
            else:
                outcome.failures.append(Failure(uri_of(batch.bucket, key), code))
                batch.lot.unknown -= 1
        if not again:
            return None
        # The rate already slows down what is throttled.
        failures = 1 if throttled else batch.tries + 1
        pause = exponential(failures, self._policy.pause, self._policy.longest_pause)
        return _Batch(
            batch.lot,
            batch.bucket,
            again,
            tries=batch.tries + (not throttled),
            throttled=batch.throttled + throttled,
            not_before=now + pause,
        )

    def _leave(self, waiting: "_Waiting[T]") -> None:
        """Book what waits as refused: at the lowest rate the rest would take hours, and only to be refused."""
        for batch in waiting.give_up(self._policy.batch):
            failed = (Failure(uri_of(batch.bucket, key), self._refusal) for key in batch.sizes)
            batch.lot.outcome.failures.extend(failed)
            batch.lot.unknown -= len(batch.sizes)

    def _may_try_again(self, batch: _Batch[T], *, throttled: bool) -> bool:
        if throttled:
            return batch.throttled + 1 < self._policy.throttled_tries
        return batch.tries + 1 < self._policy.tries


class _Waiting(Generic[T]):
    """What is to be sent: batches to be tried again once their pause is over, and before that what was never tried."""

    def __init__(self, lots: Iterable[tuple[T, Iterable[Deletable]]]) -> None:
        self._lots = iter(lots)
        self._open: list[_Lot[T]] = []
        self._fresh: Iterator[Deletable] = iter(())
        self._next: Deletable | None = None
        self._again: list[tuple[float, int, _Batch[T]]] = []
        self._order = itertools.count()

    def __bool__(self) -> bool:
        return self._some_fresh() or bool(self._again)

    def not_before(self) -> float:
        """When the next batch may go, on the clock of the batches; only if there is one."""
        return 0.0 if self._next is not None else self._again[0][0]

    def put(self, batch: _Batch[T] | None) -> None:
        if batch is not None:
            heapq.heappush(self._again, (batch.not_before, next(self._order), batch))

    def take(self, most: int, now: float) -> _Batch[T]:
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

    def give_up(self, most: int) -> Iterator[_Batch[T]]:
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
            self._open.append(_Lot(name))
            self._fresh = iter(records)
            self._step()
        return True

    def _step(self) -> None:
        self._next = next(self._fresh, None)
        self._open[-1].taken_whole = self._next is None

    def _new(self, most: int) -> _Batch[T]:
        """Sorted records come bucket by bucket."""
        lot = self._open[-1]
        batch = _Batch(lot, "", {})
        while self._next is not None and len(batch.sizes) < most:
            bucket, key = split(self._next.path)
            if batch.sizes and bucket != batch.bucket:
                break
            batch.bucket = bucket
            batch.sizes[key] = self._next.size
            self._step()
        lot.unknown += len(batch.sizes)
        return batch


def sample(failures: Sequence[Failure], limit: int) -> tuple[tuple[str, str], ...]:
    return tuple((failure.path, failure.code) for failure in failures[:limit])
