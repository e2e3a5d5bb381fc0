"""The number of concurrent loads of a pass: more while the catalog answers quickly, fewer once it slows.

An overloaded catalog answers later, or with 429 or 503, after which its client waits: both are seen as a longer time.
The number grows by one after an answer to each load while answers take about as long as a single one, and is halved
when they take much longer (additive increase, multiplicative decrease), so other callers wait hardly longer. A single
load's time is measured again at times with one load in progress: beside others it is longer, and a best time that only
grew towards those let 15 loads at once hit a catalog without capacity after 2,000 tables.
"""

from dataclasses import dataclass
from typing import Final

MOST_AT_ONCE: Final = 16
_SMOOTHING: Final = 0.2
"""The part of a new time in the average."""
_MEASURED_EVERY: Final = 1_000
"""Answers until loads are timed alone again, because a catalog's usual time may change."""
_MEASURED: Final = 5
"""Loads that are timed alone; the median counts, because one of them may have been answered with 429."""


@dataclass(frozen=True, slots=True)
class WidthPolicy:
    """`grow_below` and `shrink_above` are multiples of the shortest average time; at most `most` loads at a time. Times
    below `unnoticed` seconds count as that: they vary by more than a factor for no reason."""

    most: int = MOST_AT_ONCE
    grow_below: float = 2.0
    shrink_above: float = 4.0
    unnoticed: float = 0.005


class AdaptiveWidth:
    """The number of concurrent loads, by the seconds that each took; not for several threads."""

    def __init__(self, policy: WidthPolicy = WidthPolicy()) -> None:
        self._policy = policy
        self._width = 1.0
        self._average: float | None = None
        self._best = 0.0
        self._held = 0
        self._answers = 0
        self._alone: list[float] | None = None

    @property
    def width(self) -> int:
        return 1 if self._alone is not None else min(int(self._width), self._policy.most)

    def answered(self, seconds: float) -> None:
        taken = max(seconds, self._policy.unnoticed)
        self._held = max(self._held - 1, 0)
        if self._alone is not None:
            self._measure(self._alone, taken)
            return
        self._adapt(taken)
        self._answers += 1
        if self._answers % _MEASURED_EVERY == 0:
            self._held, self._alone = self.width, []

    def _measure(self, alone: list[float], taken: float) -> None:
        """Record the time of a load without others beside it; those begun before are not counted."""
        if self._held:
            return
        alone.append(taken)
        if len(alone) == _MEASURED:
            self._best, self._alone = sorted(alone)[_MEASURED // 2], None

    def _adapt(self, taken: float) -> None:
        policy = self._policy
        if self._average is None:
            self._average = self._best = taken
        self._average += _SMOOTHING * (taken - self._average)
        self._best = min(self._best, self._average)
        slow = policy.shrink_above * self._best
        if self._average > slow or taken > slow / _SMOOTHING:
            if not self._held:
                # The loads that were under way at the same time state nothing new.
                self._held = self.width
                self._width = max(self._width / 2, 1.0)
        elif self._average <= policy.grow_below * self._best:
            self._width = min(self._width + 1 / self._width, float(policy.most))
