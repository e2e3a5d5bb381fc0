"""Deleting lots: each has its outcome, and none waits for the answers about the one before."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.iceberg.paths import TableFile
from delegation.storage.base import BatchResult, KeyFailure
from delegation.storage.deleter import DeletePolicy, Deleter, Failure, RatePolicy
from delegation.storage.memory import MemoryObjectStore

POLICY = DeletePolicy(batch=4, threads=3, tries=2, throttled_tries=3, pause=0.0, longest_pause=0.0)
CODES = st.sampled_from([None, None, None, "SlowDown", "InternalError", "AccessDenied"])


def never_stop() -> None:
    """Never stop."""


def lot(name: str, count: int) -> list[TableFile]:
    return [TableFile(f"s3://b/{name}/{number:03d}", 8, 10) for number in range(count)]


def store_of(lots: dict[str, list[TableFile]], **options: object) -> MemoryObjectStore:
    objects = {("b", record.path[7:]): b"x" for records in lots.values() for record in records}
    return MemoryObjectStore(objects, **options)  # type: ignore[arg-type]


def deleter(store: MemoryObjectStore, policy: DeletePolicy = POLICY) -> Deleter:
    return Deleter(store, policy, now=lambda: 0.0, sleep=lambda _seconds: None)


@given(st.lists(st.integers(0, 11), max_size=5), st.dictionaries(st.integers(0, 54), CODES))
def test_each_lot_is_yielded_once_with_its_outcome(counts: list[int], refusals: dict[int, str | None]) -> None:
    lots = {f"lot{number}": lot(f"lot{number}", count) for number, count in enumerate(counts)}
    refused = {
        key: refusals.get(int(key[3]) * 11 + int(key[5:])) for key in (r.path[7:] for rs in lots.values() for r in rs)
    }
    store = store_of(lots, refuse=lambda _bucket, key, _nth: refused[key])
    with deleter(store) as run:
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


def test_a_lot_begins_before_the_last_answer_about_the_one_before() -> None:
    lots = {"a": lot("a", 8), "b": lot("b", 8)}
    store = Held({("b", record.path[7:]): b"" for records in lots.values() for record in records})
    with Deleter(store, POLICY) as run:
        ended = dict(run.delete_each(lots.items(), never_stop))
    assert {name: outcome.files for name, outcome in ended.items()} == {"a": 8, "b": 8}


def test_a_lot_is_not_yielded_before_its_last_answer() -> None:
    lots = {"a": lot("a", 8), "b": lot("b", 8)}
    store = Held({("b", record.path[7:]): b"" for records in lots.values() for record in records})
    seen: list[tuple[str, bool]] = []
    with Deleter(store, POLICY) as run:
        for name, _ in run.delete_each(lots.items(), never_stop):
            seen.append((name, ("b", "a/007") in store.objects))
    assert ("a", False) in seen
    assert ("a", True) not in seen


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

    with deleter(store) as run, pytest.raises(LookupError):
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
