"""Where tombstones are stored: in a DynamoDB table of its own.

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
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from delegation.gateway.drop.errors import DropError, MalformedTombstone, TombstoneOutcomeUnknown, TombstonesUnavailable
from delegation.gateway.drop.tombstones import FORMAT, Tombstone, key_of, table_key
from delegation.identifiers import TableIdentifier
from delegation.stored_items import Items, item_of_model, model_of_item
from delegation.timestamps import isoformat
from polaris_common.dynamodb import DynamoDbCalls, from_item, to_item


class TombstoneConflict(DropError):
    """Another process changed the tombstone's record; `stored` is the present one, None if there is none."""

    code = "TOMBSTONE_CONFLICT"
    status = 503
    retryable = True

    def __init__(self, tombstone_id: str, stored: Tombstone | None) -> None:
        now = "absent" if stored is None else f"{stored.state} at version {stored.version}"
        super().__init__(
            f"another process changed the tombstone {tombstone_id}, which is now {now}. Repeat the request"
        )
        self.tombstone_id = tombstone_id
        self.stored = stored


@dataclass(frozen=True, slots=True)
class TombstonePage:
    """Some tombstones, and the cursor of the next page, None after the last. `unreadable` counts items in a format that
    this release cannot read."""

    tombstones: tuple[Tombstone, ...]
    cursor: str | None = None
    unreadable: int = 0


def listed_key(record: Tombstone) -> str:
    """Return the sort key of lists: the id's time in milliseconds, then the id."""
    return f"{record.tombstone_id[len(key_of(record.tombstone_id)) + 1 :]}-{key_of(record.tombstone_id)}"


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


class TombstoneStore:
    """Stores one record per tombstone; a repeated write is recognized by its nonce and is no conflict. Methods raise
    TombstonesUnavailable and, unless they return pages, MalformedTombstone; writes also TombstoneOutcomeUnknown. Each
    write is one conditional PutItem, whose refusal returns the stored record."""

    def __init__(self, dynamodb: TombstoneTable, table: str) -> None:
        self._items = Items(dynamodb, table, ("table_key", "tombstone_id"), tombstone_item, tombstone_of)

    def get(self, tombstone_id: str) -> Tombstone | None:
        return self._items.get({"table_key": key_of(tombstone_id), "tombstone_id": tombstone_id})

    def put(self, record: Tombstone) -> None:
        """Write a first record. Raises TombstoneConflict if its id is taken."""
        self._put(record, ConditionExpression=_ABSENT)

    def replace(self, record: Tombstone, before: Tombstone) -> None:
        """Write the next version of a record if `before` is still the stored one. Raises TombstoneConflict."""
        values = to_item({":before": before.nonce})
        self._put(record, ConditionExpression=_UNCHANGED, ExpressionAttributeValues=values)

    def of_table(self, realm: str, identifier: TableIdentifier, limit: int) -> Sequence[Tombstone]:
        """Read the newest records of a table's former name consistently, newest first."""
        answer = self._query(
            {":key": table_key(realm, identifier)}, "table_key = :key", limit, ConsistentRead=True, backwards=True
        )
        return [tombstone_of(from_item(item)) for item in answer["Items"]]

    def newest(self, limit: int, cursor: str | None = None, *, caller: str | None = None) -> TombstonePage:
        """Return all records or one caller's, newest first, at most `limit` a page; a new one may be missing."""
        values, condition, index = {":all": _ALL}, "listed_in = :all", NEWEST_INDEX
        if caller is not None:
            values, condition, index = {":caller": caller}, "caller = :caller", CALLERS_INDEX
        if cursor is not None:
            values, condition = {**values, ":cursor": cursor}, f"{condition} AND listed_key < :cursor"
        answer = self._query(values, condition, limit, IndexName=index, backwards=True)
        more = "LastEvaluatedKey" in answer and answer["Items"]
        return _page(answer["Items"], from_item(answer["Items"][-1])["listed_key"] if more else None)

    def due(self, now: datetime, limit: int) -> TombstonePage:
        """Return records whose `check_at` has come, earliest first; recent writes may be missing."""
        values = {":open": _OPEN, ":now": isoformat(now)}
        records, unreadable, more = list[Tombstone](), 0, dict[str, Any]()
        # Unreadable records stay due for ever; they take no readable record's place.
        while len(records) < limit:
            condition = "checked_in = :open AND check_at <= :now"
            answer = self._query(values, condition, limit, IndexName=DUE_INDEX, **more)
            page = _page(answer["Items"])
            records, unreadable = [*records, *page.tombstones], unreadable + page.unreadable
            if "LastEvaluatedKey" not in answer:
                break
            more = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        return TombstonePage(tuple(records[:limit]), None, unreadable)

    def _query(
        self, values: Mapping[str, str], condition: str, limit: int, *, backwards: bool = False, **more: Any
    ) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._items.calls.repeatable(
            "query",
            TableName=self._items.table,
            KeyConditionExpression=condition,
            ExpressionAttributeValues=to_item(values),
            ScanIndexForward=not backwards,
            Limit=limit,
            **more,
        )
        return answer

    def _put(self, record: Tombstone, **condition: Any) -> None:
        self._items.put_once(record, partial(TombstoneConflict, record.tombstone_id), **condition)


def _page(items: Sequence[Mapping[str, Any]], cursor: str | None = None) -> TombstonePage:
    """Return the readable records; an unreadable one hides no other."""
    records, unreadable = [], 0
    for item in items:
        try:
            records.append(tombstone_of(from_item(item)))
        except MalformedTombstone as error:
            unreadable += 1
            logger.warning("a tombstone cannot be read: %s", error, extra={"action": "list tombstones"})
    return TombstonePage(tuple(records), cursor, unreadable)


def tombstone_item(record: Tombstone) -> dict[str, Any]:
    item = {**item_of_model(record), "format": FORMAT, "table_key": key_of(record.tombstone_id)}
    item |= {"listed_in": _ALL, "listed_key": listed_key(record)}
    return item if record.check_at is None else {**item, "checked_in": _OPEN}


def tombstone_of(item: Mapping[str, Any]) -> Tombstone:
    """Return a stored tombstone. Raises MalformedTombstone."""
    if item.get("format") != FORMAT:
        raise MalformedTombstone(
            f"this release cannot read the tombstone {item.get('tombstone_id')}: its format is "
            f"{item.get('format')!r}. Deploy the newer release that wrote it"
        )
    name = f"tombstone {item.get('tombstone_id')}"
    return model_of_item(Tombstone, item, lambda text: MalformedTombstone(f"{name}: {text}"))
