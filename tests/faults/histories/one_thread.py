"""Reads and deletes in the thread that asks for them, so that a seed plays the same history on every machine."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

_POOLS = ("delegation.iceberg.reach.ThreadPoolExecutor", "delegation.storage.deleter.ThreadPoolExecutor")


class OneThread(Executor):
    """Runs each call at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*arguments, **more))
        except Exception as error:  # noqa: BLE001 - the taker of the result gets it
            future.set_exception(error)
        return future


@contextmanager
def one_thread() -> Iterator[None]:
    with ExitStack() as stack:
        for pool in _POOLS:
            stack.enter_context(patch(pool, OneThread))
        yield
