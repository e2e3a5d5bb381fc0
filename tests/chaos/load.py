"""Which tables a run has, and when each is purged, and how: a pure function of the seed, the minutes and the number."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, repeat

TABLES_IN_A_NAMESPACE = 8
"""A purge reads the metadata of all other tables of its namespace."""
TWICE = 0.25
"""This share of the purges is asked for by two callers."""


class Make(StrEnum):
    """What a table is like."""

    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"
    """More files than are purged inline, so that the Spark engine purges it."""
    CLONED = "cloned"
    """Another table, which is not purged, was registered from its first snapshot and needs those files."""
    PROTECTED = "protected"
    """Its property gc.enabled is false: its purge fails before the first delete."""
    PLANNED = "planned"
    """Its purge is only planned (`dry_run`)."""
    LIVE = "live"
    """It is not purged."""


class Way(StrEnum):
    """How a caller asks for a purge."""

    SYNCHRONOUS = "synchronous"
    BACKGROUND = "background"


@dataclass(frozen=True, slots=True)
class TableOfLoad:
    """A table, and when and how its purge is asked for: `at` seconds after the beginning, by two callers if `twice`."""

    name: str
    namespace: str
    make: Make
    way: Way
    at: float
    twice: bool = False

    @property
    def is_purged(self) -> bool:
        """Whether its purge deletes files."""
        return self.make in {Make.SMALL, Make.MEDIUM, Make.LARGE, Make.CLONED}


def tables_for(minutes: float) -> int:
    """Return how many tables a run of that length has by default."""
    return int(min(200, max(24, 20 * minutes)))


FEWEST_TABLES = 13
"""Two tables of each make, and a small one."""


def load(seed: int, minutes: float, tables: int) -> tuple[TableOfLoad, ...]:
    """Return the tables in the order in which their purges are asked for, within the first four fifths of the run."""
    dice = random.Random(f"load {seed} {minutes:g} {tables}")
    makes = list(chain.from_iterable(_makes(tables)))
    dice.shuffle(makes)
    names = [f"t{number:04d}" for number in range(tables)]
    moments = sorted(dice.uniform(0, minutes * 60 * 0.8) for _ in names)
    return tuple(
        TableOfLoad(
            name, f"space{place // TABLES_IN_A_NAMESPACE:03d}", make, _way(make, dice), at, twice=dice.random() < TWICE
        )
        for place, (name, make, at) in enumerate(zip(names, makes, moments, strict=True))
    )


def _makes(tables: int) -> Iterator[Iterator[Make]]:
    shares = {Make.MEDIUM: 10, Make.LARGE: 50, Make.CLONED: 10, Make.PROTECTED: 25, Make.PLANNED: 20, Make.LIVE: 10}
    counts = {make: max(2, tables // every) for make, every in shares.items()}
    for make, count in counts.items():
        yield repeat(make, count)
    yield repeat(Make.SMALL, tables - sum(counts.values()))


def _way(make: Make, dice: random.Random) -> Way:
    if make not in {Make.SMALL, Make.MEDIUM, Make.CLONED}:
        return Way.BACKGROUND
    return Way.SYNCHRONOUS if dice.random() < 0.4 else Way.BACKGROUND
