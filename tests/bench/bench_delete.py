"""Deletes a second against a store that takes no more than so many, from one process and from several.

    PYTHONPATH=functions:. python tests/bench/bench_delete.py [--keys N] [--limit N] [--rounds N]

The store is a token bucket in shared memory with 20 ms of latency: a batch that it has not the tokens for is answered
with SlowDown for every key, as S3 does. It measures our rate control (`purge.rate`, `purge.delete`), not boto3. Medians
of several rounds; `of the limit` counts from the first batch to the last answer, finding the rate included.
"""

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from delegation.purge.delete import DeletePolicy, Deleter
from delegation.purge.locations import ObjectLocation
from delegation.purge.objectstore import BatchResult, KeyFailure
from delegation.purge.sorting import Record

LATENCY = 0.02


class Throttled:
    """An ObjectStore whose tokens are shared by all processes; `level` is (tokens, time of the last look)."""

    def __init__(self, level: "Sequence[Any]", lock: Any, limit: float) -> None:
        self._level, self._lock, self._limit = level, lock, limit

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        time.sleep(LATENCY)
        with self._lock:
            now = time.monotonic()
            tokens = min(self._limit, self._level[0] + (now - self._level[1]) * self._limit)
            taken = tokens >= len(keys)
            self._level[0], self._level[1] = tokens - len(keys) * taken, now  # type: ignore[index]
        if taken:
            return BatchResult(tuple(keys))
        return BatchResult((), tuple(KeyFailure(key, "SlowDown") for key in keys))

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        raise NotImplementedError

    def exists(self, location: ObjectLocation) -> bool:
        raise NotImplementedError

    def probe_delete(self, prefix: str) -> str | None:
        raise NotImplementedError

    def versioned(self, bucket: str) -> bool | None:
        raise NotImplementedError


def purge(store: Throttled, part: int, parts: int, keys: int, left: "Synchronized[int]") -> None:
    """What one executor does: its share of the keys, beginning with its share of the rate, chunk after chunk."""
    policy = DeletePolicy()
    policy = replace(policy, rate=replace(policy.rate, start=policy.rate.start / parts))
    with Deleter(store, policy) as deleter:
        for first in range(0, keys, 10_000):
            numbers = range(first, min(first + 10_000, keys))
            outcome = deleter.delete([Record(f"s3://b/{part}/{n:09d}", 8, 1) for n in numbers], lambda: None)
            with left.get_lock():
                left.value += len(outcome.failures)


def measure(processes: int, keys: int, limit: float) -> tuple[float, int]:
    """(keys a second, keys left)."""
    context = multiprocessing.get_context("fork")
    level, lock, left = context.Array("d", [0.0, time.monotonic()], lock=False), context.Lock(), context.Value("l", 0)
    store = Throttled(level, lock, limit)
    workers = [
        context.Process(target=purge, args=(store, part, processes, keys // processes, left))
        for part in range(processes)
    ]
    started = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return keys / (time.monotonic() - started), left.value


def main() -> None:
    parser = argparse.ArgumentParser(description="Deletes a second against a throttled store.")
    parser.add_argument("--keys", type=int, default=70_000)
    parser.add_argument("--limit", type=float, default=3_500.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for processes in (1, 4):
        rounds = [measure(processes, options.keys, options.limit) for _ in range(options.rounds)]
        rate = statistics.median(rate for rate, _ in rounds)
        left = max(left for _, left in rounds)
        sys.stdout.write(
            f"{processes} process(es): {rate:,.0f} keys/s, {rate / options.limit:.1%} of the limit, {left} keys left\n"
        )


if __name__ == "__main__":
    main()
