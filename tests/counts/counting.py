"""Counts that do not depend on the machine: the function calls of some work, and the most memory that it holds."""

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Work = Callable[[], object]


def calls_of(work: Work) -> int:
    """Return how many functions of Python and C the work calls in this thread; a generator's steps count too.

    The first two runs fill caches and are not counted.
    """
    work()
    work()
    count = 0

    def profile(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    former = sys.getprofile()
    with _no_collection():
        sys.setprofile(profile)
        try:
            work()
        finally:
            sys.setprofile(former)
    # The last call ends the counting.
    return count - 1


def bytes_of(work: Work) -> int:
    """Return the most bytes that the work holds at a time, beyond what was held before; without those of caches."""
    work()
    was_tracing = tracemalloc.is_tracing()
    with _no_collection():
        if not was_tracing:
            tracemalloc.start()
        try:
            work()
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            work()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            if not was_tracing:
                tracemalloc.stop()
    return peak - before


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the collector from running at a moment that depends on what ran before."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
