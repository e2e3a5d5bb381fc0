"""Deleting lots one behind the other: each has its own account, and none waits for the answers of the one before."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.iceberg.files import TableFile
from delegation.storage.base import BatchResult, KeyFailure
from delegation.storage.deleter import DeletePolicy, Deleter
from delegation.storage.lots import Failure
from delegation.storage.memory import MemoryObjectStore
from delegation.storage.rate import RatePolicy

POLICY = DeletePolicy(batch=4, threads=3, tries=2, throttled_tries=3, pause=0.0, longest_pause=0.0)
CODES = st.sampled_from([None, None, None, "SlowDown", "InternalError", "AccessDenied"])


def nothing() -> None:
    """A checkpoint that lets everything pass."""


def lot(name: str, count: int) -> list[TableFile]:
    return [TableFile(f"s3://b/{name}/{number:03d}", 8, 10) for number in range(count)]


def store_of(lots: dict[str, list[TableFile]], **options: object) -> MemoryObjectStore:
    objects = {("b", record.path[7:]): b"x" for records in lots.values() for record in records}
    return MemoryObjectStore(objects, **options)  # type: ignore[arg-type]


def deleter(store: MemoryObjectStore, policy: DeletePolicy = POLICY) -> Deleter:
    return Deleter(store, policy, now=lambda: 0.0, sleep=lambda _seconds: None)


@given(st.lists(st.integers(0, 11), max_size=5), st.dictionaries(st.integers(0, 54), CODES))
def test_each_lot_is_given_back_once_with_its_own_account(counts: list[int], refusals: dict[int, str | None]) -> None:
    lots = {f"lot{number}": lot(f"lot{number}", count) for number, count in enumerate(counts)}
    refused = {
        key: refusals.get(int(key[3]) * 11 + int(key[5:])) for key in (r.path[7:] for rs in lots.values() for r in rs)
    }
    store = store_of(lots, refuse=lambda _bucket, key, _nth: refused[key])
    with deleter(store) as run:
        ended = list(run.delete_each(lots.items(), nothing))
    assert Counter(name for name, _ in ended) == Counter(lots.keys())
    for name, outcome in ended:
        stays = {record.path for record in lots[name] if refused[record.path[7:]]}
        assert {failure.path for failure in outcome.failures} == stays
        assert len(outcome.failures) == len(stays)
        assert (outcome.files, outcome.bytes) == (len(lots[name]) - len(stays), 10 * (len(lots[name]) - len(stays)))
    assert {f"s3://b/{key}" for _, key in store.objects} == {f"s3://b/{key}" for key, code in refused.items() if code}


class Held(MemoryObjectStore):
    """Answers about the last key of lot a only when the first one of lot b was sent."""

    def __init__(self, objects: dict[tuple[str, str], bytes]) -> None:
        super().__init__(objects)
        self._let_go = threading.Event()

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        if "b/000" in keys:
            self._let_go.set()
        if "a/007" in keys:
            assert self._let_go.wait(30)
        return super().delete(bucket, keys)


def test_a_lot_begins_while_the_last_answer_of_the_one_before_is_out() -> None:
    lots = {"a": lot("a", 8), "b": lot("b", 8)}
    store = Held({("b", record.path[7:]): b"" for records in lots.values() for record in records})
    with Deleter(store, POLICY) as run:
        ended = dict(run.delete_each(lots.items(), nothing))
    assert {name: outcome.files for name, outcome in ended.items()} == {"a": 8, "b": 8}


def test_a_lot_is_not_given_back_before_its_last_answer() -> None:
    lots = {"a": lot("a", 8), "b": lot("b", 8)}
    store = Held({("b", record.path[7:]): b"" for records in lots.values() for record in records})
    seen: list[tuple[str, bool]] = []
    with Deleter(store, POLICY) as run:
        for name, _ in run.delete_each(lots.items(), nothing):
            seen.append((name, ("b", "a/007") in store.objects))
    assert ("a", False) in seen
    assert ("a", True) not in seen


def test_closed_early_it_waits_for_what_is_under_way_and_sends_no_more() -> None:
    lots = {"a": lot("a", 4), "b": lot("b", 400)}
    store = store_of(lots)
    with deleter(store, DeletePolicy(batch=4, threads=3)) as run:
        ending = run.delete_each(lots.items(), nothing)
        assert next(ending)[0] == "a"
        ending.close()
        left = len(store.objects)
        assert left > 0
    assert len(store.objects) == left


def test_a_lot_that_cannot_be_read_ends_it_after_what_is_under_way() -> None:
    store = store_of({"a": lot("a", 8)})

    def lots() -> Iterator[tuple[str, list[TableFile]]]:
        yield "a", lot("a", 8)
        raise LookupError("b")

    with deleter(store) as run, pytest.raises(LookupError):
        list(run.delete_each(lots(), nothing))
    assert store.objects == {}


def test_a_store_that_only_asks_to_slow_down_is_asked_once_more_for_each_lot_not_for_as_long() -> None:
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
        ended = dict(run.delete_each(lots.items(), nothing))
    for name, outcome in ended.items():
        assert set(outcome.failures) == {Failure(record.path, "SlowDown") for record in lots[name]}
    assert seconds[0] < 2 * policy.patience
    assert {key[0] for key in asked} == set("abcd")
