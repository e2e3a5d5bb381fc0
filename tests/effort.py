"""How much work the generated tests do: little in each run, all of it in `make test THOROUGH=1`."""

import itertools
import os
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

C = TypeVar("C")
THOROUGH = "THOROUGH" in os.environ


def examples(most: int) -> int:
    """Return how many examples a property gets: `most` in a thorough run, otherwise a third of them."""
    return most if THOROUGH else max(1, most // 3)


def sampled(cases: Iterable[C], short: Callable[[C], bool]) -> list[C | ParameterSet]:
    """Return the cases of a test; a short run plays those that are `short`, a thorough run all."""
    return [
        case if short(case) else pytest.param(*case if isinstance(case, tuple) else (case,), marks=pytest.mark.long)
        for case in cases
    ]


def every(number: int, cases: Iterable[C]) -> list[C | ParameterSet]:
    """Return the cases of a test; a short run plays every `number`th one, from the first on."""
    numbers = itertools.count()
    return sampled(cases, lambda _case: next(numbers) % number == 0)


def apart(calls: int) -> int:
    """Return how far apart the calls are at which a process is killed: each in a thorough run."""
    return 1 if THOROUGH else calls
