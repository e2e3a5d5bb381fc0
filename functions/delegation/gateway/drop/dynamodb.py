"""TombstoneStore on a DynamoDB table of its own.

| | partition key | sort key |
|---|---|---|
| table | `table_key`, a digest of the table's former name | `tombstone_id`, which begins with it and sorts by time |
| index `newest` | `listed_in`, always `all` | `listed_key`, sorts by time |
| index `callers` | `caller`, who dropped it | `listed_key` |
| index `due`, of those that are not ended | `checked_in`, always `open` | `check_at` |

All indexes project all attributes. `expires_at` is in epoch seconds, as DynamoDB's time to live requires.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from delegation.gateway.drop.errors import (
    MalformedTombstone,
    TombstoneOutcomeUnknown,
    TombstonesUnavailable,
)
from delegation.gateway.drop.store import TombstoneConflict, TombstonePage, listed_key
from delegation.gateway.drop.tombstones import FORMAT, Tombstone, key_of, table_key
from delegation.identifiers import TableIdentifier
from delegation.timestamps import isoformat, stored_epoch
from polaris_common.dynamodb import DynamoDbCalls, from_item, to_item

logger = logging.getLogger(__name__)
NEWEST_INDEX: Final = "newest"
DUE_INDEX: Final = "due"
CALLERS_INDEX: Final = "callers"
_ALL: Final = "all"
_OPEN: Final = "open"
_ABSENT: Final = "attribute_not_exists(tombstone_id)"
_UNCHANGED: Final = "nonce = :before"


class TombstoneTable(DynamoDbCalls):
    unavailable = TombstonesUnavailable
    unknown = TombstoneOutcomeUnknown


class DynamoDbTombstoneStore:
    """See TombstoneStore; each write is one conditional PutItem, whose refusal returns the stored record."""

    def __init__(self, dynamodb: TombstoneTable, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def get(self, tombstone_id: str) -> Tombstone | None:
        key = to_item({"table_key": key_of(tombstone_id), "tombstone_id": tombstone_id})
        answer = self._dynamodb.repeatable("get_item", TableName=self._table, Key=key, ConsistentRead=True)
        return _record_of(from_item(answer["Item"])) if "Item" in answer else None

    def put(self, record: Tombstone) -> None:
        self._put(record, ConditionExpression=_ABSENT)

    def replace(self, record: Tombstone, before: Tombstone) -> None:
        values = to_item({":before": before.nonce})
        self._put(record, ConditionExpression=_UNCHANGED, ExpressionAttributeValues=values)

    def of_table(self, realm: str, identifier: TableIdentifier, limit: int) -> Sequence[Tombstone]:
        answer = self._query(
            {":key": table_key(realm, identifier)}, "table_key = :key", limit, ConsistentRead=True, backwards=True
        )
        return [_record_of(from_item(item)) for item in answer["Items"]]

    def newest(self, limit: int, cursor: str | None = None, *, caller: str | None = None) -> TombstonePage:
        values, condition, index = {":all": _ALL}, "listed_in = :all", NEWEST_INDEX
        if caller is not None:
            values, condition, index = {":caller": caller}, "caller = :caller", CALLERS_INDEX
        if cursor is not None:
            values, condition = {**values, ":cursor": cursor}, f"{condition} AND listed_key < :cursor"
        answer = self._query(values, condition, limit, IndexName=index, backwards=True)
        more = "LastEvaluatedKey" in answer and answer["Items"]
        return _page(answer["Items"], from_item(answer["Items"][-1])["listed_key"] if more else None)

    def due(self, now: datetime, limit: int) -> TombstonePage:
        values = {":open": _OPEN, ":now": isoformat(now)}
        found, unreadable, more = list[Tombstone](), 0, dict[str, Any]()
        # Records that cannot be read stay due for ever, and take the place of none that can.
        while len(found) < limit:
            condition = "checked_in = :open AND check_at <= :now"
            answer = self._query(values, condition, limit, IndexName=DUE_INDEX, **more)
            page = _page(answer["Items"])
            found, unreadable = [*found, *page.tombstones], unreadable + page.unreadable
            if "LastEvaluatedKey" not in answer:
                break
            more = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        return TombstonePage(tuple(found[:limit]), None, unreadable)

    def _query(
        self, values: Mapping[str, str], condition: str, limit: int, *, backwards: bool = False, **more: Any
    ) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._dynamodb.repeatable(
            "query",
            TableName=self._table,
            KeyConditionExpression=condition,
            ExpressionAttributeValues=to_item(values),
            ScanIndexForward=not backwards,
            Limit=limit,
            **more,
        )
        return answer

    def _put(self, record: Tombstone, **condition: Any) -> None:
        found = self._dynamodb.put_once(self._table, ("table_key", "tombstone_id"), _item_of(record), **condition)
        if found is not None:
            raise TombstoneConflict(record.tombstone_id, _record_of(found) if found else None)


def _page(items: Sequence[Mapping[str, Any]], cursor: str | None = None) -> TombstonePage:
    """Return the records that can be read; one that cannot hides no other."""
    found, unreadable = [], 0
    for item in items:
        try:
            found.append(_record_of(from_item(item)))
        except MalformedTombstone as error:
            unreadable += 1
            logger.warning("a tombstone cannot be read: %s", error, extra={"action": "list tombstones"})
    return TombstonePage(tuple(found), cursor, unreadable)


def _item_of(record: Tombstone) -> dict[str, Any]:
    item = {name: _stored(value) for name, value in record if value is not None}
    item |= {"format": FORMAT, "table_key": key_of(record.tombstone_id)}
    item |= {"listed_in": _ALL, "listed_key": listed_key(record)}
    if record.check_at is not None:
        item["checked_in"] = _OPEN
    if record.expires_at is not None:
        item["expires_at"] = int(record.expires_at.timestamp())
    return item


def _stored(value: Any) -> Any:
    if isinstance(value, datetime):
        return isoformat(value)
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, str) else value


def _record_of(item: Mapping[str, Any]) -> Tombstone:
    if item.get("format") != FORMAT:
        raise MalformedTombstone(f"tombstone {item.get('tombstone_id')}: format {item.get('format')!r} is unknown here")
    values = dict(item)
    try:
        for name in ("version", "format_version", "attempts"):
            if name in values:
                values[name] = int(values[name])
        if "expires_at" in values:
            values["expires_at"] = stored_epoch(values["expires_at"])
    except (TypeError, ValueError, OverflowError) as error:
        raise MalformedTombstone(f"tombstone {item.get('tombstone_id')}: {error}") from None
    try:
        return Tombstone.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise MalformedTombstone(f"tombstone {item.get('tombstone_id')}: {first['loc']}: {first['msg']}") from None
