"""ReservationStore on a DynamoDB table, and the breaker that leaves a failing store alone for a while."""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from delegation.idempotency.mutations.reservation import (
    FORMAT,
    KIND,
    RecordOutcomeUnknown,
    RecordsUnavailable,
    Reservation,
    ReservationConflict,
    ReservationStore,
    malformed_reservation,
)
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


_FAILURES: Final = 3
_SECONDS: Final = 10.0
_Result = TypeVar("_Result")


class BreakingStore:
    """`store`, not called for `seconds` after `failures` failed calls in a row; thread-safe. Meanwhile callers get
    RecordsUnavailable at once instead of a time-out each; then one call tries it again. `opened` is called each time
    that the pause begins."""

    def __init__(
        self,
        store: ReservationStore,
        *,
        opened: Callable[[], None],
        failures: int = _FAILURES,
        seconds: float = _SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._opened = opened
        self._failures = failures
        self._seconds = seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._failed = 0
        self._closed_until = 0.0

    def get(self, scope: str) -> Reservation | None:
        return self._called(lambda: self._store.get(scope))

    def reserve(self, record: Reservation, now: datetime) -> None:
        self._called(lambda: self._store.reserve(record, now))

    def replace(self, record: Reservation, before: Reservation) -> None:
        self._called(lambda: self._store.replace(record, before))

    def _called(self, call: Callable[[], _Result]) -> _Result:
        self._admit()
        try:
            result = call()
        except (RecordsUnavailable, RecordOutcomeUnknown):
            self._note_failure()
            raise
        except BaseException:
            self._note_answer()  # a conflict, or a record that cannot be read: the store answered
            raise
        self._note_answer()
        return result

    def _admit(self) -> None:
        with self._lock:
            if self._failed < self._failures:
                return
            now = self._monotonic()
            if now < self._closed_until:
                raise RecordsUnavailable(
                    "the table of idempotency keys does not answer and is left alone for some seconds; nothing was "
                    "done, repeat the request with its key"
                )
            self._closed_until = now + self._seconds  # this call tries it, others do not

    def _note_failure(self) -> None:
        with self._lock:
            self._failed += 1
            opens = self._failed >= self._failures
            if opens:
                self._closed_until = self._monotonic() + self._seconds
        if opens:
            self._opened()

    def _note_answer(self) -> None:
        with self._lock:
            self._failed = 0
