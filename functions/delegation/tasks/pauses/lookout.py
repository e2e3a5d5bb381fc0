"""How a process knows what is paused: the record, read at most every 20 seconds however many batches it deletes."""

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from delegation.tasks.errors import MalformedRecord, StoreUnavailable
from delegation.tasks.life.model import Caller, Task
from delegation.tasks.life.task_type import NO_TYPES, TaskTypes
from delegation.tasks.pauses.model import EVERYTHING, PauseMode, PauseRecord, WorkPause

logger = logging.getLogger(__name__)
READ_EVERY: Final = timedelta(seconds=20)
"""So a pause reaches every process within 20 s, and work stops within a minute: at the next batch."""
PAUSED: Final = "PAUSED"
"""The error code of an attempt that was handed over because of a pause; it counts against no limit."""
PAUSED_WAIT: Final = timedelta(seconds=30)
"""After so long a paused task is due again: a short pause costs its execution one wait, a longer one ends it."""
_UNREADABLE: Final = WorkPause(
    EVERYTHING,
    datetime(1970, 1, 1, tzinfo=UTC),
    Caller(client_id="unknown"),
    "this release cannot read the record of pauses, which a newer one wrote: use the command of that release",
)


class PauseLookout(Protocol):
    """Knows what is paused, up to READ_EVERY late; the methods raise StoreUnavailable before the first record."""

    def start(self, task: Task) -> WorkPause | None:
        """Return the pause that keeps attempts at a task from beginning, None without one."""

    def work(self, task: Task) -> WorkPause | None:
        """Return the pause that stops an attempt at a task which has begun, None without one."""

    def everything(self) -> WorkPause | None:
        """Return the pause that keeps every task from beginning, None without one."""

    def now(self) -> PauseRecord:
        """Return all pauses."""


class NothingPaused:
    """PauseLookout of processes whose store keeps no pauses."""

    def start(self, _task: Task) -> WorkPause | None:
        return None

    work = start

    def everything(self) -> WorkPause | None:
        return None

    def now(self) -> PauseRecord:
        return PauseRecord()


class ReadPauses:
    """PauseLookout over a record that is read when the last one is older than READ_EVERY. Thread-safe.

    A record that cannot be read now is used again; while there is none the error is the caller's. One that this release
    cannot read pauses everything: what a newer release wrote must not be overridden.
    """

    def __init__(
        self,
        read: Callable[[], PauseRecord],
        types: TaskTypes = NO_TYPES,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._read = read
        self._types = types
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._record: PauseRecord | None = None
        self._read_at = float("-inf")

    def start(self, task: Task) -> WorkPause | None:
        record = self.now()
        return record.of(self._types.labels(task)) if record.is_by_label else record.of_everything

    def work(self, task: Task) -> WorkPause | None:
        found = self.start(task)
        return found if found is not None and found.mode is PauseMode.STOP else None

    def everything(self) -> WorkPause | None:
        return self.now().of_everything

    def now(self) -> PauseRecord:
        with self._lock:
            at = self._monotonic()
            if self._record is None or at - self._read_at >= READ_EVERY.total_seconds():
                self._record = self._read_again()
                self._read_at = at
            return self._record

    def _read_again(self) -> PauseRecord:
        try:
            return self._read()
        except MalformedRecord:
            return PauseRecord(pauses=(_UNREADABLE,))
        except StoreUnavailable as error:
            if self._record is None:
                raise
            logger.warning("the pauses were not read", extra={"action": "pause", "error_code": error.code})
            return self._record
