"""Deleting the keys of a chunk: batches, threads, an adaptive rate, and an account of every single key.

A key is deleted when the store said so for that key, and not before; an absent one is deleted (S3 `DeleteObjects`).
What the store refuses is retried when the reason can pass, and is kept for the account when it cannot.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
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
    """`batch` keys a call (at most 1,000), `threads` calls at a time, tries per key, seconds between tries."""

    batch: int = 250
    threads: int = 16
    tries: int = 8
    throttled_tries: int = 40
    pause: float = 0.1
    longest_pause: float = 5.0
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
        self._pool = ThreadPoolExecutor(policy.threads, thread_name_prefix="delete")

    def __enter__(self) -> "Deleter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def keys_per_second(self) -> float:
        return self._rate.keys_per_second

    def delete(self, records: Iterable[Record], checkpoint: Callable[[], None]) -> Outcome:
        """Delete canonical paths; `checkpoint` is called before each batch and ends it all by raising.

        Batches already sent are waited for even then, so that no delete is on its way when this returns or raises.
        """
        outcome = Outcome()
        waiting = deque(_batches(records, self._policy.batch))
        running: dict[Future[BatchResult], _Batch] = {}
        stop = threading.Event()
        try:
            while waiting or running:
                while waiting and len(running) < self._policy.threads:
                    checkpoint()
                    batch = waiting.popleft()
                    running[self._pool.submit(self._send, batch, stop)] = batch
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    again = self._account(running.pop(future), future.result(), outcome)
                    if again is not None:
                        waiting.append(again)
        except BaseException:
            stop.set()
            raise
        finally:
            wait(running)
        return outcome

    def _send(self, batch: _Batch, stop: threading.Event) -> BatchResult:
        now = self._now()
        delay = max(self._rate.reserve(len(batch.sizes), now), batch.not_before - now)
        if delay > 0:
            self._sleep(delay)
        if stop.is_set():
            return BatchResult((), ())
        return self._store.delete(batch.bucket, tuple(batch.sizes))

    def _account(self, batch: _Batch, result: BatchResult, outcome: Outcome) -> _Batch | None:
        """Book what the store said; the answer is what has to be tried again."""
        outcome.markers = outcome.markers or result.markers
        left = dict(batch.sizes)
        for key in result.deleted:
            size = left.pop(key, None)
            if size is not None:
                outcome.files += 1
                outcome.bytes += size
        codes = {failure.key: failure.code for failure in result.failed}
        throttled = any(code in THROTTLED for code in codes.values())
        if throttled:
            self._rate.slowed_down(self._now())
        elif result.deleted:
            self._rate.succeeded(len(result.deleted))
        again: dict[str, int] = {}
        for key, size in left.items():
            code = codes.get(key, "NoAnswer")
            if code in PASSING and self._may_try_again(batch, throttled=throttled):
                again[key] = size
            else:
                outcome.failures.append(Failure(uri_of(batch.bucket, key), code))
        if not again:
            return None
        pause = min(self._policy.longest_pause, self._policy.pause * 2 ** min(batch.tries + batch.throttled, 16))
        return _Batch(
            batch.bucket,
            again,
            tries=batch.tries + (not throttled),
            throttled=batch.throttled + throttled,
            not_before=self._now() + pause,
        )

    def _may_try_again(self, batch: _Batch, *, throttled: bool) -> bool:
        if throttled:
            return batch.throttled + 1 < self._policy.throttled_tries
        return batch.tries + 1 < self._policy.tries


def _batches(records: Iterable[Record], size: int) -> Iterator[_Batch]:
    """Batches of one bucket each; sorted records come bucket by bucket."""
    keys: dict[str, int] = {}
    current = ""
    for record in records:
        bucket, key = split(record.path)
        if keys and (bucket != current or len(keys) >= size):
            yield _Batch(current, keys)
            keys = {}
        current = bucket
        keys[key] = record.size
    if keys:
        yield _Batch(current, keys)


def sample(failures: Sequence[Failure], limit: int) -> tuple[tuple[str, str], ...]:
    return tuple((failure.path, failure.code) for failure in failures[:limit])
