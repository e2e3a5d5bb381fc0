"""How often Python looks for garbage while millions of rows pass through a process.

It looks once for 700 new containers, and a row is one: that took a fifth of a purge's CPU time and found
nothing, because rows are in no cycle and are freed without it.
"""

import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_USUALLY: Final = gc.get_threshold()
_SELDOM: Final = (100_000, *_USUALLY[1:])


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Have garbage looked for seldom, by all threads of the process."""
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*_USUALLY)


@functools.cache
def collect_seldom() -> None:
    """Have garbage looked for seldom as long as the process lives, which is an executor's of one job.

    What is imported by now stays: Spark's Python worker looks through everything else after each task.
    """
    gc.freeze()
    gc.set_threshold(*_SELDOM)
