"""A pass over a catalog: every table is loaded once, on a condition, and read again only where it changed.

One process at a time has a catalog's pass. It writes its position as it goes, so a pass whose owner stopped is
continued by another process. Purges that need the same catalog share the pass.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, Protocol, TypeVar

from delegation.identifiers import TableIdentifier
from delegation.references.errors import PassLost, ReferencesError, ReferencesNotKnown
from delegation.references.model import LONGEST_PAUSE, CatalogPass, PassNeeded, TableEntry
from delegation.references.passes.held import OWNED_FOR, HeldPass
from delegation.references.passes.names import PassNames
from delegation.references.passes.sightings import Sightings
from delegation.references.passes.sweep import Visits
from delegation.references.passes.turns import Position, Turn
from delegation.references.store import ReferenceStore
from delegation.references.visiting.listing import CatalogListing, GenericTables
from delegation.references.visiting.visits import ReadTable, VisitedCatalog, Visitor, with_displaced

T = TypeVar("T")

_TABLES_A_RENEWAL: Final = 500
"""Between two looks whether the pass has to be kept, while the index is read or a namespace is listed."""
LEAST_SECONDS: Final = 5.0
"""Of visits, before a process leaves a pass because its time is over."""
MOST_LISTINGS: Final = 5
"""Of the catalog after the first in one pass: each but the last found tables that the ones before did not have."""

_MOST_STALE: Final = 10_000
"""Names that are visited at a time because they have lost their tables."""


class ListedCatalog(VisitedCatalog, Protocol):
    """As much of a catalog as a pass needs; PolarisClient is one and documents what each method raises."""

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
        continued = state.position is not None or state.again
        with PassNames(state.catalog, continued=continued) as names:
            seen = Sightings(names, continued=continued, again=state.again)
            held = HeldPass(self.store, state, seen, clock=self.clock, report=self.report)
            try:
                names.know(_kept(self.store.entries(state.catalog), held.renew))
                return self._pass_over(_Pass(state.catalog, names, held, seen), state.position)
            finally:
                if not held.is_complete:
                    # The next process does not know what this one saw, and may meet them.
                    with suppress(ReferencesError):
                        self._remember(names)
                held.leave()

    def _pass_over(self, one: "_Pass", position: Position | None) -> CatalogPass:
        """Visit what is left of a pass after a position, and complete it."""
        names, held, seen = one.names, one.held, one.seen
        self._list(one, self.generic)
        if position is not None:
            # Their names were listed when the pass began, and are behind its position now or dropped.
            for identifier in names.known_unlisted(position):
                seen.vanished(identifier, position)
        if not held.again:
            self._sweep(one, names.in_turn(position))
            self._visit_new(one)
            disputed = names.disputed(held.missing_to() or ())
            self._sweep(one, _later(disputed), loaded_to=names.last_visited())
            held.begin_again()
        if held.again_to is not None:
            seen.begin_again()
            turns = names.in_turn(held.position, held.again_to)
            self._sweep(one, ((name, Turn.LATER if turn is Turn.EARLY else turn) for name, turn in turns))
            self._visit_new(one)
            self._visit_stale(one)
        if held.moved_again:
            self._remember(names)
        for identifier in names.without_table():
            held.renew()
            entry = names.entry(identifier)
            if entry is not None:
                missed = held.moved_again and names.is_missed(identifier)
                self._retire(entry, moved=missed or seen.may_have_moved(identifier))
        return held.complete(names.tables())

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

    def _visit_new(self, one: "_Pass") -> None:
        """Visit the tables that were not listed before, until a new listing has none.

        A table that is renamed during a pass, to a name that no table had, is in no listing but the next. New tables
        end that too: after MOST_LISTINGS those that are left were created after the pass began.
        """
        names = one.names
        names.begin_new()
        for _ in range(MOST_LISTINGS):
            self._list(one)
            if not names.has_new():
                break
            self._sweep(one, _later(names.new()), loaded_to=names.last_visited())
        last = names.last_visited()
        for gone in names.left():
            one.seen.vanished(gone, last)

    def _visit_stale(self, one: "_Pass") -> None:
        """Visit the names that have lost their tables since, while a table that the index knew was met under no name.

        It may have been renamed to one of these behind both visits. A catalog whose names always change ends that:
        what is not met by then is remembered.
        """
        for _ in range(MOST_LISTINGS):
            stale = list(islice(one.names.stale(), _MOST_STALE)) if one.names.has_missed() else []
            if not stale:
                return
            self._sweep(one, _later(stale), loaded_to=one.names.last_visited())

    def _remember(self, names: PassNames) -> None:
        """Keep the areas of tables that were met under no name, until the next pass: each may have any other name."""
        for now, former, uuid in names.missed():
            with suppress(PassLost):
                self.store.put(with_displaced(now, former, now.displaced | {uuid}))

    def _sweep(self, one: "_Pass", turns: Iterable[tuple[TableIdentifier, Turn]], *, loaded_to: Position = ()) -> None:
        """Visit names in order, several at a time, after those up to `loaded_to`."""
        # Each process makes some headway, however long the listing and the entries of a catalog take.
        until = max(self.until, self.seconds() + LEAST_SECONDS)
        visits = Visits(
            self._visitor(), one.names, one.seen, at_once=self.at_once, seconds=self.seconds, loaded_to=loaded_to
        )
        with visits:
            for identifier, turn in turns:
                self.checkpoint()
                if self.seconds() >= until:
                    raise one.held.left()
                one.held.renew()
                visits.begin(identifier, turn)
                while visits.are_full:
                    one.held.visited(*visits.take())
            while visits.under_way:
                one.held.visited(*visits.take())

    def _list(self, one: "_Pass", generic: GenericTables | None = None) -> None:
        """List every table; of a namespace that may not be listed, those that are in the index.

        The pass is kept before each request, because a catalog may have many namespaces without tables, and now and
        then between the pages of a long one.
        """
        renew = one.held.renew
        listing = CatalogListing(
            self.store,
            self.catalog,
            self.clock,
            one.catalog,
            renew=renew,
            pace=self.pace,
            known_below=one.names.known_below,
            generic=generic,
        )

        def listed() -> Iterator[TableIdentifier]:
            for namespace in listing.namespaces():
                yield from _kept(listing.tables(namespace), renew)

        one.names.take_listing(listed())
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


@dataclass(frozen=True, slots=True)
class _Pass:
    """A pass that this process has: its names, and what was seen of them."""

    catalog: str
    names: PassNames
    held: HeldPass
    seen: Sightings


def _kept(items: Iterable[T], renew: Callable[[], None]) -> Iterator[T]:
    """Yield items that are read page by page, and keep the pass now and then, because they may be very many."""
    for number, item in enumerate(items):
        if number % _TABLES_A_RENEWAL == 0:
            renew()
        yield item


def _later(names: Iterable[TableIdentifier]) -> Iterator[tuple[TableIdentifier, Turn]]:
    return ((one, Turn.LATER) for one in names)
