"""Visits many tables, several at a time, and notes where each was seen."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from delegation.identifiers import TableIdentifier
from delegation.references.model import TableEntry
from delegation.references.passes.names import PassNames
from delegation.references.passes.rate import AdaptiveWidth, WidthPolicy
from delegation.references.passes.sightings import Sightings
from delegation.references.passes.turns import Position, Turn, position_of
from delegation.references.visiting.visits import Absence, Visitor


@dataclass(frozen=True, slots=True)
class TableVisit:
    """A visit; names up to `before` had begun earlier. The other fields are arguments of `Visitor.visit`."""

    identifier: TableIdentifier
    turn: Turn
    before: Position
    known: TableEntry | None
    displacing: frozenset[str]
    cloned: bool


class Visits:
    """Visits in progress, whose results are taken in the order of their beginning."""

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
        """Visits replace the entries of `names`; `seconds` is a monotonic clock, and names up to `loaded_to` were
        visited before."""
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
        """Make a visit, maybe in another thread; return its result and its seconds."""
        began = self._seconds()
        found = self._visitor.visit(visit.identifier, visit.known, visit.displacing, cloned=visit.cloned)
        return found, self._seconds() - began

    def unanswered(self, visit: TableVisit, error: Exception, number: int) -> TableEntry:
        """Record a visit without an answer."""
        return self._visitor.unanswered(visit.identifier, error, number, visit.displacing, cloned=visit.cloned)

    def took(
        self, one: TableVisit, entry: TableEntry | Absence, seconds: float | None = None
    ) -> tuple[TableIdentifier, bool, bool]:
        """Record a visit's result; return its name, whether that moves the position, and whether there is a table."""
        identifier, moves = one.identifier, one.turn is Turn.IN_ORDER
        if seconds is not None:
            self._width.answered(seconds)
        if one.turn is not Turn.LATER and self._seen.is_new(identifier):
            # Its table may have been renamed, while it was to be loaded, to any name that was begun before or beside.
            beside = one.before if self._loaded_to == position_of(identifier) else self._loaded_to
            uuid = None if isinstance(entry, Absence) else entry.table_uuid
            self._seen.new(identifier, uuid, beside, early=one.turn is Turn.EARLY)
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
