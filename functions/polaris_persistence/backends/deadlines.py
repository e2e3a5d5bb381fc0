"""The deadline of a commit's calls, for its thread and the threads to which it hands batches."""

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Final, TypeVar

from polaris_persistence.errors import BackendUnavailable

T = TypeVar("T")

_LEFT: Final[ContextVar[tuple[Callable[[], float], float]]] = ContextVar("left", default=(lambda: math.inf, 0.0))


@contextmanager
def calls_begin_within(left: Callable[[], float], longest: float = 0.0) -> Iterator[None]:
    """Refuse further calls of the store once `left()` seconds are too few for one that takes `longest`."""
    token = _LEFT.set((left, longest))
    try:
        yield
    finally:
        _LEFT.reset(token)


def check_time() -> None:
    """Raise BackendUnavailable if no further call may start, because it might outlast the deadline of a commit."""
    left, longest = _LEFT.get()
    if left() < longest:
        raise BackendUnavailable("the store was too slow, so the commit ran out of time. Try again later")


def seconds_left() -> float:
    """Return for how many seconds a call that starts now may last, infinity outside of a commit."""
    return _LEFT.get()[0]()


def answer_in_time(call: Callable[[], T]) -> T:
    """Make a call, and give up waiting for its answer at the deadline of the commit.

    The time-outs of a client are no bound: they count from one byte to the next. The call may still take effect. Raises
    TimeoutError.
    """
    left = seconds_left()
    if math.isinf(left):
        return call()
    answer: Future[T] = Future()

    def make() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            answer.set_exception(error)

    threading.Thread(target=copy_context().run, args=(make,), daemon=True, name="commit-call").start()
    return answer.result(max(left, 0.0))
