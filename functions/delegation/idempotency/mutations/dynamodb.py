"""ReservationStore on a DynamoDB table; each operation is one conditional PutItem, whose refusal returns the record."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from delegation.idempotency.mutations.errors import (
    RecordOutcomeUnknown,
    RecordsUnavailable,
    ReservationConflict,
    malformed_reservation,
)
from delegation.idempotency.mutations.reservation import FORMAT, KIND, Reservation
from delegation.timestamps import isoformat, stored_epoch
from polaris_common.dynamodb import DynamoDbCalls, from_item, to_item

_FREE: Final = "attribute_not_exists(#scope) OR expires_at <= :now"
_UNCHANGED: Final = "nonce = :before"


class ReservationTable(DynamoDbCalls):
    unavailable = RecordsUnavailable
    unknown = RecordOutcomeUnknown


class DynamoDbReservationStore:
    """Records keyed by `scope`, beside those of tasks; `expires_at` is in epoch seconds, as DynamoDB TTL requires."""

    def __init__(self, dynamodb: ReservationTable, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def get(self, scope: str) -> Reservation | None:
        answer = self._dynamodb.repeatable(
            "get_item", TableName=self._table, Key=to_item({"scope": scope}), ConsistentRead=True
        )
        return _record_of(from_item(answer["Item"])) if "Item" in answer else None

    def reserve(self, record: Reservation, now: datetime) -> None:
        self._put(
            record,
            ConditionExpression=_FREE,
            ExpressionAttributeNames={"#scope": "scope"},
            ExpressionAttributeValues=to_item({":now": int(now.timestamp())}),
        )

    def replace(self, record: Reservation, before: Reservation) -> None:
        self._put(record, ConditionExpression=_UNCHANGED, ExpressionAttributeValues=to_item({":before": before.nonce}))

    def _put(self, record: Reservation, **condition: Any) -> None:
        found = self._dynamodb.put_once(self._table, ("scope",), _item_of(record), **condition)
        if found is not None:
            raise ReservationConflict(_record_of(found) if found else None)


def _item_of(record: Reservation) -> dict[str, Any]:
    item = {name: isoformat(value) if isinstance(value, datetime) else value for name, value in record}
    item["expires_at"] = int(record.expires_at.timestamp())
    item["headers"] = dict(record.headers)
    return {name: value for name, value in item.items() if value is not None}


def _record_of(item: Mapping[str, Any]) -> Reservation:
    if (item.get("kind"), item.get("format")) != (KIND, FORMAT):
        raise malformed_reservation(f"kind and format: {item.get('kind')!r}, {item.get('format')!r} are unknown here")
    values = dict(item)
    try:
        if "packed_body" in values:
            values["packed_body"] = bytes(values["packed_body"])  # boto3 wraps it in its class Binary
        values["expires_at"] = stored_epoch(values.get("expires_at"))
    except (TypeError, ValueError) as error:
        raise malformed_reservation(f"idempotency record: {error}") from None
    try:
        return Reservation(**values)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise malformed_reservation(f"idempotency record: {first['loc']}: {first['msg']}") from None
