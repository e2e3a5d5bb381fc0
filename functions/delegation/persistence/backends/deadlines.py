"""Until when the calls that a commit makes may begin, for its thread and those that it hands batches to."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from delegation.persistence.errors import BackendUnavailable

_LEFT: Final[ContextVar[Callable[[], float]]] = ContextVar("seconds_left", default=lambda: math.inf)


@contextmanager
def calls_begin_within(left: Callable[[], float]) -> Iterator[None]:
    """Refuse further calls of the store once `left()`, in seconds, is negative."""
    token = _LEFT.set(left)
    try:
        yield
    finally:
        _LEFT.reset(token)


def check_time() -> None:
    """Raise BackendUnavailable if no further call may begin, because it might outlast the deadline of a commit."""
    if _LEFT.get()() < 0:
        raise BackendUnavailable("the store was too slow: the time of this commit is up; try again later")
