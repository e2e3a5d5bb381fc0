"""Processes in threads, of which one runs at a time, on a clock that jumps to the next thing that happens."""

import heapq
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

from tests.kit.tasks.builders import NOW


class Stopped(BaseException):
    """The time of the simulation is over."""


class VirtualTime:
    """`sleep` is called by processes; two that wake at one moment run in the order in which they fell asleep."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._asleep: list[tuple[float, int, threading.Event]] = []
        self._numbers = count()
        self._idle = threading.Event()
        self._threads: list[threading.Thread] = []
        self._over = False
        self.failures: list[BaseException] = []

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def process(self, body: Callable[[], None]) -> None:
        """Add a process that begins now."""
        woken = self._enter(0)

        def run() -> None:
            woken.wait()
            try:
                if not self._over:
                    body()
            except Stopped:
                pass
            except BaseException as error:  # noqa: BLE001 - `run` raises it again
                self.failures.append(error)
            finally:
                self._idle.set()

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def sleep(self, seconds: float) -> None:
        woken = self._enter(seconds)
        self._idle.set()
        woken.wait()
        if self._over:
            raise Stopped

    def run(self, seconds: float) -> None:
        """Run for so long, then end every process."""
        end = self.seconds + seconds
        while self._asleep and self._asleep[0][0] <= end and not self.failures:
            self._wake()
        self._over = True
        while self._asleep:
            self._wake()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def _enter(self, seconds: float) -> threading.Event:
        woken = threading.Event()
        heapq.heappush(self._asleep, (self.seconds + seconds, next(self._numbers), woken))
        return woken

    def _wake(self) -> None:
        at, _, woken = heapq.heappop(self._asleep)
        self.seconds = max(self.seconds, at)
        self._idle.clear()
        woken.set()
        self._idle.wait()
