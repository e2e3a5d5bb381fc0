"""Deleting the keys of a chunk: batches, threads, an adaptive rate, and an account of every single key.

A key is deleted when the store said so for that key, and not before; an absent one is deleted (S3 `DeleteObjects`).
What the store refuses is retried when the reason can pass, and is kept for the account when it cannot.

The calling thread decides when the next batch goes, the pool's threads only send: nothing waits for its turn where it
could not be called back, so being told to stop takes no longer than the batches under way.
"""

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from types import TracebackType

from delegation.purge.locations import split, uri_of
from delegation.purge.objectstore import BatchResult, ObjectStore
from delegation.purge.rate import AdaptiveRate, RatePolicy
from delegation.purge.sorting import Record

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


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    """At most `batch` keys a call (up to 1,000), `threads` calls at a time, tries per key, seconds between tries.

    The rate makes batches smaller while it is low. `look_up` is the longest time between two checkpoints, in seconds;
    a store that only asks to slow down for `patience` seconds is left for a later attempt.
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
class _Batch:
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
        self._pool = ThreadPoolExecutor(policy.threads, thread_name_prefix="delete")

    def __enter__(self) -> "Deleter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def keys_per_second(self) -> float:
        return self._rate.keys_per_second

    def delete(self, records: Iterable[Record], checkpoint: Callable[[], None]) -> Outcome:
        """Delete canonical paths; `checkpoint` is called before each batch and while waiting, and ends all by raising.

        Batches already sent are waited for even then, so that no delete is on its way when this returns or raises.
        """
        outcome = Outcome()
        waiting = _Waiting(records)
        running: dict[Future[BatchResult], _Batch] = {}
        self._taken_at = self._now()
        try:
            while waiting or running:
                checkpoint()
                delay = self._until_next(waiting, running)
                if delay is None or (delay > 0 and running):
                    longest = self._policy.look_up if delay is None else min(delay, self._policy.look_up)
                    for future in wait(running, timeout=longest, return_when=FIRST_COMPLETED).done:
                        waiting.put(self._account(running.pop(future), future.result(), outcome))
                    if self._now() - self._taken_at > self._policy.patience:
                        self._leave(waiting, outcome)
                    continue
                while delay > 0:
                    self._sleep(min(delay, self._policy.look_up))
                    delay -= self._policy.look_up
                    checkpoint()
                now = self._now()
                batch = waiting.take(self._rate.batch(self._policy.batch), now)
                self._rate.sent(len(batch.sizes), now)
                running[self._pool.submit(self._store.delete, batch.bucket, tuple(batch.sizes))] = batch
        finally:
            wait(running)
        return outcome

    def _until_next(self, waiting: "_Waiting", running: Sized) -> float | None:
        """Seconds until the next batch may go; None while only an answer can bring one, or a free thread."""
        if not waiting or len(running) >= self._policy.threads:
            return None
        now = self._now()
        return max(self._rate.wait(now), waiting.not_before() - now)

    def _account(self, batch: _Batch, result: BatchResult, outcome: Outcome) -> _Batch | None:
        """Book what the store said; the answer is what has to be tried again."""
        outcome.markers = outcome.markers or result.markers
        left = dict(batch.sizes)
        gone = 0
        for key in result.deleted:
            size = left.pop(key, None)
            if size is not None:
                gone += 1
                outcome.bytes += size
        outcome.files += gone
        codes = {failure.key: failure.code for failure in result.failed}
        throttled = any(code in THROTTLED for code in codes.values())
        now = self._now()
        self._rate.answered(gone, now, throttled=throttled)
        if gone or not throttled:
            self._taken_at = now
        again: dict[str, int] = {}
        for key, size in left.items():
            code = codes.get(key, "NoAnswer")
            if code in PASSING and self._may_try_again(batch, throttled=throttled):
                again[key] = size
            else:
                outcome.failures.append(Failure(uri_of(batch.bucket, key), code))
        if not again:
            return None
        # The rate already slows down what is throttled.
        grown = self._policy.pause if throttled else self._policy.pause * 2 ** min(batch.tries, 16)
        pause = min(self._policy.longest_pause, grown)
        return _Batch(
            batch.bucket,
            again,
            tries=batch.tries + (not throttled),
            throttled=batch.throttled + throttled,
            not_before=now + pause,
        )

    def _leave(self, waiting: "_Waiting", outcome: Outcome) -> None:
        """Book what waits as throttled: at the lowest rate the rest would take hours, and only to be refused."""
        while waiting:
            batch = waiting.take(self._policy.batch, math.inf)
            outcome.failures.extend(Failure(uri_of(batch.bucket, key), "SlowDown") for key in batch.sizes)

    def _may_try_again(self, batch: _Batch, *, throttled: bool) -> bool:
        if throttled:
            return batch.throttled + 1 < self._policy.throttled_tries
        return batch.tries + 1 < self._policy.tries


class _Waiting:
    """What is to be sent: batches to be tried again once their pause is over, and before that what was never tried."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._fresh = iter(records)
        self._next = next(self._fresh, None)
        self._again: list[tuple[float, int, _Batch]] = []
        self._order = itertools.count()

    def __bool__(self) -> bool:
        return self._next is not None or bool(self._again)

    def not_before(self) -> float:
        """When the next batch may go, on the clock of the batches; only if there is one."""
        return 0.0 if self._next is not None else self._again[0][0]

    def put(self, batch: _Batch | None) -> None:
        if batch is not None:
            heapq.heappush(self._again, (batch.not_before, next(self._order), batch))

    def take(self, most: int, now: float) -> _Batch:
        """The next batch, of one bucket and at most so many keys; only if there is one."""
        if self._again and (self._next is None or self._again[0][0] <= now):
            _, _, batch = heapq.heappop(self._again)
            keys = iter(batch.sizes.items())
            first = dict(itertools.islice(keys, most))
            rest = dict(keys)
            if rest:
                self.put(replace(batch, sizes=rest))
            return replace(batch, sizes=first)
        return self._new(most)

    def _new(self, most: int) -> _Batch:
        """Sorted records come bucket by bucket."""
        batch = _Batch("", {})
        while self._next is not None and len(batch.sizes) < most:
            bucket, key = split(self._next.path)
            if batch.sizes and bucket != batch.bucket:
                break
            batch.bucket = bucket
            batch.sizes[key] = self._next.size
            self._next = next(self._fresh, None)
        return batch


def sample(failures: Sequence[Failure], limit: int) -> tuple[tuple[str, str], ...]:
    return tuple((failure.path, failure.code) for failure in failures[:limit])
