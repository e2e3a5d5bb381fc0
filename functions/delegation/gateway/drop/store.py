import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from delegation.gateway.drop.errors import DropError
from delegation.gateway.drop.tombstones import Tombstone, key_of, table_key
from delegation.identifiers import TableIdentifier


class TombstoneConflict(DropError):
    """Another process changed the tombstone's record; `stored` is what it is now, None if there is none."""

    code = "TOMBSTONE_CONFLICT"
    status = 503
    kind = "ServiceUnavailableException"
    retryable = True

    def __init__(self, tombstone_id: str, stored: Tombstone | None) -> None:
        now = "absent" if stored is None else f"{stored.state} at version {stored.version}"
        super().__init__(f"the tombstone {tombstone_id} is {now}; read it again")
        self.tombstone_id = tombstone_id
        self.stored = stored


@dataclass(frozen=True, slots=True)
class TombstonePage:
    """Some tombstones, and the cursor of the next page, None after the last. `unreadable` counts items in a format that
    this release cannot read."""

    tombstones: tuple[Tombstone, ...]
    cursor: str | None = None
    unreadable: int = 0


class TombstoneStore(Protocol):
    """Stores one record per tombstone; a repeated write is recognized by its nonce, and is no conflict. Methods raise
    TombstonesUnavailable and, unless they return pages, MalformedTombstone; writes also TombstoneOutcomeUnknown."""

    def get(self, tombstone_id: str) -> Tombstone | None:
        """Read a record consistently."""

    def put(self, record: Tombstone) -> None:
        """Write a first record; raises TombstoneConflict if its id is taken."""

    def replace(self, record: Tombstone, before: Tombstone) -> None:
        """Write the next version of a record if `before` is still the stored one. Raises TombstoneConflict."""

    def of_table(self, realm: str, identifier: TableIdentifier, limit: int) -> Sequence[Tombstone]:
        """Read the newest records of a table's former name consistently, the newest first."""

    def newest(self, limit: int, cursor: str | None = None, *, caller: str | None = None) -> TombstonePage:
        """Return all records or one caller's, newest first, at most `limit` a page; a new one may be missing."""

    def due(self, now: datetime, limit: int) -> TombstonePage:
        """Return records whose `check_at` has come, earliest first; recent writes may be missing."""


def no_fault(_point: str) -> None: ...


class MemoryTombstoneStore:
    """TombstoneStore in memory, atomic under threads; `fault` is called before and after each write with its name."""

    def __init__(self, fault: Callable[[str], None] = no_fault) -> None:
        self.fault = fault
        self._lock = threading.Lock()
        self._records: dict[str, Tombstone] = {}

    def get(self, tombstone_id: str) -> Tombstone | None:
        self.fault("before get")
        with self._lock:
            return self._records.get(tombstone_id)

    def put(self, record: Tombstone) -> None:
        self.fault(f"before put {record.state}")
        with self._lock:
            stored = self._records.get(record.tombstone_id)
            if stored is not None and stored.nonce != record.nonce:
                raise TombstoneConflict(record.tombstone_id, stored)
            self._records[record.tombstone_id] = record
        self.fault(f"after put {record.state}")

    def replace(self, record: Tombstone, before: Tombstone) -> None:
        self.fault(f"before put {record.state}")
        with self._lock:
            stored = self._records.get(record.tombstone_id)
            if stored is None or stored.nonce not in {record.nonce, before.nonce}:
                raise TombstoneConflict(record.tombstone_id, stored)
            self._records[record.tombstone_id] = record
        self.fault(f"after put {record.state}")

    def of_table(self, realm: str, identifier: TableIdentifier, limit: int) -> Sequence[Tombstone]:
        key = table_key(realm, identifier)
        self.fault("before of_table")
        with self._lock:
            found = sorted(one for one in self._records if key_of(one) == key)
            return [self._records[one] for one in found[::-1][:limit]]

    def newest(self, limit: int, cursor: str | None = None, *, caller: str | None = None) -> TombstonePage:
        with self._lock:
            found_records = [one for one in self._records.values() if caller in {None, one.caller}]
        keys = {listed_key(record): record for record in found_records}
        found = sorted((key for key in keys if cursor is None or key < cursor), reverse=True)
        shown = found[:limit]
        return TombstonePage(tuple(keys[key] for key in shown), shown[-1] if len(found) > limit else None)

    def due(self, now: datetime, limit: int) -> TombstonePage:
        with self._lock:
            found = [(one.check_at, one) for one in self._records.values() if one.check_at is not None]
        waiting = sorted((pair for pair in found if pair[0] <= now), key=lambda pair: pair[0])
        return TombstonePage(tuple(record for _, record in waiting[:limit]))


def listed_key(record: Tombstone) -> str:
    """Return the sort key of lists: the id's time in milliseconds, then the id."""
    return f"{record.tombstone_id[len(key_of(record.tombstone_id)) + 1 :]}-{key_of(record.tombstone_id)}"
