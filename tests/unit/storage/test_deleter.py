"""The deleter: an outcome for every key and lot, retries by error code, and a rate that finds the store's limit."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.errors import RunHandedOver
from delegation.iceberg.paths import TableFile
from delegation.storage.base import BatchResult, KeyFailure
from delegation.storage.deleter import DeletePolicy, Deleter, Failure, RatePolicy
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


@pytest.mark.parametrize(
    ("code", "keys", "share"),
    [("InternalError", "", 1 - RatePolicy().decrease), ("InternalError", "7", 1), ("ExpiredToken", "", 1)],
    ids=["a whole batch", "one key of a batch", "an expired token"],
)
def test_only_a_batch_that_is_refused_as_a_whole_lowers_the_rate_once(code: str, keys: str, share: float) -> None:
    policy = RatePolicy(start=2_000.0, search=0.0, grow=0.0, add_per_second=0.0)
    store = store_with(records(60), refuse=lambda _bucket, key, nth: code if nth == 1 and key.endswith(keys) else None)
    with deleter(store, DeletePolicy(batch=60, threads=1, pause=0.0, rate=policy)) as run:
        assert run.delete(records(60), never_stop).failures == []
        assert run.keys_per_second == pytest.approx(2_000 * share)


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


POLICY = DeletePolicy(batch=4, threads=3, tries=2, throttled_tries=3, pause=0.0, longest_pause=0.0)
CODES = st.sampled_from([None, None, None, "SlowDown", "InternalError", "AccessDenied"])


def lot(name: str, count: int) -> list[TableFile]:
    return [TableFile(f"s3://b/{name}/{number:03d}", 8, 10) for number in range(count)]


def store_of(lots: dict[str, list[TableFile]], **options: object) -> MemoryObjectStore:
    objects = {("b", record.path[7:]): b"x" for records in lots.values() for record in records}
    return MemoryObjectStore(objects, **options)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 11), max_size=5), st.dictionaries(st.integers(0, 54), CODES))
def test_each_lot_is_yielded_once_with_its_outcome(counts: list[int], refusals: dict[int, str | None]) -> None:
    lots = {f"lot{number}": lot(f"lot{number}", count) for number, count in enumerate(counts)}
    refused = {
        key: refusals.get(int(key[3]) * 11 + int(key[5:])) for key in (r.path[7:] for rs in lots.values() for r in rs)
    }
    store = store_of(lots, refuse=lambda _bucket, key, _nth: refused[key])
    with deleter(store, POLICY) as run:
        ended = list(run.delete_each(lots.items(), never_stop))
    assert Counter(name for name, _ in ended) == Counter(lots.keys())
    for name, outcome in ended:
        kept = {record.path for record in lots[name] if refused[record.path[7:]]}
        assert {failure.path for failure in outcome.failures} == kept
        assert len(outcome.failures) == len(kept)
        assert (outcome.files, outcome.bytes) == (len(lots[name]) - len(kept), 10 * (len(lots[name]) - len(kept)))
    assert {f"s3://b/{key}" for _, key in store.objects} == {f"s3://b/{key}" for key, code in refused.items() if code}


class Held(MemoryObjectStore):
    """Answers about the last key of lot a only after the first key of lot b was sent."""

    def __init__(self, objects: dict[tuple[str, str], bytes]) -> None:
        super().__init__(objects)
        self._released = threading.Event()

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        if "b/000" in keys:
            self._released.set()
        if "a/007" in keys:
            assert self._released.wait(30)
        return super().delete(bucket, keys)


def test_a_lot_begins_before_the_last_answer_about_the_one_before_which_is_yielded_after_it() -> None:
    lots = {"a": lot("a", 8), "b": lot("b", 8)}
    store = Held({("b", record.path[7:]): b"" for records in lots.values() for record in records})
    seen: list[tuple[str, int, bool]] = []
    with Deleter(store, POLICY) as run:
        for name, outcome in run.delete_each(lots.items(), never_stop):
            seen.append((name, outcome.files, name == "a" and ("b", "a/007") in store.objects))
    assert sorted(seen) == [("a", 8, False), ("b", 8, False)]


def test_closing_waits_for_batches_in_flight_and_sends_no_more() -> None:
    lots = {"a": lot("a", 4), "b": lot("b", 400)}
    store = store_of(lots)
    with deleter(store, DeletePolicy(batch=4, threads=3)) as run:
        ending = run.delete_each(lots.items(), never_stop)
        assert next(ending)[0] == "a"
        ending.close()
        left = len(store.objects)
        assert left > 0
    assert len(store.objects) == left


def test_a_lot_that_cannot_be_read_raises_after_the_batches_in_flight() -> None:
    store = store_of({"a": lot("a", 8)})

    def lots() -> Iterator[tuple[str, list[TableFile]]]:
        yield "a", lot("a", 8)
        raise LookupError("b")

    with deleter(store, POLICY) as run, pytest.raises(LookupError):
        list(run.delete_each(lots(), never_stop))
    assert store.objects == {}


def test_after_the_patience_a_throttling_store_gets_one_batch_per_lot() -> None:
    seconds = [0.0]
    asked: list[str] = []

    class Full(MemoryObjectStore):
        def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
            asked.extend(keys)
            return BatchResult((), tuple(KeyFailure(key, "SlowDown") for key in keys))

    def sleep(duration: float) -> None:
        seconds[0] += duration

    policy = DeletePolicy(threads=1, patience=60.0, rate=RatePolicy(start=10.0))
    lots = {name: lot(name, 900) for name in "abcd"}
    with Deleter(Full({}), policy, now=lambda: seconds[0], sleep=sleep) as run:
        ended = dict(run.delete_each(lots.items(), never_stop))
    for name, outcome in ended.items():
        assert set(outcome.failures) == {Failure(record.path, "SlowDown") for record in lots[name]}
    assert seconds[0] < 2 * policy.patience
    assert {key[0] for key in asked} == set("abcd")
