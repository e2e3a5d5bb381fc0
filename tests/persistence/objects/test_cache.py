"""The cache: expiry, eviction, and one load per key for all threads."""

import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polaris_persistence.objects.cache import ENTRY_WEIGHT, Cache, CacheEntry
from tests.kit.clocks import MicrosecondClock


class Source:
    """A source of values that counts its loads."""

    def __init__(self, **values: CacheEntry[str]) -> None:
        self.values = values
        self.loads: list[list[str]] = []

    def __call__(self, keys: list[str]) -> Mapping[str, CacheEntry[str]]:
        self.loads.append(list(keys))
        return {key: self.values.get(key, CacheEntry(None, keep_for=0)) for key in keys}


def cache(capacity: int = 10_000) -> tuple[Cache[str, str], MicrosecondClock]:
    clock = MicrosecondClock()
    return Cache(capacity, clock=clock.seconds), clock


def get(kept: Cache[str, str], source: Callable[[list[str]], Any], *keys: str) -> list[str | None]:
    found = kept.get_many(keys, source)
    return [found[key] for key in keys]


def test_immutable_values_are_loaded_once_in_one_call() -> None:
    kept, clock = cache()
    source = Source(a=CacheEntry("A"), b=CacheEntry("B"), c=CacheEntry("C"))
    assert get(kept, source, "a", "b", "a") == ["A", "B", "A"]
    clock.advance(10**9)
    assert get(kept, source, "c", "b", "a") == ["C", "B", "A"]
    assert source.loads == [["a", "b"], ["c"]]


def test_mutable_values_expire() -> None:
    kept, clock = cache()
    source = Source(a=CacheEntry("A", keep_for=10.0))
    get(kept, source, "a")
    source.values["a"] = CacheEntry("A2", keep_for=10.0)
    clock.advance(9.9)
    assert get(kept, source, "a") == ["A"]
    clock.advance(0.1)
    assert get(kept, source, "a") == ["A2"]
    assert kept.statistics().expired == 1


def test_negative_entries_and_others_are_kept_for_their_time_only_if_wanted() -> None:
    kept, clock = cache()
    source = Source(a=CacheEntry(None, keep_for=5.0), c=CacheEntry("C", keep_for=0))
    for _ in range(2):
        assert get(kept, source, "a", "b", "c") == [None, None, "C"]
    assert source.loads == [["a", "b", "c"], ["b", "c"]]
    clock.advance(5)
    source.values["a"] = CacheEntry("A")
    assert get(kept, source, "a") == ["A"]
    assert kept.statistics().absent_hits == 1


def test_the_least_recently_used_entries_are_evicted_first() -> None:
    kept, _ = cache(3 * (ENTRY_WEIGHT + 100))
    source = Source(**{key: CacheEntry(key, weight=100) for key in "abcd"})
    get(kept, source, "a", "b", "c")
    get(kept, source, "a")
    get(kept, source, "d")
    source.loads.clear()
    assert get(kept, source, "a", "c", "d") == ["a", "c", "d"]
    assert source.loads == []
    get(kept, source, "b")
    assert source.loads == [["b"]]


def test_an_entry_heavier_than_the_cache_is_not_kept_and_evicts_nothing() -> None:
    kept, _ = cache(1_000)
    source = Source(a=CacheEntry("a"), b=CacheEntry("b", weight=900))
    get(kept, source, "a", "b")
    source.loads.clear()
    assert get(kept, source, "a", "b") == ["a", "b"]
    assert source.loads == [["b"]]
    counted = kept.statistics()
    assert (counted.misses, counted.hits, counted.entries) == (3, 1, 1)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 400), st.sampled_from(["get", "put", "remove"]))))
def test_weight_is_counted_right_and_never_exceeds_the_capacity(steps: list[tuple[int, int, str]]) -> None:
    kept, _ = cache(3_000)
    for number, weight, what in steps:
        key = f"k{number}"
        match what:
            case "get":
                get(kept, lambda keys, w=weight: {one: CacheEntry("v", weight=w) for one in keys}, key)
            case "put":
                kept.put(key, CacheEntry("v", weight=weight))
            case "remove":
                kept.remove(key)
        counted = kept.statistics()
        assert counted.weight == sum(one.weight for one in kept._kept.values()) <= 3_000
        assert counted.entries == len(kept._kept)
    assert kept._loads == {}


def test_single_flight() -> None:
    """Threads that need a key being loaded wait for that load."""
    kept, _ = cache()
    entered, leave = threading.Event(), threading.Event()
    loads: list[list[str]] = []

    def slow(keys: list[str]) -> Mapping[str, CacheEntry[str]]:
        loads.append(keys)
        entered.set()
        assert leave.wait(30)
        return {key: CacheEntry(key.upper()) for key in keys}

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(get, kept, slow, "a", "b")
        assert entered.wait(30)
        others = [pool.submit(get, kept, slow, "b", "a") for _ in range(7)]
        while kept.statistics().joined < 14:
            threading.Event().wait(0.001)
        leave.set()
        assert first.result() == ["A", "B"]
        assert [one.result() for one in others] == [["B", "A"]] * 7
    assert loads == [["a", "b"]]


def test_two_threads_that_need_each_others_keys_do_not_deadlock() -> None:
    kept, _ = cache()
    both = threading.Barrier(2)

    def load(keys: list[str]) -> Mapping[str, CacheEntry[str]]:
        both.wait(30)
        return {key: CacheEntry(key.upper()) for key in keys}

    claimed = threading.Barrier(2)

    def ask(first: str, second: str) -> list[str | None]:
        def outer(keys: list[str]) -> Mapping[str, CacheEntry[str]]:
            claimed.wait(30)
            return load(keys)

        get(kept, outer, first)
        return get(kept, load, first, second)

    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(ask, *keys) for keys in (("a", "b"), ("b", "a"))]
        assert [one.result(30) for one in results] == [["A", "B"], ["B", "A"]]


def test_a_failed_load_fails_in_all_waiting_threads_and_the_next_read_retries_it() -> None:
    kept, _ = cache()
    entered, leave = threading.Event(), threading.Event()

    def fails(_keys: list[str]) -> Mapping[str, CacheEntry[str]]:
        entered.set()
        assert leave.wait(30)
        raise ConnectionError("down")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(get, kept, fails, "a")
        assert entered.wait(30)
        second = pool.submit(get, kept, fails, "a")
        while kept.statistics().joined < 1:
            threading.Event().wait(0.001)
        leave.set()
        for one in (first, second):
            with pytest.raises(ConnectionError):
                one.result()
    assert get(kept, Source(a=CacheEntry("A")), "a") == ["A"]


@pytest.mark.parametrize("how", ["put", "remove"])
def test_a_load_during_a_write_is_not_kept(how: str) -> None:
    """A reader that began before the write may get the old value, one after it may not."""
    kept, _ = cache()
    seen_by_later: list[str | None] = []

    def old(keys: list[str]) -> Mapping[str, CacheEntry[str]]:
        if how == "put":
            kept.put("a", CacheEntry("new"))
        else:
            kept.remove("a")
        seen_by_later.extend(get(kept, Source(a=CacheEntry("new")), "a"))
        return {key: CacheEntry("old") for key in keys}

    assert get(kept, old, "a") == ["old"]
    assert seen_by_later == ["new"]
    assert get(kept, Source(), "a") == ["new"]


def test_threads_always_see_a_value_at_least_as_new_as_the_last_write_they_know() -> None:
    kept, _ = cache()
    truth = {"a": 0}
    lock = threading.Lock()

    def load(keys: list[str]) -> Mapping[str, CacheEntry[str]]:
        return {key: CacheEntry(str(truth["a"]), keep_for=1e9) for key in keys}

    def work(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(500):
            if draw.random() < 0.2:
                with lock:
                    truth["a"] += 1
                    kept.remove("a")
            known = truth["a"]
            kept_now = get(kept, load, "a")[0]
            assert kept_now is not None
            # A writer may have raised the truth and not yet removed the old value: one behind, never more.
            assert int(kept_now) >= known - 1

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work, seed) for seed in range(6)]:
            done.result()
