"""A pass over a catalog: every table is loaded once, on a condition, and read again only where it changed.

One process at a time has a catalog's pass. It writes its position as it goes, so a pass whose owner stopped is
continued by another process. Purges that need the same catalog share the pass.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, Protocol, Self

from delegation.errors import GuardRefused
from delegation.iceberg.errors import CorruptManifestError, CorruptMetadata, ManifestMismatchError, ManifestMissing
from delegation.identifiers import TableIdentifier
from delegation.polaris.errors import (
    CredentialVendingFailed,
    NoSuchNamespace,
    NoSuchTable,
    PolarisForbidden,
    PolarisUnexpectedAnswer,
    TableMetadataMissing,
)
from delegation.polaris.model import LoadedTable
from delegation.references.errors import PassLost, ReferencesError, ReferencesNotKnown
from delegation.references.model import LONGEST_PAUSE, CatalogPass, PassNeeded, TableEntry, fold
from delegation.references.rate import AdaptiveWidth, WidthPolicy
from delegation.references.sightings import Sightings
from delegation.references.store import ReferenceStore
from delegation.storage.base import ObjectStoreError

OWNED_FOR: Final = timedelta(seconds=60)
TABLES_A_WRITE: Final = 100
"""Tables between two writes of the position."""
MOST_RACES: Final = 3
"""Loads of a table whose entry other processes write at the same time."""
_FEW: Final = 10
"""Names without an entry are few if there are so many times as many with one."""
MOST_LISTINGS: Final = 5
"""Of the catalog after the first in one pass: each but the last found tables that the ones before did not have."""
_GONE: Final = (NoSuchTable, NoSuchNamespace)
_LASTING: Final = (
    PolarisForbidden,
    PolarisUnexpectedAnswer,
    CredentialVendingFailed,
    ObjectStoreError,
    CorruptMetadata,
    CorruptManifestError,
    ManifestMismatchError,
    ManifestMissing,
    GuardRefused,
)
"""Errors that another try would meet again unless they are retryable, so that the entry records them."""


class ListedCatalog(Protocol):
    """As much of a catalog as a pass needs; PolarisClient is one and says what each method raises."""

    def load_if_changed(self, identifier: TableIdentifier, etag: str | None) -> LoadedTable | None: ...

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]: ...

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]: ...


class Absence(Enum):
    """Why a name has no table whose references could be known."""

    GONE = "dropped or renamed"
    LOST = "without a metadata file"
    EMPTIED = "without the metadata file that the index knows"


ReadTable = Callable[[LoadedTable, TableEntry | None], TableEntry]
"""Reads what a table loaded with vended credentials references; see `read_references`."""


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
            if needed.after is None:
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
            return replace(owned, number=number, began_at=now, position=None, checked=0, again_to=None, again=False)
        if state.again or state.position is None or state.complete:
            return owned
        # A table that the index did not know leaves no trace, and a first pass knows none.
        return replace(owned, again_to=max(state.again_to or (), state.position))

    def _run(self, state: CatalogPass) -> CatalogPass:
        known = {entry.identifier: entry for entry in self.store.entries(state.catalog)}
        seen = Sightings(known, continued=state.position is not None or state.again)
        held = _HeldPass(self, state, seen)
        try:
            listed = list(self._tables(state.catalog, held.renew))
            if state.position is not None:
                # Their names were listed when the pass began, and are behind its position now or dropped.
                for identifier in known.keys() - set(listed):
                    if _position(identifier) > state.position:
                        seen.vanished(identifier, state.position)
            if not held.again:
                self._sweep(_in_turn(listed, known, state.position), known, held, seen)
                listed = self._visit_new(state.catalog, listed, known, held, seen)
                self._sweep([(one, False) for one in sorted(seen.disputed, key=_position)], known, held, seen)
                held.begin_again()
            if held.again_to is not None:
                to = held.again_to
                near = [one for one in listed if _position(one) <= to]
                self._sweep(_in_turn(near, known, held.position), known, held, seen)
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
        areas = entry.areas if displaced else ()
        with suppress(PassLost):
            self.store.put(replace(entry, absent=True, displaced=displaced, areas=areas, etag=None, problem=None))

    def _visit_new(
        self,
        catalog: str,
        listed: Collection[TableIdentifier],
        known: dict[TableIdentifier, TableEntry],
        held: "_HeldPass",
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
            self._sweep([(one, False) for one in fresh], known, held, seen)
            visited.update(fresh)
            if not fresh:
                break
        last = max(map(_position, visited), default=())
        for gone in visited - set(now):
            seen.vanished(gone, last)
        return now

    def _sweep(
        self,
        names: Iterable[tuple[TableIdentifier, bool]],
        known: dict[TableIdentifier, TableEntry],
        held: "_HeldPass",
        seen: Sightings,
    ) -> None:
        """Visit names in order, several at a time; those with True move the position of the pass."""
        with _Visits(self, known, seen) as visits:
            for identifier, moves in names:
                self.checkpoint()
                if self.seconds() >= self.until:
                    raise held.left()
                held.renew()
                visits.begin(identifier, moves)
                while visits.are_full:
                    held.visited(*visits.take())
            while visits.under_way:
                held.visited(*visits.take())

    def find_new(self, catalog: str) -> list[TableEntry]:
        """Enter the tables that have no entry, because a known one may have been renamed to them, and return them.

        That takes one listing, and a load for each. Raises what `ensure` does.
        """
        known = {entry.identifier for entry in self.store.entries(catalog)}
        found = []
        for identifier in sorted(set(self._tables(catalog)) - known, key=_position):
            self.checkpoint()
            self.pace()
            found.append(self.visit(identifier, None))
        return [entry for entry in found if isinstance(entry, TableEntry)]

    def _tables(self, catalog: str, renew: Callable[[], None] = lambda: None) -> Iterator[TableIdentifier]:
        """Every table, in the order of `_position`, so that a position says which were visited.

        `renew` is called before each request, because a catalog may have many namespaces without tables.
        """
        for namespace in sorted(self._namespaces(catalog, (), renew)):
            renew()
            self.pace()
            try:
                tables = sorted(self.catalog.list_tables(catalog, namespace), key=_position)
            except NoSuchNamespace:
                continue
            yield from tables

    def _namespaces(
        self, catalog: str, parent: tuple[str, ...], renew: Callable[[], None]
    ) -> Iterator[tuple[str, ...]]:
        renew()
        self.pace()
        try:
            children = list(self.catalog.list_namespaces(catalog, parent))
        except NoSuchNamespace:
            return
        for namespace in children:
            yield namespace
            yield from self._namespaces(catalog, namespace, renew)

    def visit(
        self, identifier: TableIdentifier, known: TableEntry | None, displacing: frozenset[str] = frozenset()
    ) -> TableEntry | Absence:
        """Bring one table's entry up to date and return it, or why there is none.

        `displacing` are the uuids of tables that were seen under this name in the same pass: unless it still has the
        table, their areas stay in its entry. Raises PassLost when other processes keep writing the entry.
        """
        for _ in range(MOST_RACES):
            try:
                table = self.catalog.load_if_changed(identifier, _etag_of(known))
                if table is None and known is not None:
                    return known
                if table is None:
                    raise PolarisUnexpectedAnswer(f"Polaris has not changed {identifier}, which was never loaded")
                if known is not None and _is_whole(known) and _is_of(known, table):
                    return known
                stored = self.store.get(identifier)
                if _revision(stored) != _revision(known):
                    # Another process wrote it, perhaps from a later load than this one.
                    known = stored
                    continue
                entry = self.read(table, None if stored is None or stored.displaced else stored)
                entry = _with_displaced(entry, stored, displacing - {entry.table_uuid})
                entry = replace(entry, revision=_revision(stored))
            except _GONE:
                return Absence.GONE
            except TableMetadataMissing as error:
                # Polaris names the file; the table was purged, and is not dropped yet.
                same = known is not None and known.metadata_location and known.metadata_location in str(error)
                return Absence.EMPTIED if same else Absence.LOST
            except _LASTING as error:
                if error.retryable:
                    raise
                entry = _unreadable(identifier, known, f"{error.code}: {error}")
            self.store.put(entry)
            return replace(entry, seen=frozenset(), revision=entry.revision + 1)
        raise PassLost(f"other processes keep writing the references of {identifier}")


class _Visits:
    """Visits under way, whose results are taken in the order in which they began."""

    def __init__(self, refresher: Refresher, known: dict[TableIdentifier, TableEntry], seen: Sightings) -> None:
        self._refresher = refresher
        self._known = known
        self._seen = seen
        self._width = AdaptiveWidth(WidthPolicy(most=refresher.at_once))
        self._pool = ThreadPoolExecutor(refresher.at_once, "visit") if refresher.at_once > 1 else None
        self._ahead: deque[tuple[TableIdentifier, bool, Callable[[], tuple[TableEntry | Absence, float]]]] = deque()
        self._loaded_to: tuple[str, ...] = ()

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
        """Begin a visit as soon as the next request may go."""
        self._refresher.pace()
        self._loaded_to = max(self._loaded_to, _position(identifier))
        known, displacing = self._known.get(identifier), self._seen.displaced_at(identifier)
        if displacing and known is not None:
            displacing |= known.displaced

        def visit() -> tuple[TableEntry | Absence, float]:
            began = self._refresher.seconds()
            entry = self._refresher.visit(identifier, known, displacing)
            return entry, self._refresher.seconds() - began

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
            self._seen.hidden(identifier, self._loaded_to)
        elif entry.table_uuid:
            self._seen.saw(identifier, entry.table_uuid, self._loaded_to)
        self._known[identifier] = entry
        return identifier, moves, True


class _HeldPass:
    """A pass that this process owns: what was visited, written now and then."""

    def __init__(self, refresher: Refresher, state: CatalogPass, seen: Sightings) -> None:
        self._refresher = refresher
        self._state = state
        self._seen = seen
        self._inherited = state.again_to or ()
        self._unwritten = 0
        self.position = state.position
        self._complete = False

    @property
    def again(self) -> bool:
        """Whether tables are visited a second time."""
        return self._state.again

    @property
    def again_to(self) -> tuple[str, ...] | None:
        """Up to where tables are visited a second time, None if no table is."""
        return self._state.again_to if self._state.again else None

    def begin_again(self) -> None:
        """Begin the second visits, if this process or a former owner of the pass found that a table is missing."""
        furthest = self._missing_to()
        if furthest is not None:
            self.position = None
            self._write(again=True, again_to=furthest)

    def _missing_to(self) -> tuple[str, ...] | None:
        return max(self._inherited, self._seen.again_to() or ()) or None

    def visited(self, identifier: TableIdentifier, moves: bool, exists: bool) -> None:
        if exists:
            self._unwritten += 1
        if moves:
            self.position = _position(identifier)
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

    def left(self) -> ReferencesNotKnown:
        """Return the error of a pass that is left to the next process because the time of this one is over."""
        state = self._state
        return ReferencesNotKnown(state.catalog, state.checked + self._unwritten, state.tables, timedelta(0))

    def complete(self, tables: int) -> CatalogPass:
        state = self._state
        done = CatalogPass(
            state.catalog,
            complete_as_of=state.began_at,
            tables=tables,
            revision=state.revision,
            number=state.number,
            complete=state.number,
            completed_at=self._refresher.clock(),
        )
        written = self._refresher.store.write_pass(state, done)
        self._complete = True
        return written

    def _write(self, **changes: object) -> None:
        checked = self._state.checked + self._unwritten
        if not self._state.again:
            changes = {"again_to": self._missing_to(), **changes}
        after = replace(self._state, position=self.position, checked=checked, **changes)  # type: ignore[arg-type]
        self._state = self._refresher.store.write_pass(self._state, after)
        self._unwritten = 0


def _in_turn(
    listed: Sequence[TableIdentifier], known: Mapping[TableIdentifier, TableEntry], position: tuple[str, ...] | None
) -> list[tuple[TableIdentifier, bool]]:
    """Return the names to visit after a position, each with whether it moves that.

    Names without an entry are visited whatever the position: tables were renamed to them. If they are few, they come
    first, because what the index does not know leaves no trace when it is renamed before its visit.
    """
    new = [one for one in listed if one not in known]
    first = set(new) if len(new) * _FEW <= len(known) else set()
    rest = [
        one
        for one in listed
        if one not in first and (position is None or one not in known or _position(one) > position)
    ]
    return [*((one, False) for one in first), *((one, True) for one in rest)]


def _etag_of(known: TableEntry | None) -> str | None:
    """Return the ETag on whose condition a table is loaded; None where its entry has to be made anew."""
    return known.etag if known is not None and _is_whole(known) else None


def _is_whole(known: TableEntry) -> bool:
    """Return whether an entry is that of one table, which was read."""
    return known.problem is None and not known.displaced and not known.absent


def _is_of(known: TableEntry, table: LoadedTable) -> bool:
    return (known.metadata_location, known.table_uuid) == (table.metadata_location, table.table_uuid)


def _revision(entry: TableEntry | None) -> int:
    return 0 if entry is None else entry.revision


def _with_displaced(entry: TableEntry, stored: TableEntry | None, displaced: frozenset[str]) -> TableEntry:
    """Return an entry that also has the areas of tables which had its name before in the same pass."""
    if stored is None or not displaced:
        return entry
    return replace(entry, areas=fold((*entry.areas, *stored.areas)), displaced=displaced, etag=None)


def _position(identifier: TableIdentifier) -> tuple[str, ...]:
    """Sorts by namespace first: the empty level is below every name."""
    return (*identifier.namespace, "", identifier.name)


def _unreadable(identifier: TableIdentifier, known: TableEntry | None, problem: str) -> TableEntry:
    base = known or TableEntry(identifier, "", "")
    return replace(base, problem=problem, etag=None)
