"""The interface of stores for idempotency records."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from delegation.idempotency.errors import RecordConflict
from delegation.idempotency.record import FORMAT, Record
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import TaskChange
from delegation.tasks.stores.memory import MemoryTaskStore


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """Put `record` if `replaces` is still stored or was deleted, or if that is None and nothing is stored."""

    record: Record
    replaces: Record | None = None


@dataclass(frozen=True, slots=True)
class RecordPage:
    """A page of records and the cursor of the next page, None at the end.

    `unreadable` are the scopes of further records that this release cannot read.
    """

    records: tuple[Record, ...]
    cursor: str | None
    unreadable: tuple[str, ...] = ()


class IdempotencyStore(Protocol):
    """Stores records beside tasks. A repeated write is recognized by its nonce, as in TaskStore."""

    def get(self, scope: str) -> Record | None:
        """Read the record of a scope consistently; it may have expired."""

    def put(self, write: RecordWrite) -> Record:
        """Write a record without a task. Raises RecordConflict, StoreUnavailable, OutcomeUnknown."""

    def accept(self, change: TaskChange, write: RecordWrite) -> Task:
        """Write a record and change its task in one transaction. Raises RecordConflict, and as TaskStore.apply."""

    def without_expiry(self, *, cursor: str | None = None, limit: int = 100) -> RecordPage:
        """Return a page of about `limit` records without an expiry, in no particular order."""

    def remove_expired(self, now: datetime, limit: int) -> int:
        """Delete at most `limit` records that have expired at `now`, each conditionally; return how many."""


def start_expiry(store: IdempotencyStore, record: Record, now: datetime, *, lifetime: timedelta, nonce: str) -> bool:
    """Set the expiry of a record whose task is terminal; return False when another process wrote the record first."""
    expiring = record.model_copy(update={"updated_at": now, "expires_at": now + lifetime, "nonce": nonce})
    try:
        store.put(RecordWrite(expiring, replaces=record))
    except RecordConflict:
        return False
    return True


class MemoryIdempotencyStore:
    """Records in a dictionary; the task store's hook injects faults."""

    def __init__(self, tasks: MemoryTaskStore) -> None:
        self._tasks = tasks
        self._records: dict[str, Record] = {}

    def get(self, scope: str) -> Record | None:
        self._tasks.fault("before get record")
        with self._tasks.lock:
            record = self._records.get(scope)
        if record is not None and record.format != FORMAT:
            raise MalformedRecord(f"format: {record.format!r} is not {FORMAT}")
        return record

    def put(self, write: RecordWrite) -> Record:
        self._tasks.fault("before put record")
        with self._tasks.lock:
            self._check(write)
            self._records[write.record.scope] = write.record
        self._tasks.fault("after put record")
        return write.record

    def accept(self, change: TaskChange, write: RecordWrite) -> Task:
        self._tasks.fault("before accept")
        with self._tasks.lock:
            if self._check(write):
                stored = self._tasks.get(write.record.task_id)
                if stored is not None:
                    return stored
            task = self._tasks.apply_locked(change)
            self._records[write.record.scope] = write.record
        self._tasks.fault("after accept")
        return task

    def without_expiry(self, *, cursor: str | None = None, limit: int = 100) -> RecordPage:
        self._tasks.fault("before list records")
        with self._tasks.lock:
            found = [record for scope, record in sorted(self._records.items()) if scope > (cursor or "")]
        found = [record for record in found if record.expires_at is None]
        page = found[:limit]
        return RecordPage(
            tuple(record for record in page if record.format == FORMAT),
            page[-1].scope if len(found) > limit else None,
            tuple(record.scope for record in page if record.format != FORMAT),
        )

    def remove_expired(self, now: datetime, limit: int) -> int:
        self._tasks.fault("before remove records")
        with self._tasks.lock:
            expired = [scope for scope, record in self._records.items() if record.is_expired(now)][:limit]
            for scope in expired:
                del self._records[scope]
        self._tasks.fault("after remove records")
        return len(expired)

    def _check(self, write: RecordWrite) -> bool:
        """Return whether this very write was applied before; raises RecordConflict if another was."""
        stored = self._records.get(write.record.scope)
        if stored is None:
            return False
        if stored.nonce == write.record.nonce:
            return True
        if write.replaces is None or stored.nonce != write.replaces.nonce:
            raise RecordConflict(stored)
        return False
