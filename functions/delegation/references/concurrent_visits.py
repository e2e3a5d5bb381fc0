"""Visits several tables at a time while the catalog answers fast.

An overloaded catalog answers later, or with 429 or 503, after which its client waits. Both appear as a longer time. The
number of loads grows by one after an answer to each load, while answers take about as long as for a single load. It is
halved when they take much longer (additive increase, multiplicative decrease), so other callers hardly wait. The time
of a single load is measured again at intervals, with one load in progress. Without that, the best time grew towards
that of concurrent loads, and 15 loads at once hit a catalog without capacity after 2,000 tables.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from delegation.identifiers import TableIdentifier
from delegation.references.model import TableEntry
from delegation.references.names import PassNames, Position, Turn, position_of
from delegation.references.sightings import Sightings
from delegation.references.visits import Absence, Visitor

MOST_AT_ONCE: Final = 16
_SMOOTHING: Final = 0.2
"""The weight of a new time in the average."""
_MEASURED_EVERY: Final = 1_000
"""Answers until single loads are timed again, because a catalog's usual time may change."""
_MEASURED: Final = 5
"""Single loads that are timed. The median counts, because one may have been answered with 429."""


@dataclass(frozen=True, slots=True)
class WidthPolicy:
    """`grow_below` and `shrink_above` are multiples of the shortest average time. At most `most` loads run at a time.
    Times below `unnoticed` seconds count as that many seconds: they vary several-fold without cause."""

    most: int = MOST_AT_ONCE
    grow_below: float = 2.0
    shrink_above: float = 4.0
    unnoticed: float = 0.005


class AdaptiveWidth:
    """Adapts the number of concurrent loads to the seconds that each took. Not thread-safe."""

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
        """Record the time of a single load. Loads that started before the measurement are not counted."""
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
                # Loads already in progress give no new information.
                self._held = self.width
                self._width = max(self._width / 2, 1.0)
        elif self._average <= policy.grow_below * self._best:
            self._width = min(self._width + 1 / self._width, float(policy.most))


@dataclass(frozen=True, slots=True)
class TableVisit:
    """A visit. Names up to `before` had started earlier. The other fields are arguments of `Visitor.visit`."""

    identifier: TableIdentifier
    turn: Turn
    before: Position
    known: TableEntry | None
    displacing: frozenset[str]
    cloned: bool


class Visits:
    """Visits in progress. Their results are taken in the order in which they started."""

    def __init__(
        self,
        visitor: Visitor,
        names: PassNames,
        seen: Sightings,
        *,
        at_once: int,
        seconds: Callable[[], float],
        loaded_to: Position = (),
    ) -> None:
        """Visits replace the entries of `names`. `seconds` is a monotonic clock. Names up to `loaded_to` were visited
        before."""
        self._visitor = visitor
        self._names = names
        self._seen = seen
        self._seconds = seconds
        self._width = AdaptiveWidth(WidthPolicy(most=at_once))
        self._loaded_to = loaded_to

    @property
    def width(self) -> int:
        return self._width.width

    def begun(self, turns: Iterable[tuple[TableIdentifier, Turn]]) -> Iterator[TableVisit]:
        for identifier, turn in turns:
            before = self._loaded_to
            self._loaded_to = max(before, position_of(identifier))
            known, displacing = self._names.entry(identifier), self._seen.displaced_at(identifier)
            if displacing and known is not None:
                displacing |= known.displaced
            cloned = known is not None and self._names.has_clone(identifier, known.table_uuid)
            yield TableVisit(identifier, turn, before, known, displacing, cloned)

    def load(self, visit: TableVisit) -> tuple[TableEntry | Absence, float]:
        """Make a visit, in any thread. Returns its result and the seconds until it was stored; the time of `visited`
        states nothing about the catalog."""
        began = self._seconds()
        entry, visited = self._visitor.read_once(visit.identifier, visit.known, visit.displacing, cloned=visit.cloned)
        taken = self._seconds() - began
        visited()
        return entry, taken

    def unanswered(self, visit: TableVisit, error: Exception, number: int) -> TableEntry:
        """Record a visit without an answer."""
        return self._visitor.unanswered(visit.identifier, error, number, visit.displacing, cloned=visit.cloned)

    def took(
        self, visit: TableVisit, entry: TableEntry | Absence, seconds: float | None = None
    ) -> tuple[TableIdentifier, bool, bool]:
        """Record a visit's result. Returns its name, whether that moves the position, and whether there is a table."""
        identifier, moves = visit.identifier, visit.turn is Turn.IN_ORDER
        if seconds is not None:
            self._width.answered(seconds)
        if visit.turn is not Turn.LATER and self._seen.is_new(identifier):
            # While the load was pending, its table may have been renamed to any name with an earlier or parallel load.
            beside = visit.before if self._loaded_to == position_of(identifier) else self._loaded_to
            uuid = None if isinstance(entry, Absence) else entry.table_uuid
            self._seen.new(identifier, uuid, beside, early=visit.turn is Turn.EARLY)
        if entry is Absence.GONE:
            self._seen.vanished(identifier, self._loaded_to)
        elif isinstance(entry, Absence):
            self._seen.lost(identifier, self._loaded_to, same=entry is Absence.EMPTIED)
        if isinstance(entry, Absence):
            return identifier, moves, False
        before = self._names.entry(identifier)
        if entry.problem is not None and (before is None or before.problem is None):
            self._seen.hidden(self._loaded_to)
        elif entry.table_uuid:
            self._seen.saw(identifier, entry.table_uuid, self._loaded_to)
        if entry is not before:
            self._names.replace(entry)
        return identifier, moves, True
