"""A pass over a catalog: every table is loaded once, on a condition, and read again only where it changed.

One process at a time has a catalog's pass. It writes its position as it goes, so a pass whose owner stopped is
continued by another process. Purges that need the same catalog share the pass.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from delegation.identifiers import TableIdentifier
from delegation.references.errors import PassLost, ReferencesNotKnown
from delegation.references.model import LONGEST_PAUSE, CatalogPass, PassNeeded, TableEntry
from delegation.references.passes.held import OWNED_FOR, HeldPass
from delegation.references.passes.sightings import Position, Sightings, position_of
from delegation.references.passes.sweep import Turn, Visits
from delegation.references.store import ReferenceStore
from delegation.references.visiting.listing import CatalogListing, GenericTables
from delegation.references.visiting.visits import ReadTable, VisitedCatalog, Visitor

_FEW: Final = 10
"""Names without an entry are few if there are so many times as many with one."""
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
    table and raises to stop; `report` gets the number of tables that the pass has checked. An `eager` one begins a pass
    at once, because a caller waits; others leave as long between two passes as one took. At most `at_once` tables are
    loaded at a time, by `seconds`, a monotonic clock. At `until` on that clock an unfinished pass is left.
    """

    store: ReferenceStore
    catalog: ListedCatalog
    read: ReadTable
    owner: str
    clock: Callable[[], datetime]
    pace: Callable[[], None] = lambda: None
    checkpoint: Callable[[], None] = lambda: None
    report: Callable[[int], None] = lambda _checked: None
    eager: bool = False
    at_once: int = 1
    seconds: Callable[[], float] = time.monotonic
    until: float = math.inf
    generic: GenericTables | None = None

    def ensure_fresh(self, catalog: str, max_age: timedelta) -> CatalogPass:
        """Return the state of a catalog after a complete pass that began `max_age` ago at most, or just now.

        Raises what `ensure` does.
        """
        return self.ensure(catalog, PassNeeded(None, max_age))

    def ensure(self, catalog: str, needed: PassNeeded, *, state: CatalogPass | None = None) -> CatalogPass:
        """Return the state of a catalog whose last complete pass is `needed`; make one if no other process does.

        A pass that its owner left is completed first, even if a later one is needed: other purges wait for it. `state`
        saves the first read. Raises ReferencesNotKnown when another process has the pass or the time is over, PassLost
        when another took it over meanwhile, NoSuchCatalog and the transient errors of Polaris and of the store: the
        same call continues the pass.
        """
        while True:
            state, now = state or self.store.pass_of(catalog), self.clock()
            if needed.is_met_by(state, now):
                return state
            if state.is_owned(now) and state.owner != self.owner:
                raise self._not_known(state, now, needed)
            begins = state.next_begins_at
            if state.began_at is None and not self.eager and begins is not None and now < begins:
                raise ReferencesNotKnown(catalog, state.checked, state.tables, begins - now)
            try:
                claimed = self.store.write_pass(state, self._claimed(state, now))
            except PassLost as error:
                raise self._not_known(state, now, needed) from error
            state = self._run(claimed)
            if needed.after is None and state.complete == claimed.number:
                return state

    def _not_known(self, state: CatalogPass, now: datetime, needed: PassNeeded) -> ReferencesNotKnown:
        """Return the error with the time until the pass that is needed should be complete."""
        wait = None
        if state.began_at is not None and state.complete:
            wait = max(state.began_at + state.duration - now, timedelta(0))
            if needed.after is not None and state.number <= needed.after:
                wait += min(state.duration, LONGEST_PAUSE) + state.duration
        return ReferencesNotKnown(state.catalog, state.checked, state.tables, wait)

    def _claimed(self, state: CatalogPass, now: datetime) -> CatalogPass:
        owned = replace(state, owner=self.owner, owned_until=now + OWNED_FOR)
        if not state.may_be_continued(now):
            number = state.number + 1
            begun = replace(owned, number=number, began_at=now, position=None, checked=0)
            return replace(begun, again_to=None, again=False, strayed=False, moved_again=False)
        if state.again or state.position is None or state.complete:
            return owned
        # A table that the index did not know leaves no trace, and a first pass knows none.
        return replace(owned, again_to=max(state.again_to or (), state.position))

    def _run(self, state: CatalogPass) -> CatalogPass:
        known = {entry.identifier: entry for entry in self.store.entries(state.catalog)}
        seen = Sightings(known, continued=state.position is not None or state.again)
        held = HeldPass(self.store, state, seen, clock=self.clock, report=self.report)
        try:
            listed = list(self._tables(state.catalog, held.renew, self.generic))
            if state.position is not None:
                # Their names were listed when the pass began, and are behind its position now or dropped.
                for identifier in known.keys() - set(listed):
                    if position_of(identifier) > state.position:
                        seen.vanished(identifier, state.position)
            if not held.again:
                self._sweep(_in_turn(listed, known, state.position), known, held, seen)
                listed = self._visit_new(state.catalog, listed, known, held, seen)
                beyond = held.missing_to() or ()
                disputed = [one for one in sorted(seen.disputed, key=position_of) if position_of(one) > beyond]
                everything = max(map(position_of, listed), default=())
                self._sweep([(one, Turn.LATER) for one in disputed], known, held, seen, loaded_to=everything)
                held.begin_again()
            if held.again_to is not None:
                seen.begin_again()
                to = held.again_to
                near = [one for one in listed if position_of(one) <= to]
                turns = _in_turn(near, known, held.position)
                again = ((one, Turn.LATER if turn is Turn.EARLY else turn) for one, turn in turns)
                self._sweep(again, known, held, seen)
                listed = self._visit_new(state.catalog, listed, known, held, seen)
            there = {one for one in listed if not seen.is_absent(one)}
            for identifier in known.keys() - there:
                held.renew()
                self._retire(known[identifier], moved=seen.may_have_moved(identifier))
            return held.complete(len(there))
        finally:
            held.leave()

    def _retire(self, entry: TableEntry, *, moved: bool) -> None:
        """Mark the entry of a name without a table, or remove it if it was marked by an earlier pass.

        A process that was paused may do this late. It then finds the entry that it read, or none: a pass that saw the
        table meanwhile has replaced a marked entry.
        """
        if entry.absent:
            self.store.remove(entry)
            return
        displaced = entry.displaced | ({entry.table_uuid} if moved else frozenset())
        after = replace(entry, absent=True, displaced=displaced, etag=None)
        with suppress(PassLost):
            self.store.put(after if displaced else replace(after, areas=(), problem=None))

    def _visit_new(
        self,
        catalog: str,
        listed: Collection[TableIdentifier],
        known: dict[TableIdentifier, TableEntry],
        held: HeldPass,
        seen: Sightings,
    ) -> list[TableIdentifier]:
        """Visit the tables that were not listed before, until a new listing has none, and return the last listing.

        A table that is renamed during a pass, to a name that no table had, is in no listing but the next. New tables
        end that too: after MOST_LISTINGS those that are left were created after the pass began.
        """
        visited = set(listed)
        now: list[TableIdentifier] = []
        for _ in range(MOST_LISTINGS):
            now = list(self._tables(catalog, held.renew))
            fresh = [one for one in now if one not in visited]
            everything = max(map(position_of, visited), default=())
            self._sweep([(one, Turn.LATER) for one in fresh], known, held, seen, loaded_to=everything)
            visited.update(fresh)
            if not fresh:
                break
        last = max(map(position_of, visited), default=())
        for gone in visited - set(now):
            seen.vanished(gone, last)
        return now

    def _sweep(
        self,
        names: Iterable[tuple[TableIdentifier, Turn]],
        known: dict[TableIdentifier, TableEntry],
        held: HeldPass,
        seen: Sightings,
        *,
        loaded_to: Position = (),
    ) -> None:
        """Visit names in order, several at a time, after those up to `loaded_to`."""
        visitor, at_once = self._visitor(), self.at_once
        with Visits(visitor, known, seen, at_once=at_once, seconds=self.seconds, loaded_to=loaded_to) as visits:
            for identifier, turn in names:
                self.checkpoint()
                if self.seconds() >= self.until:
                    raise held.left()
                held.renew()
                visits.begin(identifier, turn)
                while visits.are_full:
                    held.visited(*visits.take())
            while visits.under_way:
                held.visited(*visits.take())

    def _tables(
        self, catalog: str, renew: Callable[[], None] = lambda: None, generic: GenericTables | None = None
    ) -> Iterator[TableIdentifier]:
        """Every table, in the order of `position_of`, so that a position says which were visited.

        Of a namespace that may not be listed, those that are in the index. `renew` is called before each request,
        because a catalog may have many namespaces without tables.
        """
        listing = CatalogListing(
            self.store, self.catalog, self.clock, catalog, renew=renew, pace=self.pace, generic=generic
        )
        for namespace in sorted(listing.namespaces()):
            yield from sorted(listing.tables(namespace), key=position_of)
        listing.record()

    def _visitor(self) -> Visitor:
        return Visitor(self.store, self.catalog, self.read, self.clock, self.pace)

    def look_at(self, identifier: TableIdentifier) -> TableEntry | None:
        """Bring one table's entry up to date and return it; None if there is no such table.

        If another table has the name by now, the areas of the former one stay in its entry until the next pass.
        """
        known = self.store.get(identifier)
        former = frozenset() if known is None else known.displaced | {known.table_uuid}
        there = self._visitor().visit(identifier, known, former)
        return self.store.get(identifier) if isinstance(there, TableEntry) else None


def _in_turn(
    listed: Sequence[TableIdentifier], known: Mapping[TableIdentifier, TableEntry], position: Position | None
) -> list[tuple[TableIdentifier, Turn]]:
    """Return the names to visit after a position, each with its turn.

    Names without an entry are visited whatever the position: tables were renamed to them. If they are few, they come
    first, because what the index does not know leaves no trace when it is renamed before its visit.
    """
    new = [one for one in listed if one not in known or known[one].absent]
    first = set(new) if len(new) * _FEW <= len(known) else set()
    rest = [
        one
        for one in listed
        if one not in first and (position is None or one not in known or position_of(one) > position)
    ]
    return [*((one, Turn.EARLY) for one in new if first), *((one, Turn.IN_ORDER) for one in rest)]
