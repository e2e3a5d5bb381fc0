"""Pausing and resuming, as operators do it."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from delegation.tasks.errors import StoreUnavailable, TaskError
from delegation.tasks.life.model import Caller
from delegation.tasks.pauses.model import (
    LONGEST_REASON,
    MOST_PAUSES,
    PauseMode,
    PauseRecord,
    PauseScope,
    WorkPause,
)
from delegation.tasks.pauses.store import PauseStore

_RACES: Final = 10
"""Tries to write the record; each lost race means that another operator changed it."""


class PauseControl:
    """Changes the record of pauses; both changes may be repeated. Raises the store's errors."""

    def __init__(self, store: PauseStore, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    def shown(self) -> PauseRecord:
        return self._store.read()

    def pause(
        self, scope: PauseScope, *, by: Caller, reason: str = "", mode: PauseMode = PauseMode.STOP
    ) -> PauseRecord:
        """Pause a scope and return the record; one that is paused so already keeps who paused it and when.

        Raises TaskError (TOO_MANY_PAUSES).
        """
        wanted = WorkPause(scope, self._clock(), by, reason.strip()[:LONGEST_REASON], mode)
        return self._changed(lambda record: record.with_pause(wanted))

    def resume(self, scope: PauseScope) -> PauseRecord:
        """End the pause of a scope and return the record; pauses of other scopes stay."""
        return self._changed(lambda record: record.without(scope))

    def _changed(self, change: Callable[[PauseRecord], PauseRecord]) -> PauseRecord:
        for _ in range(_RACES):
            before = self._store.read()
            after = change(before)
            if after is before:
                return before
            if len(after.pauses) > max(MOST_PAUSES, len(before.pauses)):
                raise TaskError(
                    f"{MOST_PAUSES} scopes are paused already; resume some, or pause the realm", code="TOO_MANY_PAUSES"
                )
            if self._store.write(after):
                return after
        raise StoreUnavailable("the record of pauses kept changing; nothing was written")
