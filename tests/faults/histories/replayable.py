"""One thread and ids by a seed, so that a seed plays the same history again, on every machine."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID


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
def replayable(seed: int) -> Iterator[None]:
    """Delete in the thread that asks for it, and take the ids in the names of files from a seed."""
    ids = Random(seed)
    with ExitStack() as stack:
        stack.enter_context(patch("delegation.storage.deleter.ThreadPoolExecutor", OneThread))
        stack.enter_context(patch("uuid.uuid4", lambda: UUID(int=ids.getrandbits(128), version=4)))
        yield
