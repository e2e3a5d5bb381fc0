"""A cache by weight and expiry that loads a key once for all threads (NoSQL persistence proposal, Object cache)."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRY_WEIGHT: Final = 350
"""Bytes that an entry takes besides its value, approximately: its key, its record and its place in the order."""


@dataclass(frozen=True, slots=True)
class CacheEntry(Generic[V]):
    """The value of a key, None if absent, to keep for `keep_for` seconds: None without expiry, 0 not at all. `weight`
    is its size in memory, not in the store."""

    value: V | None
    weight: int = 0
    keep_for: float | None = None


@dataclass(slots=True)
class CacheStatistics:
    """Counts since the start; `weight` and `entries` are the present values."""

    hits: int = 0
    absent_hits: int = 0
    misses: int = 0
    joined: int = 0
    expired: int = 0
    weight: int = 0
    entries: int = 0


@dataclass(slots=True)
class _Kept(Generic[V]):
    value: V | None
    weight: int
    expires_at: float | None


class Cache(Generic[K, V]):
    """Evicts the least recently used entries above `capacity` bytes; `clock` counts seconds and never goes back."""

    def __init__(self, capacity: int, *, clock: Callable[[], float]) -> None:
        self._capacity = capacity
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()
        self._loads: dict[K, Future[V | None]] = {}
        self._count = CacheStatistics()

    def get_many(self, keys: Iterable[K], load: Callable[[list[K]], Mapping[K, CacheEntry[V]]]) -> dict[K, V | None]:
        """Return the values of the keys, None for absent ones, after loading the missing ones in one call of `load`.

        `load` returns an entry for every key. Threads that need a key being loaded wait for that load; what it raises
        is raised in all of them.
        """
        answers: dict[K, V | None] = {}
        mine: dict[K, Future[V | None]] = {}
        others: dict[K, Future[V | None]] = {}
        with self._lock:
            for key in dict.fromkeys(keys):
                kept = self._unexpired(key)
                if kept is not None:
                    answers[key] = kept.value
                elif key in self._loads:
                    others[key] = self._loads[key]
                    self._count.joined += 1
                else:
                    mine[key] = self._loads[key] = Future()
                    self._count.misses += 1
        if mine:
            answers |= self._load(mine, load)
        # After the load, so that two threads that wait for each other's keys do not block each other.
        for key, future in others.items():
            answers[key] = future.result()
        return answers

    def put(
        self,
        key: K,
        entry: CacheEntry[V],
        *,
        unless: Callable[[V], bool] = lambda _kept: False,
        read_at: float | None = None,
    ) -> None:
        """Store an entry, in place of a present one or of one being loaded.

        Nothing changes if `unless` is true for the present value. `read_at` is the time from `now` before a value was
        read: it expires that much earlier, so that a slow read does not outlast its time.
        """
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept.value is not None and unless(kept.value):
                return
            self._loads.pop(key, None)
            self._keep(key, entry, self._clock() if read_at is None else read_at)

    def now(self) -> float:
        return self._clock()

    def remove(self, key: K) -> None:
        """Remove a key; a running load still serves the threads that wait for it, but is not kept."""
        with self._lock:
            self._loads.pop(key, None)
            self._drop(key)

    def statistics(self) -> CacheStatistics:
        with self._lock:
            return replace(self._count, entries=len(self._kept))

    def _load(
        self, mine: dict[K, "Future[V | None]"], load: Callable[[list[K]], Mapping[K, CacheEntry[V]]]
    ) -> dict[K, V | None]:
        begun = self._clock()
        try:
            loaded = load(list(mine))
        except BaseException as error:
            # Of any kind, because no thread may wait for ever; the caller gets it unchanged.
            with self._lock:
                for key, future in mine.items():
                    self._end_load(key, future)
            for future in mine.values():
                future.set_exception(error)
            raise
        with self._lock:
            for key, future in mine.items():
                if self._end_load(key, future):
                    self._keep(key, loaded[key], begun)
        for key, future in mine.items():
            future.set_result(loaded[key].value)
        return {key: loaded[key].value for key in mine}

    def _unexpired(self, key: K) -> _Kept[V] | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.expires_at is not None and self._clock() >= kept.expires_at:
            self._drop(key)
            self._count.expired += 1
            return None
        self._kept.move_to_end(key)
        if kept.value is None:
            self._count.absent_hits += 1
        else:
            self._count.hits += 1
        return kept

    def _end_load(self, key: K, future: "Future[V | None]") -> bool:
        """End a load and return whether its result may be kept: no put or remove came during it."""
        if self._loads.get(key) is not future:
            return False
        del self._loads[key]
        return True

    def _keep(self, key: K, entry: CacheEntry[V], since: float) -> None:
        self._drop(key)
        weight = entry.weight + ENTRY_WEIGHT
        expires_at = None if entry.keep_for is None else since + entry.keep_for
        if weight > self._capacity or (expires_at is not None and expires_at <= self._clock()):
            return
        self._kept[key] = _Kept(entry.value, weight, expires_at)
        self._count.weight += weight
        while self._count.weight > self._capacity:
            _, dropped = self._kept.popitem(last=False)
            self._count.weight -= dropped.weight

    def _drop(self, key: K) -> None:
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            self._count.weight -= dropped.weight
