"""Upkeep of idempotency records: a lifetime begins when the bound task is over, and ends with removal (DESIGN §3)."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from delegation.idempotency.record import Record
from delegation.idempotency.store import IdempotencyStore, start_expiry
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.stores.history import first_outcome


class RecordUpkeep:
    """What maintenance does with records; every write is conditional on what was read, so a caller's own one wins."""

    def __init__(
        self, tasks: TaskStore, store: IdempotencyStore, *, lifetime: timedelta, nonce: Callable[[], str]
    ) -> None:
        self._tasks = tasks
        self._store = store
        self._lifetime = lifetime
        self._nonce = nonce

    def start_expiry(self, now: datetime) -> Iterator[bool | None]:
        """For each record without an expiry, whether it got one: its task is terminal, or is there no more.

        None for one that this release cannot read, or whose task it cannot: it is left to who can.
        Without it a key that no caller repeats would stay for good, and one IN_PROGRESS would outlive its task.
        """
        cursor: str | None = None
        while True:
            page = self._store.without_expiry(cursor=cursor)
            yield from (None for _ in page.unreadable)
            for record in page.records:
                try:
                    yield self._starts(record, now)
                except MalformedRecord:
                    yield None
            cursor = page.cursor
            if cursor is None:
                return

    def remove_expired(self, now: datetime, limit: int) -> int:
        """Remove some records that have expired; how many."""
        return self._store.remove_expired(now, limit)

    def _starts(self, record: Record, now: datetime) -> bool:
        head = self._tasks.get(record.task_id)
        if head is not None and first_outcome(self._tasks, record.task_id, record.bound_version, head=head) is None:
            return False
        return start_expiry(self._store, record, now, lifetime=self._lifetime, nonce=self._nonce())
