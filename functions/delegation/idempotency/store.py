"""The interface of stores for idempotency records."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from delegation.idempotency.errors import RecordConflict
from delegation.idempotency.record import Record
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import TaskChange


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
