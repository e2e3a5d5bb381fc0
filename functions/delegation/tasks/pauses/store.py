"""Where the record of pauses is kept: its interface, and one in memory."""

import threading
from typing import Protocol

from delegation.tasks.pauses.model import PauseRecord


class PauseStore(Protocol):
    """One record. Both methods raise StoreUnavailable, `write` OutcomeUnknown too, `read` MalformedRecord."""

    def read(self) -> PauseRecord:
        """Return the record, read consistently; an empty one if nothing was ever paused."""

    def write(self, record: PauseRecord) -> bool:
        """Store a record if the stored one has the revision before it; return whether it was stored."""


class MemoryPauseStore:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._record = PauseRecord()

    def read(self) -> PauseRecord:
        with self._lock:
            return self._record

    def write(self, record: PauseRecord) -> bool:
        with self._lock:
            if self._record.revision != record.revision - 1:
                return False
            self._record = record
            return True
