"""A pass that a process owns, and where it saw each table, so that one which was renamed meanwhile is not missed.

A table renamed from a name before its visit to one after its visit is loaded under neither. It leaves a trace: its
former name has no table, or another one than the index knows. Then the names loaded by that time are loaded again, even
if its uuid was seen elsewhere, because a registered clone has the same one. A dropped table leaves the same trace, so a
pass loads each name at most twice.

A table unknown to the index leaves no trace if another is created under its name before that is loaded. So each load of
a name without an entry counts as a trace. During the second visits every name has an entry, so a rename from a name
still to be loaded to one already loaded leaves a trace again. If that happens in a pass in which a name without an
entry had no table of its own (`strayed`), the table may have been missed twice: that pass does not count, and the next
one knows the names.

Clones that change names leave no trace, because they have one uuid. So names that share one are loaded again after the
first visits. If one of them no longer has its table, its clone may have taken the place of a table that was renamed to
a name behind the pass: that is a trace. A known table renamed behind both visits leaves no trace, but the table whose
name it has may be met elsewhere: its name is `stale`, and is loaded again after the second visits while a known table
was met under no name.

Some names are loaded again at the end of the first visits, because they were loaded before all others or share a uuid.
A process that stops before that leaves more behind (`left_to`), because the next one does not know which they were.

Many tables are visited, several at a time while the catalog answers fast. An overloaded catalog answers later, or with
429 or 503, after which its client waits: both are seen as a longer time. The number grows by one after an answer to
each load while answers take about as long as a single one, and is halved when they take much longer (additive increase,
multiplicative decrease), so other callers wait hardly longer. A single load's time is measured again at times with one
load in progress: beside others it is longer, and a best time that only grew towards those let 15 loads at once hit a
catalog without capacity after 2,000 tables.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from delegation.identifiers import TableIdentifier
from delegation.references.errors import ReferencesError, ReferencesNotKnown
from delegation.references.model import LONGEST_TEXT, CatalogPass, TableEntry
from delegation.references.names import PassNames, Position, Turn, position_of
from delegation.references.store import ReferenceStore
from delegation.references.visits import Absence, Visitor


class Sightings:
    """What one process saw in one pass over tables with the index's entries in `names`. In a pass that another process
    began every entry may have been seen."""

    def __init__(self, names: PassNames, *, continued: bool = False, again: bool = False) -> None:
        """With `again`, the former owner of the pass had already begun the second loads."""
        self._names = names
        self._continued = continued
        self._again_to: Position | None = None
        self._unsettled = False
        self._again = again
        self._early = 0
        self._early_to: Position = ()
        self._disputed_to: Position = ()
        self.moved_again = False
        """Whether a name had another table than before when it was loaded once more, or none."""
        self.strayed = False
        """Whether a name that was listed first and has no entry had another name's table, or none."""

    def is_new(self, identifier: TableIdentifier) -> bool:
        """Return whether a name is loaded for the first time and had no table in the index."""
        return not self._again and self._names.seen_at(identifier)[0] is None

    def new(self, identifier: TableIdentifier, uuid: str | None, loaded_to: Position, *, early: bool) -> None:
        """Record the first load of a listed name without an entry; `uuid` is None without a table. Names loaded `early`
        are loaded again after all others, and others up to `loaded_to`."""
        elsewhere = uuid is None or self._names.was_known(uuid) or self._names.is_elsewhere(identifier, uuid)
        self.strayed |= elsewhere
        if early:
            self._names.load_early(identifier)
            self._early += 1
            self._early_to = max(self._early_to, position_of(identifier))
        else:
            self._trace(loaded_to)

    def begin_again(self) -> None:
        """Record that names are now loaded again."""
        self._again = True

    def saw(self, identifier: TableIdentifier, uuid: str, loaded_to: Position) -> None:
        """Record a table under a name, when names up to `loaded_to` may have been loaded."""
        known, before, _ = self._names.seen_at(identifier)
        last = known if before is None else before
        elsewhere = self._names.is_elsewhere(identifier, uuid)
        self._changed(last != uuid if last is not None else elsewhere)
        if last != uuid and elsewhere:
            self._names.arrived(identifier, uuid)
        self._unsettled |= before is not None and before != uuid
        if before != uuid:
            self._left(identifier, before, loaded_to)
        self._names.see(identifier, uuid)
        if known and known != uuid:
            self._trace(loaded_to)
        elif elsewhere:
            # A clone, or a table that changed places with one that the index does not know.
            self._disputed_to = max(self._disputed_to, *map(position_of, self._names.dispute(identifier, uuid)))

    def hidden(self, loaded_to: Position) -> None:
        """Record a name whose table is no longer readable: it may be another table."""
        self._changed(True)
        self._trace(loaded_to)

    def lost(self, identifier: TableIdentifier, loaded_to: Position, *, same: bool) -> None:
        """Record a name whose table has no metadata file, and whether it is the `same` table as before."""
        known, before, gone = self._names.seen_at(identifier)
        self._changed(not same and not gone)
        if not same:
            self._left(identifier, before, loaded_to)
        self._names.lose(identifier)
        if known is not None and not same and before is None:
            self._trace(loaded_to)

    def vanished(self, identifier: TableIdentifier, loaded_to: Position) -> None:
        """Record a listed name that had no table when it was loaded, or has none now."""
        _, before, gone = self._names.seen_at(identifier)
        self._changed(not gone)
        self._left(identifier, before, loaded_to)
        self._names.lose(identifier)
        if before is not None:
            self._unsettled = True
        else:
            self._trace(loaded_to)

    def may_have_moved(self, identifier: TableIdentifier) -> bool:
        """Return whether the table of an empty name may have another name: it was seen there in this pass. If names
        changed at second loads, a table that was not seen at all may have another name too."""
        return self._unsettled or bool(self.displaced_at(identifier))

    def displaced_at(self, identifier: TableIdentifier) -> frozenset[str]:
        """Return the uuid seen under a name before: if it is not there now it may have any other name."""
        known, before, _ = self._names.seen_at(identifier)
        uuid = known if before is None and self._continued else before
        return frozenset({uuid}) if uuid else frozenset()

    @property
    def again_to(self) -> Position | None:
        """Up to where names are loaded again, None if no table left a trace."""
        return self._again_to

    @property
    def left_to(self) -> Position | None:
        """Up to where another process would load names again if this one stopped now, None for nothing."""
        early = self._early_to if self._early > 1 or self._continued else ()
        return max(self._again_to or (), early, self._disputed_to) or None

    def _changed(self, changed: bool) -> None:
        self.moved_again |= self._again and changed

    def _left(self, identifier: TableIdentifier, before: str | None, loaded_to: Position) -> None:
        """Record that a name lost its table; if a clone has lost it, that table may be anywhere."""
        if before is not None and not self._again and self._names.is_elsewhere(identifier, before):
            self._trace(loaded_to)

    def _trace(self, loaded_to: Position) -> None:
        self._again_to = max(self._again_to or (), loaded_to)


OWNED_FOR: Final = timedelta(seconds=60)
TABLES_A_WRITE: Final = 100
"""Tables between two writes of the position."""
MOST_UNCOUNTED: Final = 3
"""Passes one after the other that may not count: then one does, so that purges run although names always change."""


class HeldPass:
    def __init__(
        self,
        store: ReferenceStore,
        state: CatalogPass,
        seen: Sightings,
        *,
        clock: Callable[[], datetime],
        report: Callable[[int], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._report = report
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
    def again_to(self) -> Position | None:
        """Up to where tables are visited a second time, None if none is."""
        return self._state.again_to if self._state.again else None

    @property
    def moved_again(self) -> bool:
        """Whether a name had another table, or none, at its second visit."""
        return self._state.moved_again or self._seen.moved_again

    @property
    def is_complete(self) -> bool:
        return self._complete

    def begin_again(self) -> None:
        """Begin the second visits if this process or a former owner of the pass found a table missing."""
        furthest = self.missing_to()
        if furthest is not None:
            self.position = None
            self._seen.begin_again()
            self._write(again=True, again_to=furthest)

    def missing_to(self) -> Position | None:
        """Return up to where tables must be visited a second time, as far as known."""
        return max(self._inherited, self._seen.again_to or ()) or None

    def visited(self, identifier: TableIdentifier, moves: bool, exists: bool) -> None:
        if exists:
            self._unwritten += 1
        if moves:
            self.position = position_of(identifier)
        if self._unwritten >= TABLES_A_WRITE:
            self._write(owned_until=self._clock() + OWNED_FOR)
        self.renew()
        self._report(self._state.checked + self._unwritten)

    def renew(self) -> None:
        """Extend this process's ownership once half of it has passed. Raises PassLost."""
        now = self._clock()
        owned_until = self._state.owned_until
        if owned_until is None or now > owned_until - OWNED_FOR / 2:
            self._write(owned_until=now + OWNED_FOR)

    def leave(self) -> None:
        """Record the position of an incomplete pass, so that another process continues it at once. If that cannot be
        written, the pass is continued after OWNED_FOR."""
        if not self._complete:
            with suppress(ReferencesError):
                self._write(owned_until=None, owner=None)

    def left(self) -> ReferencesNotKnown:
        """Return the error of a pass left to the next process because this one's time is over."""
        state = self._state
        return ReferencesNotKnown(state.catalog, state.checked + self._unwritten, state.tables, timedelta(0))

    @property
    def number(self) -> int:
        return self._state.number

    def incomplete(self, why: str) -> CatalogPass:
        """End a pass that does not count because something had no answer; return the state."""
        return self._uncounted(self._with_problem(self._state, why))

    def failed(self, why: str) -> None:
        """Note why no pass is complete, for those who wait for one."""
        self._state = self._with_problem(self._state, why)

    def _with_problem(self, state: CatalogPass, why: str) -> CatalogPass:
        return replace(state, problem=why[:LONGEST_TEXT], problem_since=state.problem_since or self._clock())

    def _uncounted(self, state: CatalogPass) -> CatalogPass:
        left = replace(
            state, owner=None, owned_until=None, began_at=None, position=None, checked=0, again_to=None, again=False
        )
        written = self._store.write_pass(self._state, replace(left, strayed=False, moved_again=False))
        self._complete = True
        return written

    def complete(self, tables: int) -> CatalogPass:
        """End the pass and return the state with it as the last complete one, unless it does not count."""
        state = self._state
        if self._may_have_missed and state.uncounted < MOST_UNCOUNTED:
            return self._uncounted(replace(state, uncounted=state.uncounted + 1))
        done = CatalogPass(
            state.catalog,
            complete_as_of=state.began_at,
            tables=tables,
            revision=state.revision,
            number=state.number,
            complete=state.number,
            completed_at=self._clock(),
        )
        written = self._store.write_pass(state, done)
        self._complete = True
        return written

    @property
    def _may_have_missed(self) -> bool:
        """Whether a table unknown to the index may have been renamed behind both visits of its names."""
        return (self._state.strayed or self._seen.strayed) and self.moved_again

    def _write(self, **changes: object) -> None:
        checked = self._state.checked + self._unwritten
        strayed = self._state.strayed or self._seen.strayed
        changes = {"strayed": strayed, "moved_again": self.moved_again, **changes}
        if not self._state.again:
            changes = {"again_to": max(self._inherited, self._seen.left_to or ()) or None, **changes}
        after = replace(self._state, position=self.position, checked=checked, **changes)  # type: ignore[arg-type]
        self._state = self._store.write_pass(self._state, after)
        self._unwritten = 0


MOST_AT_ONCE: Final = 16
_SMOOTHING: Final = 0.2
"""The part of a new time in the average."""
_MEASURED_EVERY: Final = 1_000
"""Answers until loads are timed alone again, because a catalog's usual time may change."""
_MEASURED: Final = 5
"""Loads that are timed alone; the median counts, because one of them may have been answered with 429."""


@dataclass(frozen=True, slots=True)
class WidthPolicy:
    """`grow_below` and `shrink_above` are multiples of the shortest average time; at most `most` loads at a time. Times
    below `unnoticed` seconds count as that: they vary by more than a factor for no reason."""

    most: int = MOST_AT_ONCE
    grow_below: float = 2.0
    shrink_above: float = 4.0
    unnoticed: float = 0.005


class AdaptiveWidth:
    """The number of concurrent loads, by the seconds that each took; not for several threads."""

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
        """Record the time of a load without others beside it; those begun before are not counted."""
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
                # The loads that were under way at the same time state nothing new.
                self._held = self.width
                self._width = max(self._width / 2, 1.0)
        elif self._average <= policy.grow_below * self._best:
            self._width = min(self._width + 1 / self._width, float(policy.most))


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
        """Make a visit, maybe in another thread; return its result and the seconds until it was stored: the time of
        `visited` states nothing about the catalog."""
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
        """Record a visit's result; return its name, whether that moves the position, and whether there is a table."""
        identifier, moves = visit.identifier, visit.turn is Turn.IN_ORDER
        if seconds is not None:
            self._width.answered(seconds)
        if visit.turn is not Turn.LATER and self._seen.is_new(identifier):
            # Its table may have been renamed, while it was to be loaded, to any name that was begun before or beside.
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
