"""How many loads a pass has under way at a time: more while the catalog answers as fast as it can, fewer once it slows.

A catalog that is loaded beyond what it can do answers later, or with 429 or 503, after which its client waits before
it repeats the request: both are seen as a longer time. So the number grows by one for each answer to all of them, as
long as the answers take about as long as a single one, and is halved when they take much longer (additive increase,
multiplicative decrease). The catalog's other callers then wait hardly longer than without a pass.
"""

from dataclasses import dataclass
from typing import Final

MOST_AT_ONCE: Final = 16
_SMOOTHING: Final = 0.2
"""The part of a new time in the average."""
_FORGETTING: Final = 0.001
"""The part by which the best average grows with each answer, because a catalog's usual time may change."""


@dataclass(frozen=True, slots=True)
class WidthPolicy:
    """`grow_below` and `shrink_above` are multiples of the shortest average time of an answer, `most` loads at a time.

    Times shorter than `unnoticed` seconds are as good as that: they vary by more than a factor for no reason.
    """

    most: int = MOST_AT_ONCE
    grow_below: float = 2.0
    shrink_above: float = 4.0
    unnoticed: float = 0.005


class AdaptiveWidth:
    """The number of loads at a time, by the seconds that each took; not for several threads."""

    def __init__(self, policy: WidthPolicy = WidthPolicy()) -> None:
        self._policy = policy
        self._width = 1.0
        self._average: float | None = None
        self._best = 0.0
        self._held = 0

    @property
    def width(self) -> int:
        return min(int(self._width), self._policy.most)

    def answered(self, seconds: float) -> None:
        """Adapt the width to the time of one load."""
        policy = self._policy
        taken = max(seconds, policy.unnoticed)
        if self._average is None:
            self._average = self._best = taken
        self._average += _SMOOTHING * (taken - self._average)
        self._best = min(self._best * (1 + _FORGETTING), self._average)
        self._held = max(self._held - 1, 0)
        slow = policy.shrink_above * self._best
        if self._average > slow or taken > slow / _SMOOTHING:
            if not self._held:
                # The loads that were under way at the same time say nothing new.
                self._held = self.width
                self._width = max(self._width / 2, 1.0)
        elif self._average <= policy.grow_below * self._best:
            self._width = min(self._width + 1 / self._width, float(policy.most))
