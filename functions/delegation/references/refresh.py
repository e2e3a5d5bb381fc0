"""A pass over a catalog. Every table is loaded once, conditionally, and read again only if it changed. One process at a
time owns a catalog's pass and writes its position, so another can continue it. Purges that need the same catalog share
the pass."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from delegation.identifiers import TableIdentifier
from delegation.items import IN_A_ROW, each_item, is_answer
from delegation.polaris.answers import PolarisError
from delegation.references.blocking import Blocking
from delegation.references.catalog_listing import CatalogListing, GenericTables
from delegation.references.concurrent_visits import TableVisit, Visits
from delegation.references.errors import PassLost, ReferencesError, ReferencesNotKnown
from delegation.references.model import LONGEST_PAUSE, UNANSWERED_PASSES, CatalogPass, PassNeeded, TableEntry
from delegation.references.names import PassNames, Position, Turn
from delegation.references.owned_pass import OWNED_FOR, OwnedPass
from delegation.references.reading import problem_of, read_references
from delegation.references.sightings import Sightings
from delegation.references.store import ReferenceStore
from delegation.references.visits import (
    OpenStore,
    ReadTable,
    TableVisited,
    VisitedCatalog,
    Visitor,
    with_displaced,
)
from delegation.storage.base import ObjectStoreError
from polaris_common.errors import ErrorScope, shown

T = TypeVar("T")

_TABLES_A_RENEWAL: Final = 500
"""Items between two renewals of ownership, while the index is read or a namespace is listed."""
LEAST_SECONDS: Final = 5.0
"""The minimum time for visits before a process leaves a pass because its time is over."""
_PROBES: Final = 3
"""Tables that are probed to tell unreadable tables from an outage."""
MOST_LISTINGS: Final = 5
"""Listings of the catalog after the first in one pass. Each but the last had tables that are not in those before."""

_MOST_STALE: Final = 10_000
"""The maximum number of names that lost their tables and are visited at a time."""


class ListedCatalog(VisitedCatalog, Protocol):
    """The methods of a catalog that a pass needs; PolarisClient documents the errors."""

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]: ...

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]: ...


@dataclass(frozen=True)
class Refresher:
    """Refreshes the index of one catalog. `owner` names this process. `pace` returns when the next request to the
    catalog may be sent. `checkpoint` is called before each table and stops the pass by raising. `report` gets the
    number of tables checked. An `eager` refresher starts a pass at once, because a caller waits; others pause between
    two passes for as long as one took. At most `at_once` tables are loaded at a time. An unfinished pass is left at
    `until` on `seconds`, a monotonic clock. `visited` is called with each changed table (`Visitor`)."""

    store: ReferenceStore
    catalog: ListedCatalog
    open_store: OpenStore
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
    read: ReadTable = read_references
    visited: TableVisited | None = None

    def ensure_fresh(self, catalog: str, max_age: timedelta) -> CatalogPass:
        """Return a catalog's state after a complete pass that started at most `max_age` ago. Raises as `ensure`."""
        return self.ensure(catalog, PassNeeded(None, max_age))

    def ensure(self, catalog: str, needed: PassNeeded, *, state: CatalogPass | None = None) -> CatalogPass:
        """Return the state of a catalog whose last complete pass is `needed`. Makes a pass unless another process does.
        A pass that its owner left is completed first, even if a later one is needed: other purges wait for it. `state`
        saves the first read. Raises ReferencesNotKnown if another process has the pass or the time is over, PassLost if
        another took it over, NoSuchCatalog, and the transient errors of Polaris and the store. The same call then
        continues."""
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
        wait = None
        if state.began_at is not None and state.complete:
            wait = max(state.began_at + state.duration - now, timedelta(0))
            if needed.after is not None and state.number <= needed.after:
                wait += min(state.duration, LONGEST_PAUSE) + state.duration
        return ReferencesNotKnown(state.catalog, state.checked, state.tables, wait, problem=state.problem)

    def _claimed(self, state: CatalogPass, now: datetime) -> CatalogPass:
        owned = replace(state, owner=self.owner, owned_until=now + OWNED_FOR)
        if not state.may_be_continued(now):
            number = state.number + 1
            begun = replace(owned, number=number, began_at=now, position=None, checked=0)
            return replace(begun, again_to=None, again=False, strayed=False, moved_again=False)
        if state.again or state.position is None or state.complete:
            return owned
        # A table that the index did not know leaves no trace, and in a first pass all tables are unknown.
        return replace(owned, again_to=max(state.again_to or (), state.position))

    def _run(self, state: CatalogPass) -> CatalogPass:
        continued = state.position is not None or state.again
        with PassNames(state.catalog, continued=continued) as names:
            seen = Sightings(names, continued=continued, again=state.again)
            owned = OwnedPass(self.store, state, seen, clock=self.clock, report=self.report)
            catalog_pass = _Pass(state.catalog, names, owned, seen)
            try:
                names.know(catalog_pass.noted(_kept(self.store.entries(state.catalog), owned.renew)))
                return self._pass_over(catalog_pass, state.position)
            except (PolarisError, ObjectStoreError) as error:
                owned.failed(problem_of(error))
                raise
            finally:
                if not owned.is_complete:
                    # The next process does not know which tables this one saw, and may see them.
                    with suppress(ReferencesError):
                        self._remember(names)
                owned.leave()

    def _pass_over(self, catalog_pass: "_Pass", position: Position | None) -> CatalogPass:
        """Visit the tables after a position, and complete the pass."""
        names, owned, seen = catalog_pass.names, catalog_pass.owned, catalog_pass.seen
        self._list(catalog_pass, self.generic)
        if position is not None:
            # They were listed when the pass started. Their names are now behind its position, or they were dropped.
            for identifier in names.known_unlisted(position):
                seen.vanished(identifier, position)
        if not owned.again:
            self._sweep(catalog_pass, names.in_turn(position))
            self._visit_new(catalog_pass)
            disputed = names.disputed(owned.missing_to() or ())
            self._sweep(catalog_pass, _later(disputed), loaded_to=names.last_visited())
            owned.begin_again()
        if owned.again_to is not None:
            seen.begin_again()
            turns = names.in_turn(owned.position, owned.again_to)
            self._sweep(catalog_pass, ((name, Turn.LATER if turn is Turn.EARLY else turn) for name, turn in turns))
            self._visit_new(catalog_pass)
            self._visit_stale(catalog_pass)
        # A last try, long after the first. A pass in which any of them still gives no answer does not count.
        self._sweep(catalog_pass, _later(sorted(catalog_pass.doubted, key=str)), loaded_to=names.last_visited())
        if owned.moved_again:
            self._remember(names)

        def retire(identifier: TableIdentifier) -> None:
            entry = names.entry(identifier)
            if entry is not None:
                missed = owned.moved_again and names.is_missed(identifier)
                self._retire(entry, moved=missed or seen.may_have_moved(identifier))

        # An entry that cannot be marked or removed protects its areas until a later pass.
        self._each(names.without_table(), retire, name="references.retired", checkpoint=owned.renew)
        why = catalog_pass.why_incomplete()
        return owned.complete(names.tables()) if why is None else owned.incomplete(why)

    def _retire(self, entry: TableEntry, *, moved: bool) -> None:
        """Mark the entry of a name without a table, or remove it if an earlier pass marked it. This is safe in a
        process that was paused: a pass that saw the table meanwhile has replaced a marked entry."""
        if entry.absent:
            self.store.remove(entry)
            return
        displaced = entry.displaced | ({entry.table_uuid} if moved else frozenset())
        after = replace(entry, absent=True, displaced=displaced, etag=None)
        with suppress(PassLost):
            self.store.put(after if displaced else replace(after, areas=(), problem=None, unanswered=(), unread=None))

    def _visit_new(self, catalog_pass: "_Pass") -> None:
        """Visit the tables that were not listed before, until a listing has none. A table renamed to an unused name
        during a pass is only in the next listing. After MOST_LISTINGS the remaining tables were created after the pass
        started."""
        names = catalog_pass.names
        names.begin_new()
        for _ in range(MOST_LISTINGS):
            self._list(catalog_pass)
            if not names.has_new():
                break
            self._sweep(catalog_pass, _later(names.new()), loaded_to=names.last_visited())
        last = names.last_visited()
        for gone in names.left():
            catalog_pass.seen.vanished(gone, last)

    def _visit_stale(self, catalog_pass: "_Pass") -> None:
        """Visit the names that lost their tables, as long as a known table was not seen: it may have been renamed to
        one of them behind both visits. If names keep changing, the tables not seen by then are remembered."""
        for _ in range(MOST_LISTINGS):
            stale = list(islice(catalog_pass.names.stale(), _MOST_STALE)) if catalog_pass.names.has_missed() else []
            if not stale:
                return
            self._sweep(catalog_pass, _later(stale), loaded_to=catalog_pass.names.last_visited())

    def _remember(self, names: PassNames) -> None:
        """Keep the areas of tables that were not seen until the next pass. Each may have any other name."""

        def remember(missed: tuple[TableEntry, TableEntry, str]) -> None:
            now, former, uuid = missed
            with suppress(PassLost):
                self.store.put(with_displaced(now, former, now.displaced | {uuid}))

        failed = self._each(names.missed(), remember, name="references.remembered", in_a_row=None)
        if failed:
            raise failed[0]

    def _each(self, items: Iterable[T], act: Callable[[T], None], *, name: str, **options: Any) -> list[Exception]:
        """Call `act` for each item; return the errors of items that failed alone."""
        outcomes = each_item(
            items, act, name=name, clock=self.clock, stops=ErrorScope.CATALOG, most_wasted=timedelta.max, **options
        )
        return [outcome.error for outcome in outcomes if outcome.error is not None]

    def _sweep(
        self, catalog_pass: "_Pass", turns: Iterable[tuple[TableIdentifier, Turn]], *, loaded_to: Position = ()
    ) -> None:
        """Visit names in order, several at a time, after those up to `loaded_to`."""
        # Each process makes some progress, however long the listing and the catalog's entries take.
        until = max(self.until, self.seconds() + LEAST_SECONDS)
        visits = Visits(
            self._visitor(),
            catalog_pass.names,
            catalog_pass.seen,
            at_once=self.at_once,
            seconds=self.seconds,
            loaded_to=loaded_to,
        )
        failed: list[tuple[TableVisit, Exception]] = []

        def note_failed() -> None:
            for visit, error in failed:
                entry = visits.unanswered(visit, error, catalog_pass.owned.number)
                catalog_pass.doubt(entry)
                catalog_pass.owned.visited(*visits.took(visit, entry))
            failed.clear()

        def others_answer() -> bool:
            return self._answers(catalog_pass, {visit.identifier for visit, _ in failed})

        def checkpoint() -> None:
            self.checkpoint()
            if self.seconds() >= until:
                if failed and others_answer():
                    note_failed()
                raise catalog_pass.owned.left()
            catalog_pass.owned.renew()

        with ThreadPoolExecutor(self.at_once, "visit") if self.at_once > 1 else nullcontext() as pool:
            for outcome in each_item(
                visits.begun(turns),
                visits.load,
                name="references.visits",
                clock=self.clock,
                shown=lambda visit: str(visit.identifier),
                stops=ErrorScope.CATALOG,
                probe=others_answer,
                checkpoint=checkpoint,
                pool=pool,
                at_once=lambda: visits.width,
                most_wasted=timedelta.max,
            ):
                if outcome.error is not None:
                    failed.append((outcome.item, outcome.error))
                if outcome.result is not None or len(failed) > IN_A_ROW:  # the probe was answered
                    note_failed()
                if outcome.result is not None:
                    catalog_pass.owned.visited(*visits.took(outcome.item, *outcome.result))
                    catalog_pass.doubted.pop(outcome.item.identifier, None)
        if failed and not others_answer():
            raise failed[-1][1]
        note_failed()

    def _answers(self, catalog_pass: "_Pass", but: Collection[TableIdentifier]) -> bool:
        """Return whether the catalog answers for another table that was readable at the last visit."""
        for identifier in catalog_pass.names.readable(_PROBES + len(but)):
            if identifier in but:
                continue
            self.pace()
            entry = catalog_pass.names.entry(identifier)
            try:
                self.catalog.load_if_changed(identifier, None if entry is None else entry.etag)
            except PolarisError as error:
                if not is_answer(error):
                    continue
            return True
        return False

    def _list(self, catalog_pass: "_Pass", generic: GenericTables | None = None) -> None:
        """List every table; for a namespace that may not be listed, its tables in the index. Ownership is renewed
        before each request, because a catalog may have many empty namespaces, and regularly between pages."""
        renew = catalog_pass.owned.renew
        listing = CatalogListing(
            self.store,
            self.catalog,
            self.clock,
            catalog_pass.catalog,
            renew=renew,
            pace=self.pace,
            known_below=catalog_pass.names.known_below,
            generic=generic,
        )

        catalog_pass.names.begin_listing()
        for outcome in each_item(
            listing.namespaces(),
            lambda namespace: catalog_pass.names.list_names(_kept(listing.tables(namespace), renew)),
            name="references.namespaces",
            clock=self.clock,
            shown=".".join,
            stops=ErrorScope.CATALOG,
            most_wasted=timedelta.max,
        ):
            if outcome.error is not None:
                listing.note(outcome.item, outcome.error)
                catalog_pass.names.list_names(listing.known_in(outcome.item))
        catalog_pass.unlisted = listing.record(catalog_pass.owned.number)

    def _visitor(self) -> Visitor:
        return Visitor(self.store, self.catalog, self.open_store, self.read, self.clock, self.pace, self.visited)

    def look_at(self, identifier: TableIdentifier) -> TableEntry | None:
        """Update one table's entry and return it, None without a table. If another table has the name now, the former
        table's areas stay in the entry until the next pass."""
        known = self.store.get(identifier)
        former = frozenset() if known is None else known.displaced | {known.table_uuid}
        there = self._visitor().visit(identifier, known, former)
        return self.store.get(identifier) if isinstance(there, TableEntry) else None


@dataclass(slots=True)
class _Pass:
    """A pass that this process owns: its names, and the tables seen under them."""

    catalog: str
    names: PassNames
    owned: OwnedPass
    seen: Sightings
    doubted: dict[TableIdentifier, TableEntry] = field(default_factory=dict)
    unlisted: list[Blocking] = field(default_factory=list)

    def noted(self, entries: Iterable[TableEntry]) -> Iterator[TableEntry]:
        """Yield entries, and note those that an earlier process of this pass left without an answer."""
        for entry in entries:
            if entry.unanswered[-1:] == (self.owned.number,):
                self.doubt(entry)
            yield entry

    def doubt(self, entry: TableEntry) -> None:
        self.doubted.pop(entry.identifier, None)
        if entry.is_doubted:
            self.doubted[entry.identifier] = entry

    def why_incomplete(self) -> str | None:
        unreadable = [*map(Blocking.of, self.doubted.values()), *self.unlisted]
        if not unreadable:
            return None
        names = shown([str(blocking.subject) for blocking in unreadable])
        passes = max(len(blocking.unanswered) for blocking in unreadable)
        return (
            f"{names} could not be read in {passes} of {UNANSWERED_PASSES} passes, although other tables could. After "
            f"{UNANSWERED_PASSES} such passes, they count as unreadable. The first problem: {unreadable[0].problem}"
        )


def _kept(items: Iterable[T], renew: Callable[[], None]) -> Iterator[T]:
    """Yield items, and renew ownership regularly, because there may be very many."""
    for number, item in enumerate(items):
        if number % _TABLES_A_RENEWAL == 0:
            renew()
        yield item


def _later(names: Iterable[TableIdentifier]) -> Iterator[tuple[TableIdentifier, Turn]]:
    return ((name, Turn.LATER) for name in names)
