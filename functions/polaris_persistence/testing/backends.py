"""What every persistence backend promises."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import pytest

from polaris_persistence.backends.base import (
    Backend,
    ReferenceKey,
)
from polaris_persistence.testing import objects, references
from polaris_persistence.testing.rows import Check, locator, obj, ref, stored_reference


def one_creator_wins(backend: Backend) -> None:
    assert _winners(16, lambda number: backend.create_reference(ref(number + 1)) is None) == 1


def one_insert_wins(backend: Backend) -> None:
    first = obj(b"v")
    assert _winners(16, lambda number: backend.insert(replace(first, token=f"t{number}")) is None) == 1


def one_deleter_wins(backend: Backend) -> None:
    first = obj(b"v", token="t")
    backend.insert(first)
    assert _winners(16, lambda _: backend.delete(first.key, expected="t") is None) == 1


def no_lost_update(backend: Backend) -> None:
    """Counters raised by compare-and-set in 8 threads end at the number of acknowledged writes."""
    counter, pointer = obj(b"0", token="t0"), ref()
    backend.insert(counter)
    backend.create_reference(pointer)
    key: ReferenceKey = pointer.key

    def count(thread: int) -> None:
        for turn in range(10):
            while True:
                stored = backend.fetch_many([locator(counter)])[counter.key]
                new = replace(stored, value=str(int(stored.value) + 1).encode(), token=f"{thread}.{turn}")
                if backend.update(new, expected=str(stored.token)) is None:
                    break
            while True:
                current = stored_reference(backend, key)
                if backend.replace_reference(current.moved_to(thread + 1), expected=current) is None:
                    break

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    assert backend.fetch_many([locator(counter)])[counter.key].value == b"80"
    assert stored_reference(backend, key).version == 80


def _winners(count: int, attempt: Callable[[int], bool]) -> int:
    start = threading.Barrier(count)

    def run(number: int) -> bool:
        start.wait()
        return attempt(number)

    with ThreadPoolExecutor(count) as pool:
        return sum(pool.map(run, range(count)))


SEQUENTIAL: Final[tuple[Check, ...]] = (*references.CHECKS, *objects.CHECKS)
CONCURRENT: Final[tuple[Check, ...]] = (
    one_creator_wins,
    one_insert_wins,
    one_deleter_wins,
    no_lost_update,
)
"""Checks that write from several threads at once. An emulator of a store may not support them."""


class BackendContract:
    """The whole contract as tests of one backend. A subclass overrides the fixture `store`."""

    @pytest.fixture
    def store(self) -> Backend:
        """Return a new, empty store that shares nothing with another test's."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `store`")

    @pytest.mark.parametrize("check", SEQUENTIAL, ids=lambda check: check.__name__)
    def test_a_store_keeps_its_promise(self, store: Backend, check: Check) -> None:
        check(store)

    @pytest.mark.parametrize("check", CONCURRENT, ids=lambda check: check.__name__)
    def test_a_store_keeps_its_promise_to_threads(self, store: Backend, check: Check) -> None:
        check(store)
