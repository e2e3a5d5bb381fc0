"""Maintenance of idempotency records."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from delegation.idempotency.record import Record
from delegation.idempotency.store import IdempotencyStore, start_expiry
from delegation.items import each_item
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.work.parts.reads import first_outcome


class RecordUpkeep:
    """Sets the expiry of records and deletes expired ones; its writes are conditional, so a request's write wins.

    Without `cleanup` it deletes none: keys are forgotten all the same when they expire.
    """

    def __init__(
        self,
        tasks: TaskStore,
        store: IdempotencyStore,
        *,
        lifetime: timedelta,
        nonce: Callable[[], str],
        cleanup: bool = True,
    ) -> None:
        self._tasks = tasks
        self._store = store
        self._lifetime = lifetime
        self._nonce = nonce
        self._cleanup = cleanup

    def start_expiry(self, now: datetime) -> Iterator[bool | None]:
        """Set the expiry of records whose task is terminal or deleted; yield for each record whether it was set.

        Yield None for a record that this release cannot read, or for which this fails. Without this a key that no
        caller repeats would never expire.
        """
        cursor: str | None = None
        while True:
            page = self._store.without_expiry(cursor=cursor)
            yield from (None for _ in page.unreadable)
            for one in each_item(
                page.records,
                lambda record: self._start(record, now),
                name="keys.expiry",
                clock=lambda: now,
                shown=lambda record: f"the key of task {record.task_id}",
            ):
                yield one.result
            cursor = page.cursor
            if cursor is None:
                return

    def remove_expired(self, now: datetime, limit: int) -> int:
        """Delete at most `limit` expired records; return how many."""
        return self._store.remove_expired(now, limit) if self._cleanup else 0

    def _start(self, record: Record, now: datetime) -> bool:
        head = self._tasks.get(record.task_id)
        if head is not None and first_outcome(self._tasks, record.task_id, record.bound_version, head=head) is None:
            return False
        return start_expiry(self._store, record, now, lifetime=self._lifetime, nonce=self._nonce())
