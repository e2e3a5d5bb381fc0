"""Totals of a long run, printed as it goes: somebody who watches sees at once that it is wrong, or that it hangs."""

import time
from collections.abc import Callable

from tests.kit.printing import print_now


class Running:
    """Prints the newest line at most every `every` seconds; `end` prints the last one if it was not printed."""

    def __init__(
        self,
        print_line: Callable[[str], object] = print_now,
        *,
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._print = print_line
        self._every = every
        self._clock = clock
        self._printed_at = clock()
        self._waiting: str | None = None

    def note(self, line: str) -> None:
        """Print a line, unless another was printed just before."""
        self._waiting = line
        if self._clock() - self._printed_at >= self._every:
            self.end()

    def end(self) -> None:
        """Print the line that waits, if any."""
        if self._waiting is not None:
            self._print(self._waiting)
            self._printed_at, self._waiting = self._clock(), None
