"""The deleter: an outcome for every key, retries by error code, and a rate that finds the store's limit."""

import threading
from collections.abc import Sequence

import pytest

from delegation.errors import RunHandedOver
from delegation.iceberg.paths import TableFile
from delegation.storage.base import BatchResult, KeyFailure
from delegation.storage.deleter import DeletePolicy, Deleter, RatePolicy
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import MemoryObjectStore
from delegation.tasks.errors import LeaseLost
from tests.kit.clocks import SleptSeconds

QUICK = DeletePolicy(batch=4, threads=2, pause=0.0, longest_pause=0.0)


def records(count: int, bucket: str = "b") -> list[TableFile]:
    return [TableFile(f"s3://{bucket}/k{number:05d}", 8, 10) for number in range(count)]


def store_with(files: Sequence[TableFile], **options: object) -> MemoryObjectStore:
    objects = {tuple(file.path[5:].split("/", 1)): b"x" for file in files}
    return MemoryObjectStore(objects, **options)  # type: ignore[arg-type]


def never_stop() -> None:
    """Never stop."""


def deleter(store: MemoryObjectStore, policy: DeletePolicy = QUICK) -> Deleter:
    return Deleter(store, policy, now=lambda: 0.0, sleep=lambda _seconds: None)


def test_present_and_absent_keys_are_deleted_and_counted() -> None:
    files = [*records(10, "a"), *records(9, "b")]
    store = store_with(files[3:])
    with deleter(store) as run:
        outcome = run.delete(files, never_stop)
    assert store.objects == {}
    assert (outcome.files, outcome.bytes, outcome.failures) == (19, 190, [])


@pytest.mark.parametrize(
    "code", ["SlowDown", "InternalError", "ServiceUnavailable", "ConnectionFailed", "ExpiredToken"]
)
def test_keys_refused_for_a_transient_reason_are_retried(code: str) -> None:
    files = records(10)
    store = store_with(files, refuse=lambda _bucket, key, nth: code if key.endswith("3") and nth < 4 else None)
    with deleter(store) as run:
        outcome = run.delete(files, never_stop)
    assert store.objects == {}
    assert (outcome.files, outcome.failures) == (10, [])
    assert store.tries["b", "k00003"] == 4
    assert store.tries["b", "k00004"] == 1


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidRequest", "SomethingNew"])
def test_keys_refused_permanently_are_not_retried(code: str) -> None:
    files = records(10)
    store = store_with(files, refuse=lambda _bucket, key, _nth: code if key.endswith(("3", "7")) else None)
    with deleter(store) as run:
        outcome = run.delete(files, never_stop)
    assert sorted((failure.path, failure.code) for failure in outcome.failures) == [
        ("s3://b/k00003", code),
        ("s3://b/k00007", code),
    ]
    assert not any(failure.transient for failure in outcome.failures)
    assert (outcome.files, outcome.bytes) == (8, 80)
    assert store.tries["b", "k00003"] == 1


def test_tries_end_and_the_failure_is_transient() -> None:
    store = store_with(records(3), refuse=lambda _bucket, _key, _nth: "InternalError")
    with deleter(store) as run:
        outcome = run.delete(records(3), never_stop)
    assert len(outcome.failures) == 3
    assert all(failure.transient for failure in outcome.failures)
    assert store.tries["b", "k00000"] == QUICK.tries


class Silent(MemoryObjectStore):
    """A store whose answers are about keys that were not sent."""

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        super().delete(bucket, keys)
        return BatchResult(("unasked",), (KeyFailure("never-asked", "AccessDenied"),))


def test_a_key_without_an_answer_is_not_deleted() -> None:
    store = Silent({("b", "k00000"): b""})
    with deleter(store) as run:
        outcome = run.delete(records(1), never_stop)
    assert outcome.files == 0
    assert [(failure.path, failure.code) for failure in outcome.failures] == [("s3://b/k00000", "NoAnswer")]


def test_a_checkpoint_that_raises_stops_before_the_next_batch() -> None:
    files = records(40)
    store = store_with(files)

    def checkpoint() -> None:
        if len(store.objects) <= 40 - 3 * 4:
            raise LeaseLost("t", attempt=1, current=2, status="RUNNING")

    with deleter(store, DeletePolicy(batch=4, threads=1)) as run:
        with pytest.raises(LeaseLost):
            run.delete(files, checkpoint)
        assert len(store.objects) == 40 - 3 * 4
        assert run.delete(files, never_stop).files == 40


@pytest.mark.parametrize(
    "numbers", [{"batch": 0}, {"batch": 1001}, {"threads": 0}, {"tries": 0}, {"throttled_tries": 0}]
)
def test_invalid_limits_are_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="1"):
        DeletePolicy(**numbers)  # type: ignore[arg-type]


def test_delete_markers_are_reported() -> None:
    store = store_with(records(2), versioned_buckets=["b"])
    with deleter(store) as run:
        assert run.delete(records(2), never_stop).delete_markers


class Limited:
    """A store that deletes `limit` keys per second of a virtual clock, and answers SlowDown beyond."""

    def __init__(self, limit: float, clock: SleptSeconds) -> None:
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


def test_the_rate_settles_close_to_the_limit_and_every_key_is_deleted() -> None:
    clock = SleptSeconds()
    store = Limited(3500, clock)
    policy = DeletePolicy(batch=250, threads=1, pause=0.0, longest_pause=0.0)
    with Deleter(store, policy, now=clock.read, sleep=clock.sleep) as run:  # type: ignore[arg-type]
        outcome = run.delete(records(200_000), never_stop)
    assert (outcome.files, outcome.failures) == (200_000, [])
    assert store.done / clock.now > 0.97 * 3500


def test_a_stop_while_the_store_throttles_takes_effect_within_one_checkpoint() -> None:
    clock = SleptSeconds()
    store = store_with(records(20_000), refuse=lambda _bucket, _key, _nth: "SlowDown")

    def checkpoint() -> None:
        if clock.now > 20:
            raise RunHandedOver("t")

    policy = DeletePolicy(threads=16)
    with Deleter(store, policy, now=clock.read, sleep=clock.sleep) as run, pytest.raises(RunHandedOver):
        run.delete(records(20_000), checkpoint)
    assert 20 < clock.now <= 20 + policy.checkpoint_seconds
    assert len(store.objects) == 20_000


@pytest.mark.parametrize("code", ["SlowDown", "InternalError", "ConnectionFailed", "NoAnswer"])
def test_a_store_that_only_refuses_is_left_to_a_later_attempt(code: str) -> None:
    clock = SleptSeconds()
    store = store_with(records(20_000), refuse=lambda _bucket, _key, _nth: code)
    policy = DeletePolicy(tries=1_000_000, throttled_tries=1_000_000)

    def checkpoint() -> None:
        assert clock.now < policy.patience + 10

    with Deleter(store, policy, now=clock.read, sleep=clock.sleep) as run:
        outcome = run.delete(records(20_000), checkpoint)
    assert len(outcome.failures) == len({failure.path for failure in outcome.failures}) == 20_000
    assert {failure.code for failure in outcome.failures} == {code}
    assert all(failure.transient for failure in outcome.failures)
    assert policy.patience < clock.now < policy.patience + 10


class Failing(MemoryObjectStore):
    """Fails every delete with `code` from key number `since` on, and counts the keys it received."""

    def __init__(self, objects: dict[tuple[str, str], bytes], code: str, since: int) -> None:
        super().__init__(objects)
        self._code, self._since = code, since
        self.sent = 0

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        self.sent += len(keys)
        if self.sent > self._since:
            return BatchResult((), tuple(KeyFailure(key, self._code) for key in keys))
        return super().delete(bucket, keys)


@pytest.mark.parametrize("code", ["SlowDown", "InternalError", "ConnectionFailed", "NoAnswer"])
def test_a_failing_store_is_not_overloaded(code: str) -> None:
    """A store that accepts nothing receives fewer and fewer keys, whatever its error code."""
    clock = SleptSeconds()
    files = records(100_000)
    store = Failing({("b", f"k{number:05d}"): b"" for number in range(100_000)}, code, since=20_000)
    with Deleter(store, DeletePolicy(), now=clock.read, sleep=clock.sleep) as run:
        lots = ((number, files[number : number + 10_000]) for number in range(0, 100_000, 10_000))
        ended = [outcome for _, outcome in run.delete_each(lots, never_stop)]
    assert sum(outcome.files + len(outcome.failures) for outcome in ended) == 100_000
    assert store.sent < 100_000


class Forgetful(MemoryObjectStore):
    """Answers `code` for a key that it does not have, as RustFS does; counts the looks."""

    looks = 0
    code = "InternalError"

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        absent = [key for key in keys if (bucket, key) not in self.objects]
        done = super().delete(bucket, [key for key in keys if key not in absent])
        return BatchResult(done.deleted, tuple(KeyFailure(key, self.code) for key in absent))

    def exists(self, location: ObjectLocation) -> bool:
        self.looks += 1
        return super().exists(location)


@pytest.mark.parametrize("code", ["InternalError", "NoAnswer", "Teapot"])
def test_absent_keys_count_as_deleted_whatever_the_store_answers_for_them(code: str) -> None:
    store = Forgetful({("b", f"k{number:05d}"): b"" for number in range(0, 20_000, 3)})
    store.code = code
    clock = SleptSeconds()
    with Deleter(store, DeletePolicy(threads=1), now=clock.read, sleep=clock.sleep) as run:
        outcome = run.delete(records(20_000), never_stop)
        assert run.keys_per_second > 1_000
    assert (outcome.files, outcome.failures, store.objects) == (20_000, [], {})
    assert store.looks == 20_000 - 6_667


def test_few_checks_are_made_for_keys_that_are_present_and_cannot_be_deleted() -> None:
    store = Forgetful(
        {("b", f"k{number:05d}"): b"" for number in range(5_000)}, refuse=lambda _bucket, _key, _nth: "AccessDenied"
    )
    with deleter(store, DeletePolicy(batch=1_000, threads=1, rate=RatePolicy(start=1e6))) as run:
        assert len(run.delete(records(5_000), never_stop).failures) == 5_000
    assert store.looks <= 5 * 20


def test_one_refused_batch_lowers_the_rate_once() -> None:
    policy = RatePolicy(start=2_000.0, search=0.0, grow=0.0, add_per_second=0.0)
    store = store_with(records(60), refuse=lambda _bucket, _key, nth: "InternalError" if nth == 1 else None)
    one = DeletePolicy(batch=60, threads=1, pause=0.0, rate=policy)
    with Deleter(store, one, now=lambda: 0.0, sleep=lambda _seconds: None) as run:
        assert run.delete(records(60), never_stop).failures == []
        assert run.keys_per_second == pytest.approx(2_000 * (1 - policy.decrease))


def test_one_failed_key_of_a_batch_does_not_lower_the_rate() -> None:
    policy = RatePolicy(start=2_000.0, search=0.0, grow=0.0, add_per_second=0.0)
    store = store_with(
        records(60), refuse=lambda _bucket, key, nth: "InternalError" if nth == 1 and key.endswith("7") else None
    )
    one = DeletePolicy(batch=60, threads=1, pause=0.0, rate=policy)
    with Deleter(store, one, now=lambda: 0.0, sleep=lambda _seconds: None) as run:
        assert run.delete(records(60), never_stop).failures == []
        assert run.keys_per_second == 2_000


def test_an_expired_token_does_not_lower_the_rate() -> None:
    policy = RatePolicy(start=2_000.0, search=0.0, grow=0.0, add_per_second=0.0)
    store = store_with(records(60), refuse=lambda _bucket, _key, nth: "ExpiredToken" if nth == 1 else None)
    one = DeletePolicy(batch=60, threads=1, pause=0.0, rate=policy)
    with Deleter(store, one, now=lambda: 0.0, sleep=lambda _seconds: None) as run:
        assert run.delete(records(60), never_stop).failures == []
        assert run.keys_per_second == 2_000


def test_nothing_is_sent_after_a_stop() -> None:
    sent = threading.Event()
    stopped = threading.Event()

    class Slow(MemoryObjectStore):
        def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
            sent.set()
            assert stopped.wait(30)
            return super().delete(bucket, keys)

    store = Slow({("b", f"k{number:05d}"): b"" for number in range(100)})

    def checkpoint() -> None:
        if sent.is_set():
            stopped.set()
            raise LeaseLost("t", attempt=1, current=2, status="RUNNING")

    policy = DeletePolicy(batch=4, threads=8, rate=RatePolicy(start=1.0))
    with Deleter(store, policy, now=lambda: 0.0) as run, pytest.raises(LeaseLost):
        run.delete(records(100), checkpoint)
    assert len(store.objects) == 99


def test_a_refused_batch_is_split() -> None:
    most: list[int] = []

    class Small(MemoryObjectStore):
        def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
            most.append(len(keys))
            if len(keys) > 20:
                return BatchResult((), tuple(KeyFailure(key, "SlowDown") for key in keys))
            return super().delete(bucket, keys)

    clock = SleptSeconds()
    store = Small({("b", f"k{number:05d}"): b"" for number in range(3_000)})
    with Deleter(store, DeletePolicy(rate=RatePolicy(start=1e6)), now=clock.read, sleep=clock.sleep) as run:
        outcome = run.delete(records(3_000), never_stop)
    assert (outcome.files, outcome.failures, store.objects) == (3_000, [], {})
    assert most[0] == 1_000
