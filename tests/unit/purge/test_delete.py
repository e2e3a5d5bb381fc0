"""Deleting: every key accounted for, retries by kind, and a rate that finds the store's limit."""

from collections.abc import Callable, Sequence
from threading import Lock

import pytest

from delegation.purge.attempt import LeaseLost
from delegation.purge.delete import DeletePolicy, Deleter
from delegation.purge.memory import MemoryObjectStore
from delegation.purge.objectstore import BatchResult, KeyFailure
from delegation.purge.rate import AdaptiveRate, RatePolicy
from delegation.purge.sorting import Record

QUICK = DeletePolicy(batch=4, threads=2, pause=0.0, longest_pause=0.0)


def records(count: int, bucket: str = "b") -> list[Record]:
    return [Record(f"s3://{bucket}/k{number:05d}", 8, 10) for number in range(count)]


def store_with(files: Sequence[Record], **options: object) -> MemoryObjectStore:
    objects = {tuple(file.path[5:].split("/", 1)): b"x" for file in files}
    return MemoryObjectStore(objects, **options)  # type: ignore[arg-type]


def nothing() -> None:
    """A checkpoint that lets everything pass."""


def deleter(store: MemoryObjectStore, policy: DeletePolicy = QUICK) -> Deleter:
    return Deleter(store, policy, now=lambda: 0.0, sleep=lambda _seconds: None)


def test_all_gone_and_counted_absent_ones_too() -> None:
    files = [*records(10, "a"), *records(9, "b")]
    store = store_with(files[3:])
    with deleter(store) as run:
        outcome = run.delete(files, nothing)
    assert store.objects == {}
    assert (outcome.files, outcome.bytes, outcome.failures) == (19, 190, [])


@pytest.mark.parametrize(
    "code", ["SlowDown", "InternalError", "ServiceUnavailable", "ConnectionFailed", "ExpiredToken"]
)
def test_what_can_pass_is_tried_again(code: str) -> None:
    files = records(10)
    store = store_with(files, refuse=lambda _bucket, key, nth: code if key.endswith("3") and nth < 4 else None)
    with deleter(store) as run:
        outcome = run.delete(files, nothing)
    assert store.objects == {}
    assert (outcome.files, outcome.failures) == (10, [])
    assert store.tries["b", "k00003"] == 4
    assert store.tries["b", "k00004"] == 1


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidRequest", "SomethingNew"])
def test_what_cannot_pass_is_not_tried_again(code: str) -> None:
    files = records(10)
    store = store_with(files, refuse=lambda _bucket, key, _nth: code if key.endswith(("3", "7")) else None)
    with deleter(store) as run:
        outcome = run.delete(files, nothing)
    assert sorted((failure.path, failure.code) for failure in outcome.failures) == [
        ("s3://b/k00003", code),
        ("s3://b/k00007", code),
    ]
    assert not any(failure.passing for failure in outcome.failures)
    assert (outcome.files, outcome.bytes) == (8, 80)
    assert store.tries["b", "k00003"] == 1


def test_tries_end_and_the_failure_is_known_to_be_passing() -> None:
    store = store_with(records(3), refuse=lambda _bucket, _key, _nth: "InternalError")
    with deleter(store) as run:
        outcome = run.delete(records(3), nothing)
    assert len(outcome.failures) == 3
    assert all(failure.passing for failure in outcome.failures)
    assert store.tries["b", "k00000"] == QUICK.tries


class Silent(MemoryObjectStore):
    """A store that answers for other keys than it was asked for."""

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        super().delete(bucket, keys)
        return BatchResult(("unasked",), (KeyFailure("never-asked", "AccessDenied"),))


def test_silence_is_not_success() -> None:
    store = Silent({("b", "k00000"): b""})
    with deleter(store) as run:
        outcome = run.delete(records(1), nothing)
    assert outcome.files == 0
    assert [(failure.path, failure.code) for failure in outcome.failures] == [("s3://b/k00000", "NoAnswer")]


def test_a_checkpoint_that_raises_stops_before_the_next_batch() -> None:
    files = records(40)
    store = store_with(files)
    passed = []

    def checkpoint() -> None:
        passed.append(None)
        if len(passed) > 3:
            raise LeaseLost("another attempt holds the task")

    with deleter(store, DeletePolicy(batch=4, threads=1)) as run:
        with pytest.raises(LeaseLost):
            run.delete(files, checkpoint)
        assert len(store.objects) == 40 - 3 * 4
        assert run.delete(files, nothing).files == 40


@pytest.mark.parametrize(
    "numbers", [{"batch": 0}, {"batch": 1001}, {"threads": 0}, {"tries": 0}, {"throttled_tries": 0}]
)
def test_numbers_that_cannot_work_are_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="1"):
        DeletePolicy(**numbers)  # type: ignore[arg-type]


def test_delete_markers_are_noticed() -> None:
    store = store_with(records(2), versioned_buckets=["b"])
    with deleter(store) as run:
        assert run.delete(records(2), nothing).markers


class Limited:
    """A store that takes `limit` keys a second of a virtual clock and answers SlowDown beyond."""

    def __init__(self, limit: float, clock: "Clock") -> None:
        self.limit, self.clock = limit, clock
        self.tokens = limit
        self.at = 0.0
        self.done = 0
        self.refused = 0

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        del bucket
        self.tokens = min(self.limit, self.tokens + (self.clock.now - self.at) * self.limit)
        self.at = self.clock.now
        if self.tokens < len(keys):
            self.refused += 1
            return BatchResult((), tuple(KeyFailure(key, "SlowDown") for key in keys))
        self.tokens -= len(keys)
        self.done += len(keys)
        return BatchResult(tuple(keys))


class Clock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        self._lock = Lock()

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds


def test_the_rate_settles_just_below_the_limit_and_leaves_nothing() -> None:
    clock = Clock()
    store = Limited(3500, clock)
    policy = DeletePolicy(batch=250, threads=1, pause=0.0, longest_pause=0.0)
    with Deleter(store, policy, now=clock.read, sleep=clock.sleep) as run:  # type: ignore[arg-type]
        outcome = run.delete(records(200_000), nothing)
    assert (outcome.files, outcome.failures) == (200_000, [])
    assert store.done / clock.now > 0.85 * 3500
    assert store.refused < 60


def test_several_processes_share_a_limit_without_talking() -> None:
    now = 0.0
    rates = [AdaptiveRate(RatePolicy(), now=now) for _ in range(4)]
    due = [0.0] * 4
    tokens, at, done = 3500.0, 0.0, 0
    while now < 120:
        turn = due.index(min(due))
        now = max(now, due[turn])
        tokens, at = min(3500.0, tokens + (now - at) * 3500), now
        if tokens >= 250:
            tokens -= 250
            done += 250
            rates[turn].succeeded(250)
        else:
            rates[turn].slowed_down(now)
        due[turn] = now + rates[turn].reserve(250, now) + 1e-9
    assert done / now > 0.85 * 3500


def test_the_rate_falls_at_most_once_a_second_and_never_to_nothing() -> None:
    rate = AdaptiveRate(RatePolicy(), now=0.0)
    for _ in range(10):
        rate.slowed_down(0.5)
    assert rate.keys_per_second == pytest.approx(1400)
    for second in range(1, 60):
        rate.slowed_down(second + 0.5)
    assert rate.keys_per_second == RatePolicy().floor


@pytest.mark.parametrize(("slowed", "gain"), [(False, 2000.0), (True, 200.0)], ids=["searching", "settled"])
def test_growth_in_a_second_of_good_batches(slowed: bool, gain: float) -> None:
    rate = AdaptiveRate(RatePolicy(decrease=1.0), now=0.0)
    if slowed:
        rate.slowed_down(0.0)
    for _ in range(8):  # 8 batches of 250 at 2,000 keys/s are one second
        rate.succeeded(250)
    assert rate.keys_per_second == pytest.approx(2000 + gain, rel=0.01)


def test_reserving_spaces_batches_by_the_rate() -> None:
    rate = AdaptiveRate(RatePolicy(start=1000.0), now=5.0)
    waits: list[Callable[[], float] | float] = [rate.reserve(250, 5.0) for _ in range(3)]
    assert waits == [0.0, 0.25, 0.5]
    assert rate.reserve(250, 9.0) == 0.0
