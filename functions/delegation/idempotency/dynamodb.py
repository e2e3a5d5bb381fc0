"""IdempotencyStore on a DynamoDB table; one TransactWriteItems accepts a request together with its task."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from delegation.idempotency.store import FORMAT, Record, RecordConflict, RecordPage, RecordWrite
from delegation.stored_items import Items, item_of_model, model_of_item
from delegation.tasks.errors import MalformedRecord, OutcomeUnknown, StoreUnavailable
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import TaskChange
from delegation.tasks.stores.dynamodb import Action, CompanionRefused, DynamoDbTaskStore
from polaris_common.dynamodb import from_item, to_item

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
        """Read a write without a clear answer back; raise `unknown` if that fails, since it may have been applied."""
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
    """Return a stored record; raises MalformedRecord."""
    if item.get("format") != FORMAT:
        raise MalformedRecord(f"format: {item.get('format')!r} is not {FORMAT}")
    return model_of_item(Record, item, lambda text: MalformedRecord(f"idempotency record: {text}"))
