"""ReservationStore in memory."""

import threading
from collections.abc import Callable
from datetime import datetime

from delegation.idempotency.mutations.errors import ReservationConflict, malformed_reservation
from delegation.idempotency.mutations.reservation import FORMAT, Reservation


def no_fault(_point: str) -> None:
    """Inject nothing."""


class MemoryReservationStore:
    """Records in a dictionary; `fault` is called before and after each write and before each read, with its name."""

    def __init__(self, fault: Callable[[str], None] = no_fault) -> None:
        self.fault = fault
        self._lock = threading.Lock()
        self._records: dict[str, Reservation] = {}

    def get(self, scope: str) -> Reservation | None:
        self.fault("before get")
        with self._lock:
            return self._readable(scope)

    def reserve(self, record: Reservation, now: datetime) -> None:
        self.fault("before reserve")
        with self._lock:
            stored = self._records.get(record.scope)
            if stored is not None and stored.nonce != record.nonce and not stored.is_expired(now):
                raise ReservationConflict(self._readable(record.scope))
            self._records[record.scope] = record
        self.fault("after reserve")

    def replace(self, record: Reservation, before: Reservation) -> None:
        self.fault("before replace")
        with self._lock:
            stored = self._records.get(record.scope)
            if stored is None or stored.nonce not in {record.nonce, before.nonce}:
                raise ReservationConflict(self._readable(record.scope))
            self._records[record.scope] = record
        self.fault("after replace")

    def remove(self, scope: str) -> None:
        """Delete a record, as the time to live of a table does with one that has expired."""
        with self._lock:
            self._records.pop(scope, None)

    def _readable(self, scope: str) -> Reservation | None:
        record = self._records.get(scope)
        if record is not None and record.format != FORMAT:
            raise malformed_reservation(f"format: {record.format!r} is not {FORMAT}")
        return record
