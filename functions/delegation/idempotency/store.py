"""The stores of idempotency records, in memory and on DynamoDB, where one transaction writes record and task."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from pydantic import Field

from delegation.idempotency.keys import IdempotencyError, KeyRecord, State
from delegation.items import each_item
from delegation.stored_items import Items, item_of_model, model_of_item
from delegation.tasks.errors import MalformedRecord, OutcomeUnknown, StoreUnavailable
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import TaskChange, TaskStore
from delegation.tasks.stores.dynamodb import Action, CompanionRefused, DynamoDbTaskStore
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.reads import first_outcome
from polaris_common.backoff import exponential
from polaris_common.dynamodb import from_item, to_item

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An HTTP answer, replayed byte for byte: status and JSON body."""

    status: int
    body: str

    @property
    def is_final(self) -> bool:
        """Whether it may be stored: 2xx and 4xx, never 5xx (Idempotency-Key proposal, Server Behavior)."""
        return self.status < 500


@dataclass(frozen=True, slots=True)
class ResubmitPolicy:
    """How often, and with which pauses, repeats of one key may run a task again whose outcome is a 5xx."""

    most: int = 8
    first_pause: timedelta = timedelta(seconds=2)
    longest_pause: timedelta = timedelta(minutes=5)

    def allowed_at(self, resubmits: int, failed_at: datetime) -> datetime | None:
        """Return the earliest time of the next one after `resubmits`: the first at once, None after the last."""
        if resubmits >= self.most:
            return None
        if resubmits == 0:
            return failed_at
        first, longest = self.first_pause.total_seconds(), self.longest_pause.total_seconds()
        return failed_at + timedelta(seconds=exponential(resubmits, first, longest))


class Record(KeyRecord):
    """The record of one key, bound to a task and to its version when the request was accepted. `resubmits` counts how
    often a repeat ran the task again, None if none did. `identity_rule` is the rule of `payload_hash` (keys.py), None
    if a release that knew only rule 1 last wrote the record. `expires_at` is set once the task is terminal, so that no
    key expires while its task runs."""

    task_id: str
    bound_version: int = Field(ge=1)
    resubmits: int | None = Field(default=None, ge=1)
    http_status: int | None = None
    response_body: str | None = None
    format: int = FORMAT

    @property
    def answer(self) -> StoredAnswer | None:
        if self.http_status is None or self.response_body is None:
            return None
        return StoredAnswer(self.http_status, self.response_body)


class RecordConflict(IdempotencyError):
    """Another process wrote the record since it was read; `stored` is the present record. Read it again."""

    code = "RECORD_CONFLICT"
    retryable = True

    def __init__(self, stored: Record | None) -> None:
        super().__init__("another process changed the idempotency record. Repeat the request")
        self.stored = stored


def finalize(record: Record, answer: StoredAnswer, now: datetime, *, lifetime: timedelta, nonce: str) -> Record:
    return record.model_copy(
        update={
            "state": State.FINALIZED,
            "http_status": answer.status,
            "response_body": answer.body,
            "updated_at": now,
            "expires_at": now + lifetime,
            "nonce": nonce,
        }
    )


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """Put `record` if `replaces` is still stored or was deleted; if `replaces` is None, if nothing is stored."""

    record: Record
    replaces: Record | None = None


@dataclass(frozen=True, slots=True)
class RecordPage:
    """A page of records and the cursor of the next page, None at the end. `unreadable` are the scopes of further
    records that this release cannot read."""

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
    """Set the expiry of a record whose task is terminal; return False if another process wrote the record first."""
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
            raise MalformedRecord(
                f"this release cannot read the idempotency record: its format is {record.format!r}. Deploy the newer "
                "release that wrote it"
            )
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
            records = [record for scope, record in sorted(self._records.items()) if scope > (cursor or "")]
        records = [record for record in records if record.expires_at is None]
        page = records[:limit]
        return RecordPage(
            tuple(record for record in page if record.format == FORMAT),
            page[-1].scope if len(records) > limit else None,
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
        """Return whether this very write was applied before. Raises RecordConflict if another was."""
        stored = self._records.get(write.record.scope)
        if stored is None:
            return False
        if stored.nonce == write.record.nonce:
            return True
        if write.replaces is None or stored.nonce != write.replaces.nonce:
            raise RecordConflict(stored)
        return False


class RecordUpkeep:
    """Sets the expiry of records and deletes expired ones. Its writes are conditional, so a request's write wins.
    Without `cleanup` it deletes none: keys still expire."""

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
        """Set the expiry of records whose task is terminal or deleted; otherwise a key that no caller repeats would
        never expire. Yields for each whether it was set, None if it is unreadable or that fails."""
        cursor: str | None = None
        while True:
            page = self._store.without_expiry(cursor=cursor)
            yield from (None for _ in page.unreadable)
            for dated in each_item(
                page.records,
                lambda record: self._start(record, now),
                name="keys.expiry",
                clock=lambda: now,
                shown=lambda record: f"the key of task {record.task_id}",
            ):
                yield dated.result
            cursor = page.cursor
            if cursor is None:
                return

    def remove_expired(self, now: datetime, limit: int) -> int:
        return self._store.remove_expired(now, limit) if self._cleanup else 0

    def _start(self, record: Record, now: datetime) -> bool:
        head = self._tasks.get(record.task_id)
        if head is not None and first_outcome(self._tasks, record.task_id, record.bound_version, head=head) is None:
            return False
        return start_expiry(self._store, record, now, lifetime=self._lifetime, nonce=self._nonce())


_EXPIRED: Final = "expires_at <= :now"


class DynamoDbIdempotencyStore:
    """Records keyed by `scope`; `expires_at` is in epoch seconds, as DynamoDB TTL requires."""

    def __init__(self, tasks: DynamoDbTaskStore, table: str) -> None:
        self._tasks = tasks
        self._items = Items(tasks.dynamodb, table, ("scope",), item_of_model, record_of)

    def get(self, scope: str) -> Record | None:
        return self._items.get({"scope": scope})

    def put(self, write: RecordWrite) -> Record:
        self._items.put_once(write.record, RecordConflict, **_condition(write))
        return write.record

    def accept(self, change: TaskChange, write: RecordWrite) -> Task:
        try:
            return self._tasks.transact(change, [self._action(write)], token=write.record.nonce)
        except CompanionRefused as refused:
            _require_own(write, refused.item)
        except OutcomeUnknown as unknown:
            if not self._is_stored(write, unknown):
                raise
        accepted = self._tasks.get(write.record.task_id)
        if accepted is None:
            raise RecordConflict(None)
        return accepted

    def without_expiry(self, *, cursor: str | None = None, limit: int = 100) -> RecordPage:
        """Return one page of a filtered Scan."""
        start = {} if cursor is None else {"ExclusiveStartKey": to_item({"scope": cursor})}
        answer = next(self._items.scan("attribute_not_exists(expires_at)", ConsistentRead=True, Limit=limit, **start))
        after = answer.get("LastEvaluatedKey")
        records: list[Record] = []
        unreadable: list[str] = []
        for item in map(from_item, answer["Items"]):
            try:
                records.append(record_of(item))
            except MalformedRecord:
                unreadable.append(item["scope"])
        return RecordPage(tuple(records), from_item(after)["scope"] if after else None, tuple(unreadable))

    def remove_expired(self, now: datetime, limit: int) -> int:
        """Delete expired records by a Scan and a conditional DeleteItem for each."""
        from delegation.items import each_item  # noqa: PLC0415 - the API removes none

        moment = {":now": int(now.timestamp())}
        removed = 0
        for answer in self._items.scan(_EXPIRED, moment, ConsistentRead=True):
            keys = [{"scope": item["scope"]} for item in answer["Items"]]
            for outcome in each_item(keys, lambda key: self._remove(key, to_item(moment)), name="keys.removed"):
                removed += outcome.result is True
                if removed == limit:
                    return removed
        return removed

    def _is_stored(self, write: RecordWrite, unknown: OutcomeUnknown) -> bool:
        """Read back a write without a clear answer; raise `unknown` if that fails, since it may have been applied."""
        try:
            return _is_applied(write, self.get(write.record.scope))
        except StoreUnavailable:
            raise unknown from None

    def _remove(self, key: dict[str, Any], moment: dict[str, Any]) -> bool:
        """Delete the record if it is still expired; return whether it was deleted."""
        condition = {"ConditionExpression": _EXPIRED, "ExpressionAttributeValues": moment}
        calls = self._items.calls
        return not calls.write(lambda: calls.client.delete_item(TableName=self._items.table, Key=key, **condition))

    def _action(self, write: RecordWrite) -> Action:
        put = {"TableName": self._items.table, "Item": to_item(item_of_model(write.record)), **_condition(write)}
        return {"Put": {**put, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}}


def _condition(write: RecordWrite) -> dict[str, Any]:
    names = {"ExpressionAttributeNames": {"#scope": "scope"}}
    if write.replaces is None:
        return {"ConditionExpression": "attribute_not_exists(#scope)", **names}
    values = to_item({":nonce": write.replaces.nonce})
    condition = "attribute_not_exists(#scope) OR nonce = :nonce"
    return {"ConditionExpression": condition, "ExpressionAttributeValues": values, **names}


def _is_applied(write: RecordWrite, stored: Record | None) -> bool:
    return stored is not None and stored.nonce == write.record.nonce


def _require_own(write: RecordWrite, item: Mapping[str, Any] | None) -> None:
    """Raise RecordConflict unless the stored item is this very write, applied by an earlier try."""
    stored = record_of(item) if item else None
    if not _is_applied(write, stored):
        raise RecordConflict(stored)


def record_of(item: Mapping[str, Any]) -> Record:
    """Return a stored record. Raises MalformedRecord."""
    if item.get("format") != FORMAT:
        raise MalformedRecord(
            f"this release cannot read the idempotency record: its format is {item.get('format')!r}. Deploy the "
            "newer release that wrote it"
        )
    return model_of_item(Record, item, lambda text: MalformedRecord(f"idempotency record: {text}"))
