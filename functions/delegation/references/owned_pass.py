"""A pass owned by this process: its position, and whether it counts."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from delegation.identifiers import TableIdentifier
from delegation.references.errors import ReferencesError, ReferencesNotKnown
from delegation.references.model import LONGEST_TEXT, CatalogPass
from delegation.references.names import Position, position_of
from delegation.references.sightings import Sightings
from delegation.references.store import ReferenceStore

OWNED_FOR: Final = timedelta(seconds=60)
TABLES_A_WRITE: Final = 100
"""Tables visited between two writes of the position."""
MOST_UNCOUNTED: Final = 3
"""Consecutive passes that may not count. The next one counts, so that purges run although names keep changing."""


class OwnedPass:
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
        """Whether the second visits have started."""
        return self._state.again

    @property
    def again_to(self) -> Position | None:
        """The last position of the second visits, None without second visits."""
        return self._state.again_to if self._state.again else None

    @property
    def moved_again(self) -> bool:
        """Whether a name had another table, or none, at its second visit."""
        return self._state.moved_again or self._seen.moved_again

    @property
    def is_complete(self) -> bool:
        return self._complete

    def begin_again(self) -> None:
        """Start the second visits if this process or a former owner of the pass missed a table."""
        furthest = self.missing_to()
        if furthest is not None:
            self.position = None
            self._seen.begin_again()
            self._write(again=True, again_to=furthest)

    def missing_to(self) -> Position | None:
        """Return the position up to which tables must be visited a second time, as far as known."""
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
        """Extend this process's ownership when half of it has passed. Raises PassLost."""
        now = self._clock()
        owned_until = self._state.owned_until
        if owned_until is None or now > owned_until - OWNED_FOR / 2:
            self._write(owned_until=now + OWNED_FOR)

    def leave(self) -> None:
        """Record the position of an incomplete pass, so that another process can continue it at once. If the write
        fails, the pass can be continued after OWNED_FOR."""
        if not self._complete:
            with suppress(ReferencesError):
                self._write(owned_until=None, owner=None)

    def left(self) -> ReferencesNotKnown:
        """Return the error for a pass left to the next process because this process's time is over."""
        state = self._state
        return ReferencesNotKnown(state.catalog, state.checked + self._unwritten, state.tables, timedelta(0))

    @property
    def number(self) -> int:
        return self._state.number

    def incomplete(self, why: str) -> CatalogPass:
        """End a pass that does not count because something gave no answer. Returns the state."""
        return self._uncounted(self._with_problem(self._state, why))

    def failed(self, why: str) -> None:
        """Record why no pass is complete, for the callers that wait for one."""
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
        """End the pass. Returns the state with it as the last complete pass, unless it does not count."""
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
        """Whether an unknown table may have been renamed behind both visits of its names."""
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
