"""Exponential backoff."""

import itertools
import math
from collections.abc import Iterator


def exponential(failures: int, first: float, longest: float, *, multiplier: float = 2.0) -> float:
    """Return the pause after that many failures in a row (from 1): `first`, multiplied each time, at most `longest`."""
    if first <= 0:
        return 0.0
    steps = max(failures - 1, 0)
    if first >= longest or steps * math.log(multiplier) >= math.log(longest / first):
        return longest
    return float(min(first * multiplier**steps, longest))


def pauses(first: float, longest: float, *, multiplier: float = 2.0) -> Iterator[float]:
    """Yield the growing pauses between polls, without end."""
    return (exponential(failures, first, longest, multiplier=multiplier) for failures in itertools.count(1))
