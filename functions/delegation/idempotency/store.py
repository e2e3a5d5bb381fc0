"""The seam between idempotency records and their store, which joins them to tasks in one transaction."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from delegation.idempotency.errors import RecordConflict
from delegation.idempotency.record import Record
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import TaskChange


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """Put `record` where `replaces` stands (an expired one may be gone by then), or nothing if that is None."""

    record: Record
    replaces: Record | None = None


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some records and the cursor that continues after them, None at the end.

    `unreadable` are the scopes of those among them that this release cannot read.
    """

    records: tuple[Record, ...]
    cursor: str | None
    unreadable: tuple[str, ...] = ()


class IdempotencyStore(Protocol):
    """Records beside tasks. A repeated write is recognised by its nonce, as in TaskStore."""

    def get(self, scope: str) -> Record | None:
        """The record of a scope, read consistently; it may have expired."""

    def put(self, write: RecordWrite) -> Record:
        """Write a record alone. Raises RecordConflict, StoreUnavailable, OutcomeUnknown."""

    def accept(self, change: TaskChange, write: RecordWrite) -> Task:
        """Write a record and change its task, both or neither: no key without its task, no task without its key.

        Raises what TaskStore.apply raises, and RecordConflict.
        """

    def without_expiry(self, *, cursor: str | None = None, limit: int = 100) -> RecordPage:
        """Records whose lifetime has not begun, in no particular order, at most about `limit` a page."""

    def remove_expired(self, now: datetime, limit: int) -> int:
        """Remove at most `limit` records that have expired at `now`, each only if it still has; how many were."""


def start_expiry(store: IdempotencyStore, record: Record, now: datetime, *, lifetime: timedelta, nonce: str) -> bool:
    """Whether this call began the lifetime of a record whose task is terminal; another writer's wins."""
    expiring = record.model_copy(update={"updated_at": now, "expires_at": now + lifetime, "nonce": nonce})
    try:
        store.put(RecordWrite(expiring, replaces=record))
    except RecordConflict:
        return False
    return True
