"""Visiting many tables, several at a time, and noting where each was seen."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

from delegation.identifiers import TableIdentifier
from delegation.references.model import TableEntry
from delegation.references.passes.names import PassNames
from delegation.references.passes.rate import AdaptiveWidth, WidthPolicy
from delegation.references.passes.sightings import Sightings
from delegation.references.passes.turns import Position, Turn, position_of
from delegation.references.visiting.visits import Absence, Visitor


@dataclass(frozen=True, slots=True)
class _Visit:
    """A visit under way; the names up to `before` had been begun earlier."""

    identifier: TableIdentifier
    turn: Turn
    before: Position
    result: Callable[[], tuple[TableEntry | Absence, float]]


class Visits:
    """Visits under way, whose results are taken in the order in which they began."""

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
        """Visits replace the entries of `names`; `seconds` is a monotonic clock.

        The names up to `loaded_to` were visited before these.
        """
        self._visitor = visitor
        self._names = names
        self._seen = seen
        self._seconds = seconds
        self._width = AdaptiveWidth(WidthPolicy(most=at_once))
        self._pool = ThreadPoolExecutor(at_once, "visit") if at_once > 1 else None
        self._ahead: deque[_Visit] = deque()
        self._loaded_to = loaded_to

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def under_way(self) -> int:
        return len(self._ahead)

    @property
    def are_full(self) -> bool:
        return len(self._ahead) >= self._width.width

    def begin(self, identifier: TableIdentifier, turn: Turn) -> None:
        """Begin a visit."""
        before = self._loaded_to
        self._loaded_to = max(before, position_of(identifier))
        known, displacing = self._names.entry(identifier), self._seen.displaced_at(identifier)
        if displacing and known is not None:
            displacing |= known.displaced
        cloned = known is not None and self._names.has_clone(identifier, known.table_uuid)

        def visit() -> tuple[TableEntry | Absence, float]:
            began = self._seconds()
            entry = self._visitor.visit(identifier, known, displacing, cloned=cloned)
            return entry, self._seconds() - began

        result = visit if self._pool is None else self._pool.submit(visit).result
        self._ahead.append(_Visit(identifier, turn, before, result))

    def take(self) -> tuple[TableIdentifier, bool, bool]:
        """Wait for the first visit; return its name, whether that moves the position, and whether there is a table."""
        one = self._ahead.popleft()
        identifier, moves = one.identifier, one.turn is Turn.IN_ORDER
        entry, seconds = one.result()
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
