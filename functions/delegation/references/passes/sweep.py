"""Visiting many tables, several at a time, and noting where each was seen."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from delegation.identifiers import TableIdentifier
from delegation.references.model import TableEntry
from delegation.references.passes.rate import AdaptiveWidth, WidthPolicy
from delegation.references.passes.sightings import Position, Sightings, position_of
from delegation.references.visiting.visits import Absence, Visitor


class Visits:
    """Visits under way, whose results are taken in the order in which they began."""

    def __init__(
        self,
        visitor: Visitor,
        known: dict[TableIdentifier, TableEntry],
        seen: Sightings,
        *,
        at_once: int,
        seconds: Callable[[], float],
    ) -> None:
        """`known` are the entries, which visits replace; `seconds` is a monotonic clock."""
        self._visitor = visitor
        self._known = known
        self._seen = seen
        self._seconds = seconds
        self._width = AdaptiveWidth(WidthPolicy(most=at_once))
        self._pool = ThreadPoolExecutor(at_once, "visit") if at_once > 1 else None
        self._ahead: deque[tuple[TableIdentifier, bool, Callable[[], tuple[TableEntry | Absence, float]]]] = deque()
        self._loaded_to: Position = ()

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

    def begin(self, identifier: TableIdentifier, moves: bool) -> None:
        """Begin a visit."""
        self._loaded_to = max(self._loaded_to, position_of(identifier))
        known, displacing = self._known.get(identifier), self._seen.displaced_at(identifier)
        if displacing and known is not None:
            displacing |= known.displaced

        def visit() -> tuple[TableEntry | Absence, float]:
            began = self._seconds()
            entry = self._visitor.visit(identifier, known, displacing)
            return entry, self._seconds() - began

        self._ahead.append((identifier, moves, visit if self._pool is None else self._pool.submit(visit).result))

    def take(self) -> tuple[TableIdentifier, bool, bool]:
        """Wait for the first visit; return its name, whether that moves the position, and whether there is a table."""
        identifier, moves, result = self._ahead.popleft()
        entry, seconds = result()
        self._width.answered(seconds)
        if entry is Absence.GONE:
            self._seen.vanished(identifier, self._loaded_to)
        elif isinstance(entry, Absence):
            self._seen.lost(identifier, self._loaded_to, same=entry is Absence.EMPTIED)
        if isinstance(entry, Absence):
            return identifier, moves, False
        before = self._known.get(identifier)
        if entry.problem is not None and (before is None or before.problem is None):
            self._seen.hidden(self._loaded_to)
        elif entry.table_uuid:
            self._seen.saw(identifier, entry.table_uuid, self._loaded_to)
        self._known[identifier] = entry
        return identifier, moves, True
