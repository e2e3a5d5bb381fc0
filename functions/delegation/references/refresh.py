"""A pass over a catalog: every table is loaded once, on a condition, and read again only where it changed.

One process at a time has a catalog's pass. It writes its position as it goes, so a pass whose owner stopped is
continued by another process. Purges that need the same catalog share the pass.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from delegation.identifiers import TableIdentifier
from delegation.references.errors import PassLost, ReferencesError, ReferencesNotKnown
from delegation.references.listing import Listing
from delegation.references.model import CatalogPass, TableEntry
from delegation.references.store import ReferenceStore
from delegation.references.visits import ReadTable, VisitedCatalog, Visitor

OWNED_FOR: Final = timedelta(seconds=60)
TABLES_A_WRITE: Final = 50
"""Tables between two writes of the position."""
MOST_LISTINGS: Final = 5
"""Of the catalog after the first in one pass: each but the last found tables that the ones before did not have."""


class ListedCatalog(VisitedCatalog, Protocol):
    """As much of a catalog as a pass needs; PolarisClient is one and says what each method raises."""

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]: ...

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]: ...


@dataclass(frozen=True)
class Refresher:
    """Refreshes the index of one catalog.

    `owner` names this process. `pace` returns when the next request to the catalog may go, `checkpoint` before each
    table and raises to stop; `report` gets the number of tables that the pass has checked. `max_age` is how old a left
    pass may be to be continued, and a complete one to be enough.
    """

    store: ReferenceStore
    catalog: ListedCatalog
    read: ReadTable
    owner: str
    max_age: timedelta
    clock: Callable[[], datetime]
    pace: Callable[[], None] = lambda: None
    checkpoint: Callable[[], None] = lambda: None
    report: Callable[[int], None] = lambda _checked: None

    def ensure_fresh(self, catalog: str) -> CatalogPass:
        """The state of a catalog whose index is complete and new enough; refreshes it if no other process does.

        Raises ReferencesNotKnown when another process has the pass, PassLost when it took it over meanwhile,
        NoSuchCatalog and the transient errors of Polaris and of the store: the same call continues the pass.
        """
        state = self.store.pass_of(catalog)
        now = self.clock()
        if state.is_fresh(now, self.max_age):
            return state
        if state.is_owned(now) and state.owner != self.owner:
            raise ReferencesNotKnown(catalog, state.checked, state.tables)
        try:
            claimed = self.store.write_pass(state, self._claimed(state, now))
        except PassLost as error:
            raise ReferencesNotKnown(catalog, state.checked, state.tables) from error
        return self._run(claimed)

    def _claimed(self, state: CatalogPass, now: datetime) -> CatalogPass:
        owned = replace(state, owner=self.owner, owned_until=now + OWNED_FOR)
        if state.may_be_continued(now, self.max_age):
            return owned
        return replace(owned, began_at=now, position=None, checked=0)

    def _run(self, state: CatalogPass) -> CatalogPass:
        known = {entry.identifier: entry for entry in self.store.entries(state.catalog)}
        listed: set[TableIdentifier] = set()
        held = _HeldPass(self, state)
        try:
            for identifier in self._tables(state.catalog, held.renew):
                # A table without an entry was renamed to a name that the pass had left behind.
                was_visited = state.position is not None and _position(identifier) <= state.position
                if not was_visited or identifier not in known:
                    self.checkpoint()
                    if not self._visit(identifier, known.get(identifier)):
                        continue
                    held.visited(identifier)
                listed.add(identifier)
            listed |= self._visit_renamed(state.catalog, known, listed, held.renew)
            for identifier in known.keys() - listed:
                self.store.remove(known[identifier])
            return held.complete(len(listed))
        finally:
            held.leave()

    def _visit_renamed(
        self,
        catalog: str,
        known: Mapping[TableIdentifier, TableEntry],
        listed: Set[TableIdentifier],
        renew: Callable[[], None],
    ) -> set[TableIdentifier]:
        """Visit the tables that were not listed before, until a new listing has none, and return them.

        A table that is renamed during a pass, to a name that was listed already, is in no listing but the next. New
        tables end that too: after MOST_LISTINGS those that are left were created after the pass began.
        """
        found: set[TableIdentifier] = set()
        for _ in range(MOST_LISTINGS):
            fresh = [one for one in self._tables(catalog, renew) if one not in listed and one not in found]
            for identifier in fresh:
                self.checkpoint()
                renew()
                if self._visit(identifier, known.get(identifier)):
                    found.add(identifier)
            if not fresh:
                break
        return found

    def find_renamed(self, catalog: str, gone: Collection[TableIdentifier]) -> None:
        """Enter the tables that have no entry, because one of those that are `gone` may have been renamed to them.

        That takes one listing, and a load for each table that is not in the index. Entries of tables that are gone are
        removed. Raises what `ensure_fresh` does.
        """
        known = {entry.identifier for entry in self.store.entries(catalog)}
        listed = set(self._tables(catalog))
        for identifier in sorted(listed - known, key=_position):
            self.checkpoint()
            self._visit(identifier, None)
        for identifier in gone:
            entry = None if identifier in listed else self.store.get(identifier)
            if entry is not None:
                self.store.remove(entry)

    def _tables(self, catalog: str, renew: Callable[[], None] = lambda: None) -> Iterator[TableIdentifier]:
        """Every table, in the order of `_position`, so that a position says which were visited.

        Of a namespace that may not be listed, those that are in the index. `renew` is called before each request,
        because a catalog may have many namespaces without tables.
        """
        listing = Listing(self.store, self.catalog, self.clock, catalog, renew=renew, pace=self.pace)
        for namespace in sorted(listing.namespaces()):
            yield from sorted(listing.tables(namespace), key=_position)
        listing.record()

    def _visit(self, identifier: TableIdentifier, known: TableEntry | None) -> bool:
        return Visitor(self.store, self.catalog, self.read, self.clock, self.pace).visit(identifier, known)

    def look_at(self, identifier: TableIdentifier) -> TableEntry | None:
        """Bring one table's entry up to date and return it; None if there is no such table."""
        there = self._visit(identifier, self.store.get(identifier))
        return self.store.get(identifier) if there else None


class _HeldPass:
    """A pass that this process owns: what was visited, written now and then."""

    def __init__(self, refresher: Refresher, state: CatalogPass) -> None:
        self._refresher = refresher
        self._state = state
        self._unwritten = 0
        self._position = state.position
        self._complete = False

    def visited(self, identifier: TableIdentifier) -> None:
        self._unwritten += 1
        self._position = _position(identifier)
        if self._unwritten >= TABLES_A_WRITE:
            self._write(owned_until=self._refresher.clock() + OWNED_FOR)
        self.renew()
        self._refresher.report(self._state.checked + self._unwritten)

    def renew(self) -> None:
        """Keep the pass for this process once half of its time has gone; raises PassLost."""
        now = self._refresher.clock()
        owned_until = self._state.owned_until
        if owned_until is None or now > owned_until - OWNED_FOR / 2:
            self._write(owned_until=now + OWNED_FOR)

    def leave(self) -> None:
        """Record the position of a pass that is not complete, so that another process continues it at once.

        Where that cannot be written, the pass is continued after OWNED_FOR.
        """
        if not self._complete:
            with suppress(ReferencesError):
                self._write(owned_until=None, owner=None)

    def complete(self, tables: int) -> CatalogPass:
        state = self._state
        done = CatalogPass(state.catalog, complete_as_of=state.began_at, tables=tables, revision=state.revision)
        written = self._refresher.store.write_pass(state, done)
        self._complete = True
        return written

    def _write(self, **changes: object) -> None:
        checked = self._state.checked + self._unwritten
        after = replace(self._state, position=self._position, checked=checked, **changes)  # type: ignore[arg-type]
        self._state = self._refresher.store.write_pass(self._state, after)
        self._unwritten = 0


def _position(identifier: TableIdentifier) -> tuple[str, ...]:
    """Sorts by namespace first: the empty level is below every name."""
    return (*identifier.namespace, "", identifier.name)
