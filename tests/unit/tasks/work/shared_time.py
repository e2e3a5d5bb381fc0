"""A clock for threads that wait for each other and for time: it advances only while all of them wait."""

import threading
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any

from tests.kit.tasks.builders import NOW


class SharedTime:
    """Begins at NOW; when the last of `threads` begins to wait, the time jumps to when the first of them wakes.

    So the result does not depend on the speed of a machine: what a thread does takes no time.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._passed = 0.0
        self._wakes: dict[int, float] = {}
        self._turn = threading.Condition()
        self._ended = False

    def monotonic(self) -> float:
        with self._turn:
            return self._passed

    def clock(self) -> datetime:
        return NOW + timedelta(seconds=self.monotonic())

    def wait(self, seconds: float, work: "Future[Any] | None" = None) -> None:
        """Wait until so much time has passed, or the work has ended."""
        me = threading.get_ident()
        with self._turn:
            until = self._passed + seconds
            self._wakes[me] = until
            if len(self._wakes) == self._threads:
                self._passed = max(self._passed, min(self._wakes.values()))
                self._turn.notify_all()
            self._turn.wait_for(lambda: self._passed >= until or self._ended or (work is not None and work.done()))
            del self._wakes[me]

    def done_within(self, work: "Future[Any]", seconds: float) -> bool:
        work.add_done_callback(self._wake)
        self.wait(seconds, work)
        return work.done()

    def end(self) -> None:
        """Let all threads stop waiting."""
        with self._turn:
            self._ended = True
            self._turn.notify_all()

    def _wake(self, _work: "Future[Any]") -> None:
        with self._turn:
            self._turn.notify_all()
