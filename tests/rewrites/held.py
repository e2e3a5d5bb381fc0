"""Commits that the stand-in catalog holds until all have arrived, and lets pass in an order."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import httpx

from delegation.rewrites.commits import TASK_ID
from infra.local.catalog.tables import LocalTables

COMPACTION = "C"
_PATIENCE = 240.0


@dataclass
class Turns:
    """Holds the first commit of each writer and as many of the compaction as `order` has; others pass at once."""

    order: Sequence[str]
    _starting: str | None = None
    _held: list[str] = field(default_factory=list)
    _passing: str | None = None
    _is_taken: bool = False
    """One commit took the turn: groups of a compaction commit side by side, under one label."""
    _ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._left = self.order.count(COMPACTION)

    def _label(self, request: Mapping[str, Any]) -> str | None:
        """Return whose commit it is, None for one that passes at once."""
        summaries = [update["snapshot"]["summary"] for update in request["updates"] if "snapshot" in update]
        if any(TASK_ID in summary for summary in summaries):
            self._left -= 1
            return COMPACTION if self._left >= 0 else None
        label, self._starting = self._starting, None
        return label

    @contextmanager
    def held(self, request: Mapping[str, Any]) -> Iterator[None]:
        with self._changed:
            label = self._label(request)
            if label is not None:
                self._held.append(label)
                self._changed.notify_all()
                self._wait(lambda: self._passing == label and not self._is_taken)
                self._is_taken = True
                self._held.remove(label)
        try:
            yield
        finally:
            if label is not None:
                with self._changed:
                    self._passing, self._is_taken = None, False
                    self._changed.notify_all()

    def play(self, works: Mapping[str, Callable[[], None]]) -> None:
        """Start the works one after the other, each once the commit of the one before is held; then pass them on."""
        with ThreadPoolExecutor(len(works)) as pool:
            running = []
            with self._changed:
                for label, work in works.items():
                    self._starting = None if label == COMPACTION else label
                    running.append(pool.submit(work))
                    running[-1].add_done_callback(partial(self._end, label))
                    self._wait(partial(self._is_held_or_ended, label))
                for label in self.order:
                    self._wait(partial(self._is_held_or_ended, label))
                    if label in self._held:
                        self._passing = label
                        self._changed.notify_all()
                        self._wait(lambda: self._passing is None)
            for future in running:
                future.result(_PATIENCE)

    def _end(self, label: str, _done: object) -> None:
        with self._changed:
            self._ended.add(label)
            self._changed.notify_all()

    def _is_held_or_ended(self, label: str) -> bool:
        return label in self._held or label in self._ended

    def _wait(self, until: Callable[[], bool]) -> None:
        assert self._changed.wait_for(until, _PATIENCE), "a commit did not arrive"


@contextmanager
def held_commits(turns: Turns) -> Iterator[None]:
    real = LocalTables.commit

    def commit(tables: LocalTables, who: Any, name: Any, request: Mapping[str, Any]) -> Any:
        with turns.held(request):
            return real(tables, who, name, request)

    with mock.patch.object(LocalTables, "commit", commit):
        yield


class Held(httpx.BaseTransport):
    """Lets a writer commit while the first commit of the rewrite is on its way."""

    def __init__(self, writer: Callable[[], None]) -> None:
        self._writers = [writer]
        self._real = httpx.HTTPTransport()
        self.statuses: list[int] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        is_commit = request.method == "POST" and "/tables/" in request.url.path
        if is_commit and self._writers:
            self._writers.pop()()
        answer = self._real.handle_request(request)
        answer.read()
        if is_commit:
            self.statuses.append(answer.status_code)
        return answer
