"""IdempotencyStore on a DynamoDB table; one TransactWriteItems accepts a request together with its task."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from delegation.idempotency.store import FORMAT, Record, RecordConflict, RecordPage, RecordWrite
from delegation.tasks.errors import MalformedRecord, OutcomeUnknown
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import TaskChange
from delegation.tasks.stores.dynamodb import Action, CompanionRefused, DynamoDbTaskStore
from delegation.timestamps import isoformat, stored_epoch
from polaris_common.dynamodb import from_item, to_item

_EXPIRED: Final = "expires_at <= :now"


class DynamoDbIdempotencyStore:
    """Records keyed by `scope`; `expires_at` is in epoch seconds, as DynamoDB TTL requires."""

    def __init__(self, tasks: DynamoDbTaskStore, table: str) -> None:
        self._tasks = tasks
        self._table = table

    def get(self, scope: str) -> Record | None:
        answer = self._tasks.dynamodb.repeatable(
            "get_item", TableName=self._table, Key=to_item({"scope": scope}), ConsistentRead=True
        )
        return _record_of(from_item(answer["Item"])) if "Item" in answer else None

    def put(self, write: RecordWrite) -> Record:
        put = self._action(write)["Put"]
        dynamodb = self._tasks.dynamodb
        try:
            reasons = dynamodb.write(lambda: dynamodb.client.put_item(**put))
        except OutcomeUnknown:
            if not _is_applied(write, self.get(write.record.scope)):
                raise
            return write.record
        if reasons:
            item = reasons[0].get("Item")
            _require_own(write, from_item(item) if item else None)
        return write.record

    def accept(self, change: TaskChange, write: RecordWrite) -> Task:
        try:
            return self._tasks.transact(change, [self._action(write)], token=write.record.nonce)
        except CompanionRefused as refused:
            _require_own(write, refused.item)
        except OutcomeUnknown:
            if not _is_applied(write, self.get(write.record.scope)):
                raise
        accepted = self._tasks.get(write.record.task_id)
        if accepted is None:
            raise RecordConflict(None)
        return accepted

    def without_expiry(self, *, cursor: str | None = None, limit: int = 100) -> RecordPage:
        """Return one page of a filtered Scan."""
        start = {} if cursor is None else {"ExclusiveStartKey": to_item({"scope": cursor})}
        answer = self._scan("attribute_not_exists(expires_at)", Limit=limit, **start)
        after = answer.get("LastEvaluatedKey")
        found: list[Record] = []
        unreadable: list[str] = []
        for item in map(from_item, answer["Items"]):
            try:
                found.append(_record_of(item))
            except MalformedRecord:
                unreadable.append(item["scope"])
        return RecordPage(tuple(found), from_item(after)["scope"] if after else None, tuple(unreadable))

    def remove_expired(self, now: datetime, limit: int) -> int:
        """Delete expired records by a Scan and a conditional DeleteItem for each."""
        from delegation.items import each_item  # noqa: PLC0415 - the API removes none

        moment = to_item({":now": int(now.timestamp())})
        removed = 0
        start: dict[str, Any] = {}
        while True:
            answer = self._scan(_EXPIRED, ExpressionAttributeValues=moment, **start)
            for one in each_item(
                answer["Items"], lambda item: self._remove({"scope": item["scope"]}, moment), name="keys.removed"
            ):
                removed += one.result is True
                if removed == limit:
                    return removed
            if "LastEvaluatedKey" not in answer:
                return removed
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def _scan(self, condition: str, **arguments: Any) -> dict[str, Any]:
        return self._tasks.dynamodb.repeatable(
            "scan", TableName=self._table, FilterExpression=condition, ConsistentRead=True, **arguments
        )

    def _remove(self, key: dict[str, Any], moment: dict[str, Any]) -> bool:
        """Delete the record if it is still expired; return whether it was deleted."""
        dynamodb = self._tasks.dynamodb
        return not dynamodb.write(
            lambda: dynamodb.client.delete_item(
                TableName=self._table, Key=key, ConditionExpression=_EXPIRED, ExpressionAttributeValues=moment
            )
        )

    def _action(self, write: RecordWrite) -> Action:
        put: dict[str, Any] = {
            "TableName": self._table,
            "Item": to_item(_item_of(write.record)),
            "ConditionExpression": "attribute_not_exists(#scope)",
            "ExpressionAttributeNames": {"#scope": "scope"},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if write.replaces is not None:
            put["ConditionExpression"] += " OR nonce = :nonce"
            put["ExpressionAttributeValues"] = to_item({":nonce": write.replaces.nonce})
        return {"Put": put}


def _is_applied(write: RecordWrite, stored: Record | None) -> bool:
    return stored is not None and stored.nonce == write.record.nonce


def _require_own(write: RecordWrite, item: Mapping[str, Any] | None) -> None:
    """Raise RecordConflict unless the stored item is this very write, applied by an earlier try."""
    stored = _record_of(item) if item else None
    if not _is_applied(write, stored):
        raise RecordConflict(stored)


def _item_of(record: Record) -> dict[str, Any]:
    item = {name: isoformat(value) if isinstance(value, datetime) else value for name, value in record}
    if record.expires_at is not None:
        item["expires_at"] = int(record.expires_at.timestamp())
    return {name: value for name, value in item.items() if value is not None}


def _record_of(item: Mapping[str, Any]) -> Record:
    if item.get("format") != FORMAT:
        raise MalformedRecord(f"format: {item.get('format')!r} is not {FORMAT}")
    values = dict(item)
    if "expires_at" in values:
        try:
            values["expires_at"] = stored_epoch(values["expires_at"])
        except (TypeError, ValueError) as error:
            raise MalformedRecord(f"idempotency record: expires_at: {error}") from None
    try:
        return Record(**values)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise MalformedRecord(f"idempotency record: {first['loc']}: {first['msg']}") from None
