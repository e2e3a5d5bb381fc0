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
    """`sleep` is called by processes; two that wake at one moment run in the order in which they fell asleep.

    A process that falls asleep wakes the next one, which may be itself: a switch of threads costs more than a step.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._asleep: list[tuple[float, int, threading.Lock]] = []
        self._numbers = count()
        self._runner = _held()
        self._threads: list[threading.Thread] = []
        self._end = 0.0
        self._over = False
        self.failures: list[BaseException] = []

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def process(self, body: Callable[[], None]) -> None:
        """Add a process that begins now."""
        woken = self._enter(0)

        def run() -> None:
            woken.acquire()
            try:
                if not self._over:
                    body()
            except Stopped:
                pass
            except BaseException as error:  # noqa: BLE001 - `run` raises it again
                self.failures.append(error)
            finally:
                self._next().release()

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def sleep(self, seconds: float) -> None:
        woken = self._enter(seconds)
        self._next().release()
        woken.acquire()
        if self._over:
            raise Stopped

    def run(self, seconds: float) -> None:
        """Run for so long, then end every process."""
        self._end = self.seconds + seconds
        self._next().release()
        self._runner.acquire()
        self._over = True
        while self._asleep:
            heapq.heappop(self._asleep)[-1].release()
            self._runner.acquire()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def _enter(self, seconds: float) -> threading.Lock:
        woken = _held()
        heapq.heappush(self._asleep, (self.seconds + seconds, next(self._numbers), woken))
        return woken

    def _next(self) -> threading.Lock:
        """Return what wakes the process whose time has come, or `run` if there is none."""
        if self._over or self.failures or not self._asleep or self._asleep[0][0] > self._end:
            return self._runner
        at, _, woken = heapq.heappop(self._asleep)
        self.seconds = max(self.seconds, at)
        return woken


def _held() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock
