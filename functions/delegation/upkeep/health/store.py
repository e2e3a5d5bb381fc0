from collections.abc import Iterator
from dataclasses import replace
from threading import Lock
from typing import Protocol

from delegation.identifiers import TableIdentifier
from delegation.upkeep.errors import HealthChanged
from delegation.upkeep.health.model import ReadState, TableHealth


class HealthStore(Protocol):
    """A health for each table of a catalog, and what was read of the table. Methods raise HealthUnavailable, writes
    also HealthOutcomeUnknown; they may be repeated."""

    def healths(self, catalog: str) -> Iterator[TableHealth]: ...

    def health(self, identifier: TableIdentifier) -> TableHealth | None:
        """Read one table's health consistently."""
        ...

    def read_state(self, identifier: TableIdentifier) -> ReadState:
        """Return what was read of a table; an empty state if nothing is stored."""
        ...

    def put(self, health: TableHealth, state: ReadState | None = None) -> TableHealth:
        """Replace a table's health, bounded, by the next revision; return it as stored. Raises HealthChanged unless the
        stored one has the revision of `health`, 0 for none. The state is stored first, whatever the revision: manifests
        never change, so it fits another health too."""
        ...

    def remove(self, health: TableHealth) -> None:
        """Remove a table's health and state if it still has this revision; otherwise do nothing."""
        ...


class MemoryHealthStore:
    """HealthStore in memory, atomic under threads."""

    def __init__(self) -> None:
        self._healths: dict[TableIdentifier, TableHealth] = {}
        self._states: dict[TableIdentifier, ReadState] = {}
        self._lock = Lock()

    def healths(self, catalog: str) -> Iterator[TableHealth]:
        with self._lock:
            return iter([one for identifier, one in self._healths.items() if identifier.catalog == catalog])

    def health(self, identifier: TableIdentifier) -> TableHealth | None:
        with self._lock:
            return self._healths.get(identifier)

    def read_state(self, identifier: TableIdentifier) -> ReadState:
        with self._lock:
            return self._states.get(identifier, ReadState())

    def put(self, health: TableHealth, state: ReadState | None = None) -> TableHealth:
        with self._lock:
            if state is not None:
                self._states[health.identifier] = state.bounded()
            stored = self._healths.get(health.identifier)
            if (0 if stored is None else stored.revision) != health.revision:
                raise HealthChanged(f"another process wrote the health of {health.identifier}; read it again")
            written = replace(health.bounded(), revision=health.revision + 1)
            self._healths[health.identifier] = written
            return written

    def remove(self, health: TableHealth) -> None:
        with self._lock:
            stored = self._healths.get(health.identifier)
            if stored is not None and stored.revision == health.revision:
                del self._healths[health.identifier]
                self._states.pop(health.identifier, None)
