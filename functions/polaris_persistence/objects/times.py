"""The time that a process writes into objects, bounded by that of the database's answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

TOLERANCE: Final = 30_000_000
"""How many µs a wall clock may differ from the database's before it is corrected."""


@dataclass(frozen=True, slots=True)
class BoundedClock:
    """A wall clock in µs since 1970 that never differs by more than `tolerance` µs from the database's.

    `estimated` returns the database's time as far as it is known (Backend.estimated_time). A process with a wrong clock
    thus cannot claim to have written something long ago or in the future.
    """

    wall: Callable[[], int]
    estimated: Callable[[], int | None]
    tolerance: int = TOLERANCE

    def __call__(self) -> int:
        now, known = self.wall(), self.estimated()
        if known is None:
            return now
        return min(max(now, known - self.tolerance), known + self.tolerance)
