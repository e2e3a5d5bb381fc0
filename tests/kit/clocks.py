"""Clocks that tests move by hand; none of them reads the machine's time."""

from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

from polaris_persistence.ids.snowflake import EPOCH_MS

NOON: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Clock:
    """An aware time in UTC that does not move until it is moved."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, step: timedelta) -> datetime:
        """Move the clock and return the new time."""
        self.now += step
        return self.now


class SleptSeconds:
    """Seconds that only sleeping advances, also that of several threads."""

    def __init__(self) -> None:
        self.now = 0.0
        self._lock = Lock()

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds


class MicrosecondClock:
    """The time of the persistence in µs since 1970, which advances on sleep, or by hand."""

    def __init__(self, ms: int = EPOCH_MS + 10_000_000) -> None:
        self.us = ms * 1_000
        self.slept: list[float] = []

    def now_us(self) -> int:
        return self.us

    def now_ms(self) -> int:
        return self.us // 1_000

    def seconds(self) -> float:
        return self.us / 1_000_000

    def advance(self, seconds: float) -> None:
        self.us += round(seconds * 1_000_000)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)
