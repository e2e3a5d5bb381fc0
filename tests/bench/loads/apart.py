"""The CPU seconds of Spark's Python workers, by what they do; the tasks themselves know nothing of it.

`Measured` replaces the resources of executors. A worker that unpickles it wraps the functions of its process, and
after each task writes its figures to a file of its own.
"""

import functools
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delegation.identifiers import TableIdentifier
from delegation.removal import spark_executors
from delegation.removal.spark_executors import ExecutorResources
from delegation.storage.base import ObjectStore, PlanStore

STARTING, READING, SORTING, WRITING, DELETING = PARTS = ("starting", "reading", "sorting", "writing", "deleting")
"""`starting` is all else: imports, clients, and what Spark does in a worker around each task."""


class _Clock:
    """Divides the process's CPU time, of all its threads, among what its main thread does."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._doing = [STARTING]
        self._since = 0.0

    def begin(self, what: str) -> None:
        self.turn()
        self._doing.append(what)

    def end(self) -> None:
        self.turn()
        self._doing.pop()

    def turn(self) -> None:
        now = time.process_time()
        self.spent[self._doing[-1]] += now - self._since
        self._since = now


def _timed(clock: _Clock, what: str, generator: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Return the generator function with the time of each of its steps counted."""

    @functools.wraps(generator)
    def steps(*arguments: Any, **named: Any) -> Iterator[Any]:
        items = iter(generator(*arguments, **named))
        while True:
            clock.begin(what)
            try:
                item = next(items, steps)
            finally:
                clock.end()
            if item is steps:
                return
            yield item

    return steps


@functools.cache
def _install(folder: str) -> None:
    clock = _Clock()
    timed = (
        (spark_executors.SpreadSources, "__call__", READING),
        (spark_executors.WriteParts, "__call__", WRITING),
        (spark_executors.DeleteChunks, "__call__", DELETING),
        (spark_executors.Spread, "add", SORTING),
        (spark_executors.Spread, "flush", SORTING),
        (spark_executors, "merged", SORTING),
    )
    for owner, name, what in timed:
        generator = _timed(clock, what, getattr(owner, name))
        setattr(owner, name, _noted(clock, folder, generator) if name == "__call__" else generator)


def _noted(clock: _Clock, folder: str, task: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @functools.wraps(task)
    def steps(*arguments: Any) -> Iterator[Any]:
        yield from task(*arguments)
        clock.turn()
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(clock.spent))

    return steps


@dataclass(frozen=True)
class Measured:
    """ExecutorResources whose workers write their figures into a folder."""

    resources: ExecutorResources
    folder: str

    def __reduce__(self) -> Any:
        return _measured, (self.resources, self.folder)

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        return self.resources.store(identifier)

    def plans(self) -> PlanStore:
        return self.resources.plans()

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        return self.resources.checkpoint(task_id, attempt)


def _measured(resources: ExecutorResources, folder: str) -> Measured:
    _install(folder)
    return Measured(resources, folder)


def spent(folder: str) -> dict[str, float]:
    """Return the CPU seconds of all workers by part."""
    found = [json.loads(path.read_text()) for path in Path(folder).iterdir()]
    return {what: sum(one.get(what, 0.0) for one in found) for what in PARTS}
