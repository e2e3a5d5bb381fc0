"""Deleting the keys of chunks: batches, threads, an adaptive rate, and an account of every single key.

A key is deleted when the store said so for that key, and not before; an absent one is deleted (S3 `DeleteObjects`).
What the store refuses is retried when the reason can pass, and is kept for the account when it cannot.

The calling thread decides when the next batch goes, the pool's threads only send: nothing waits for its turn where it
could not be called back, so being told to stop takes no longer than the batches under way. Nor does a chunk wait for
the last answer about the one before it.
"""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TypeVar

from delegation.backoff import exponential
from delegation.storage.base import BatchResult, Deletable, ObjectStore
from delegation.storage.lots import PASSING, THROTTLED, TROUBLE, Batch, Outcome, WaitingBatches
from delegation.storage.rate import AdaptiveRate, RatePolicy

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    """At most `batch` keys a call (up to 1,000), `threads` calls at a time, tries per key, seconds between tries.

    A low rate makes batches smaller. `checkpoint_seconds` is the longest time between two checkpoints. After `patience`
    seconds in which the store only throttled, failed or did not answer, the rest is left to a later attempt.
    """

    batch: int = 1_000
    threads: int = 16
    tries: int = 8
    throttled_tries: int = 40
    pause: float = 0.1
    longest_pause: float = 5.0
    checkpoint_seconds: float = 1.0
    patience: float = 120.0
    rate: RatePolicy = field(default_factory=RatePolicy)

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= 1_000:
            raise ValueError("a batch holds 1 to 1,000 keys (S3 DeleteObjects)")
        if self.threads < 1 or self.tries < 1 or self.throttled_tries < 1:
            raise ValueError("threads and tries are at least 1")


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

    def __exit__(self, *_: object) -> None:
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
        waiting = WaitingBatches(lots)
        running: dict[Future[BatchResult], Batch[T]] = {}
        self._taken_at = self._now()
        try:
            while waiting or running:
                checkpoint()
                delay = self._until_next(waiting, running)
                if delay is None or (delay > 0 and running):
                    longest = self._policy.checkpoint_seconds
                    timeout = longest if delay is None else min(delay, longest)
                    for future in wait(running, timeout=timeout, return_when=FIRST_COMPLETED).done:
                        waiting.put(self._account(running.pop(future), future.result()))
                    if self._now() - self._taken_at > self._policy.patience:
                        # At the lowest rate the rest would take hours, only to be refused.
                        for batch in waiting.give_up(self._policy.batch):
                            batch.failed(dict.fromkeys(batch.sizes, self._refusal))
                    yield from waiting.finished()
                    continue
                while delay > 0:
                    self._sleep(min(delay, self._policy.checkpoint_seconds))
                    delay -= self._policy.checkpoint_seconds
                    checkpoint()
                now = self._now()
                batch = waiting.take(self._rate.batch(self._policy.batch), now)
                self._rate.sent(len(batch.sizes), now)
                running[self._pool.submit(self._store.delete, batch.bucket, tuple(batch.sizes))] = batch
            yield from waiting.finished()
        finally:
            wait(running)

    def _until_next(self, waiting: WaitingBatches[T], running: Sized) -> float | None:
        """Seconds until the next batch may go; None while only an answer can bring one, or a free thread."""
        if not waiting or len(running) >= self._policy.threads:
            return None
        now = self._now()
        return max(self._rate.wait(now), waiting.not_before() - now)

    def _account(self, batch: Batch[T], result: BatchResult) -> Batch[T] | None:
        """Count what the store answered for each key; returns the keys that are to be sent again."""
        left = batch.deleted(result)
        answered = {failed.key: failed.code for failed in result.failed}
        codes = {key: answered.get(key, "NoAnswer") for key in left}
        throttled = any(code in THROTTLED for code in answered.values())
        now = self._now()
        self._adapt(len(batch.sizes) - len(left), codes, throttled=throttled, now=now)
        policy = self._policy
        tries, most = (batch.throttled, policy.throttled_tries) if throttled else (batch.tries, policy.tries)
        again = {key: size for key, size in left.items() if tries + 1 < most and codes[key] in PASSING}
        batch.failed({key: codes[key] for key in left if key not in again})
        return self._repeated(batch, again, throttled=throttled, now=now) if again else None

    def _adapt(self, deleted: int, codes: Mapping[str, str], *, throttled: bool, now: float) -> None:
        """Let the rate follow an answer: how many keys were deleted, and the codes of those that were not."""
        refused = not deleted and all(code in TROUBLE for code in codes.values())
        self._rate.answered(deleted, now, throttled=throttled or refused)
        if refused:
            self._refusal = next(iter(codes.values()))
        else:
            self._taken_at = now

    def _repeated(self, batch: Batch[T], sizes: dict[str, int], *, throttled: bool, now: float) -> Batch[T]:
        # The rate already slows down what is throttled.
        failures = 1 if throttled else batch.tries + 1
        pause = exponential(failures, self._policy.pause, self._policy.longest_pause)
        return replace(
            batch,
            sizes=sizes,
            tries=batch.tries + (not throttled),
            throttled=batch.throttled + throttled,
            not_before=now + pause,
        )
