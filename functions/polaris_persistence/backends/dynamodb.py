"""Backend on two DynamoDB tables: objects (partition key `key` S, sort key `part` N) and references (key `key` S)."""

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, Final

from botocore.exceptions import ReadTimeoutError

from polaris_common.dynamodb import CallOutcome, DynamoDbCalls
from polaris_persistence.backends import dynamodb_items as items
from polaris_persistence.backends.base import (
    PART_BYTES,
    SYSTEM,
    WHOLE,
    Locator,
    ObjectKey,
    Reference,
    ReferenceKey,
    Refused,
    ScannedRow,
    ScanPage,
    Segment,
    StoredObject,
    check_fits_one_row,
    check_key,
    distinct,
    hints,
)
from polaris_persistence.backends.deadlines import answer_in_time, check_time
from polaris_persistence.backends.dynamodb_items import AttributeMap, RowKey
from polaris_persistence.errors import BackendUnavailable, CommitOutcomeUnknown, CorruptObject, backend_refused

_GET_KEYS: Final = 100
_WRITE_ROWS: Final = 25
TIMEOUTS: Final[Mapping[str, float]] = {"connect_timeout": 1, "read_timeout": 2}
"""For `polaris_common.dynamodb.client_config`, in seconds. Short, so that a commit has time to find out the result of a
call without an answer."""
_NEW: Final = {
    "ConditionExpression": "attribute_not_exists(#key)",
    "ExpressionAttributeNames": {"#key": items.KEY},
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}


class Calls(DynamoDbCalls):
    """DynamoDbCalls that raises the errors of persistence."""

    unavailable = BackendUnavailable
    unknown = CommitOutcomeUnknown
    refused = MappingProxyType({CallOutcome.BLOCKED: backend_refused, CallOutcome.INVALID: backend_refused})

    _newest: tuple[str, float] | None = None
    """The header `Date` of the newest answer, and the monotonic time in s when it arrived."""

    def answered(self, answer: Mapping[str, Any]) -> None:
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        if "date" in headers:
            self._newest = headers["date"], time.monotonic()

    @property
    def longest(self) -> float:
        """The longest time of one call in seconds, without repeats: the client's time-outs."""
        config = self.client.meta.config
        return float(config.connect_timeout + config.read_timeout)

    def send(self, call: Callable[[], Any]) -> Any:
        """Make a call; without an answer at the deadline of the commit it ends like a time-out of the client."""
        try:
            return answer_in_time(call)
        except TimeoutError as error:
            raise ReadTimeoutError(endpoint_url="DynamoDB", error=error) from error

    def wait(self, attempt: int) -> None:
        """Pause before a repeat, and check that the call may start. Raises BackendUnavailable."""
        check_time()
        super().wait(attempt)
        check_time()

    def estimated_time(self) -> int | None:
        """Return DynamoDB's time in µs since 1970 from its newest answer and the monotonic time since; None before."""
        newest = self._newest
        if newest is None:
            return None
        date, at = newest
        try:
            read = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return None
        return round((read + time.monotonic() - at) * 1e6)


class DynamoDbBackend:
    """Backend on DynamoDB. `parallel` batches of a call are sent at a time, at most as many as the client has
    connections. `part_bytes` is the largest value of one row, smaller only in tests."""

    def __init__(
        self, calls: Calls, *, objects: str, references: str, part_bytes: int = PART_BYTES, parallel: int = 8
    ) -> None:
        self._calls = calls
        self._objects = objects
        self._references = references
        self._part_bytes = part_bytes
        self._parallel = parallel

    @property
    def longest_call(self) -> float:
        return self._calls.longest

    def fetch_many(self, wanted: Iterable[Locator], *, consistent: bool = True) -> dict[ObjectKey, StoredObject]:
        parts = hints(wanted)
        rows: dict[ObjectKey, dict[int, AttributeMap]] = {key: {} for key in parts}
        self._read(rows, [(key, part) for key, count in parts.items() for part in range(count)], consistent)
        if not consistent:
            absent = [key for key in parts if 0 not in rows[key]]
            self._read(rows, [(key, part) for key in absent for part in range(parts[key])], consistent=True)
        # Parts beyond a hint that was too small, or missed by an eventually consistent read.
        rest = [
            (key, part)
            for key, found in rows.items()
            if 0 in found
            for part in range(items.parts_stated(found[0]))
            if part not in found
        ]
        self._read(rows, rest, consistent=True)
        found_objects = (items.stored_object(found) for found in rows.values())
        return {stored.key: stored for stored in found_objects if stored is not None}

    def put_many(self, objects: Iterable[StoredObject]) -> None:
        rows = [item for new in distinct(objects) for item in items.object_items(new, self._part_bytes)]
        self._write([{"PutRequest": {"Item": item}} for item in rows])

    def delete_many(self, locators: Iterable[Locator]) -> None:
        keys = [items.object_key(key, part) for key, count in hints(locators).items() for part in range(count)]
        self._write([{"DeleteRequest": {"Key": key}} for key in keys])

    def insert(self, new: StoredObject) -> Refused[StoredObject] | None:
        return self._refused_object(self._calls.conditional("put_item", **self._one_row(new), **_NEW))

    def update(self, new: StoredObject, *, expected: str) -> Refused[StoredObject] | None:
        condition = _only_if("#token = :token", token={"S": expected})
        return self._refused_object(self._calls.conditional("put_item", **self._one_row(new), **condition))

    def delete(self, key: ObjectKey, *, expected: str) -> Refused[StoredObject] | None:
        where = {"TableName": self._objects, "Key": items.object_key(key)}
        condition = _only_if("#token = :token", token={"S": expected})
        return self._refused_object(self._calls.conditional("delete_item", **where, **condition))

    def scan(
        self, *, realm: str | None = None, after: str | None = None, limit: int = 1_000, segment: Segment = WHOLE
    ) -> ScanPage:
        names = [items.KEY, items.PART, items.PARTS, items.CREATED_AT, items.TOKEN]
        query: dict[str, Any] = {
            "TableName": self._objects,
            "Limit": limit,
            "ProjectionExpression": ", ".join(f"#{name}" for name in names),
            **_of_realm(realm),
            "ExpressionAttributeNames": {f"#{name}": name for name in names},
        }
        if segment.of > 1:
            query |= {"Segment": segment.number, "TotalSegments": segment.of}
        if after is not None:
            query["ExclusiveStartKey"] = json.loads(after)
        answer = self._calls.repeatable("scan", **query)
        last = answer.get("LastEvaluatedKey")
        rows, unread = list[ScannedRow](), 0
        for item in answer["Items"]:
            try:
                rows.append(items.scanned(item))
            except CorruptObject:
                unread += 1
        return ScanPage(tuple(rows), json.dumps(last) if last else None, unread)

    def read_reference(self, key: ReferenceKey) -> Reference | None:
        answer = self._calls.repeatable(
            "get_item", TableName=self._references, Key=items.reference_key(key), ConsistentRead=True
        )
        return items.reference(answer["Item"]) if "Item" in answer else None

    def create_reference(self, new: Reference) -> Refused[Reference] | None:
        check_key(new.key)
        row = {"TableName": self._references, "Item": items.reference_item(new)}
        return self._refused_reference(self._calls.conditional("put_item", **row, **_NEW))

    def replace_reference(self, new: Reference, *, expected: Reference) -> Refused[Reference] | None:
        names = {"#version": items.VERSION, "#heads": items.HEADS, "#copy": items.COPY}
        values: dict[str, Any] = {
            ":version": {"N": str(expected.version)},
            ":heads": {"B": items.packed_heads(expected)},
            ":next": {"N": str(new.version)},
            ":moved": {"B": items.packed_heads(new)},
        }
        if new.copy is not None:
            update = "SET #version = :next, #heads = :moved, #copy = :copy"
            values[":copy"] = items.packed_copy(new.copy)
        else:
            update = "SET #version = :next, #heads = :moved"
        removed = [] if new.copy is not None else ["#copy"]
        if new.copies:
            update += ", #copies = :copies"
            names["#copies"], values[":copies"] = items.COPIES, items.packed_copies(new.copies)
        elif expected.copies:
            names["#copies"] = items.COPIES
            removed.append("#copies")
        if removed:
            update += f" REMOVE {', '.join(removed)}"
        if done := set(expected.waiting) - set(new.waiting):
            update += " DELETE #waiting :done"
            names["#waiting"], values[":done"] = items.WAITING, items.numbers(done)
        return self._update_reference(new.key, update, "#version = :version AND #heads = :heads", names, values)

    def add_waiting(self, ids: Collection[int], *, expected: Reference) -> Refused[Reference] | None:
        names = {"#version": items.VERSION, "#waiting": items.WAITING}
        values = {":version": {"N": str(expected.version)}, ":ids": items.numbers(ids)}
        return self._update_reference(expected.key, "ADD #waiting :ids", "#version = :version", names, values)

    def withdraw(self, key: ReferenceKey, waiting: int, *, fenced: bool = True) -> Refused[Reference] | None:
        names = {"#waiting": items.WAITING}
        values = {":id": {"N": str(waiting)}, ":ids": items.numbers([waiting])}
        update = "DELETE #waiting :ids"
        if fenced:
            names["#version"], values[":one"] = items.VERSION, {"N": "1"}
            update = f"SET #version = #version + :one {update}"
        return self._update_reference(key, update, "contains(#waiting, :id)", names, values)

    def references(self, *, realm: str | None = None) -> Iterator[Reference]:
        query: dict[str, Any] = {"TableName": self._references, "ConsistentRead": True, **_of_realm(realm)}
        while True:
            answer = self._calls.repeatable("scan", **query)
            yield from (items.listed_reference(item) for item in answer["Items"])
            if not answer.get("LastEvaluatedKey"):
                return
            query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def delete_reference(self, key: ReferenceKey) -> None:
        self._calls.repeatable("delete_item", TableName=self._references, Key=items.reference_key(key))

    def time(self) -> int:
        # Any read: DynamoDB states the time in the header `Date` of every answer.
        nothing = items.reference_key(ReferenceKey(SYSTEM, SYSTEM, ""))
        self._calls.repeatable("get_item", TableName=self._references, Key=nothing, ConsistentRead=True)
        now = self._calls.estimated_time()
        if now is None:
            raise BackendUnavailable("DynamoDB's answer has no header `Date`, which maintenance needs. Check the proxy")
        return now

    def estimated_time(self) -> int | None:
        return self._calls.estimated_time()

    def _update_reference(
        self, key: ReferenceKey, update: str, condition: str, names: Mapping[str, str], values: Mapping[str, Any]
    ) -> Refused[Reference] | None:
        answer = self._calls.conditional(
            "update_item",
            TableName=self._references,
            Key=items.reference_key(key),
            UpdateExpression=update,
            ConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        return self._refused_reference(answer)

    def _refused_reference(self, answer: Mapping[str, Any] | None) -> Refused[Reference] | None:
        return None if answer is None else Refused(items.reference(answer) if answer else None)

    def _one_row(self, new: StoredObject) -> dict[str, Any]:
        check_fits_one_row(new, self._part_bytes)
        return {"TableName": self._objects, "Item": items.object_items(new, self._part_bytes)[0]}

    def _refused_object(self, answer: Mapping[str, Any] | None) -> Refused[StoredObject] | None:
        if answer is None:
            return None
        if items.parts_stated(answer) > 1:
            # The key holds an immutable object of several rows, of which this row is only the first part.
            key = items.row_key(answer)[0]
            return Refused(self.fetch_many([Locator(key)]).get(key))
        return Refused(items.stored_object({0: answer}) if answer else None)

    def _read(
        self, into: Mapping[ObjectKey, dict[int, AttributeMap]], keys: Sequence[RowKey], consistent: bool
    ) -> None:
        def get(pending: list[Any]) -> list[Any]:
            request = {self._objects: {"Keys": pending, "ConsistentRead": consistent}}
            answer = self._calls.repeatable("batch_get_item", RequestItems=request)
            for item in answer["Responses"].get(self._objects, []):
                key, part = items.row_key(item)
                into[key][part] = item
            # Throttled rows, and those that did not fit in an answer of 16 MB.
            left: list[Any] = answer.get("UnprocessedKeys", {}).get(self._objects, {}).get("Keys", [])
            return left

        self._in_batches([items.object_key(key, part) for key, part in keys], _GET_KEYS, get)

    def _write(self, requests: Sequence[Mapping[str, Any]]) -> None:
        def send(pending: list[Any]) -> list[Any]:
            answer = self._calls.repeatable("batch_write_item", RequestItems={self._objects: pending})
            left: list[Any] = answer.get("UnprocessedItems", {}).get(self._objects, [])
            return left

        self._in_batches(requests, _WRITE_ROWS, send)

    def _in_batches(self, requests: Sequence[Any], size: int, send: Callable[[list[Any]], list[Any]]) -> None:
        """Call `send` with `size` requests each, several calls at the same time, until nothing is unprocessed."""
        batches = [list(requests[start : start + size]) for start in range(0, len(requests), size)]
        if len(batches) <= 1 or self._parallel <= 1:
            for batch in batches:
                self._until_processed(batch, send)
            return
        with ThreadPoolExecutor(min(self._parallel, len(batches))) as pool:
            # Consume the results to the end, which raises a batch's error.
            limited = [(copy_context(), batch) for batch in batches]
            list(pool.map(lambda pair: pair[0].run(self._until_processed, pair[1], send), limited))

    def _until_processed(self, pending: list[Any], send: Callable[[list[Any]], list[Any]]) -> None:
        """Call `send`, and again with the requests that it returns as unprocessed."""
        stalled = 0
        while pending:
            if stalled >= self._calls.tries:
                raise BackendUnavailable(f"DynamoDB processed nothing of a batch in {stalled} tries. Try again later")
            self._calls.wait(stalled)
            left = send(pending)
            stalled = 0 if len(left) < len(pending) else stalled + 1
            pending = left


def _only_if(expression: str, **values: Any) -> dict[str, Any]:
    """Return the arguments of a conditional write; `values` are DynamoDB values by attribute name."""
    return {
        "ConditionExpression": expression,
        "ExpressionAttributeNames": {f"#{name}": name for name in values},
        "ExpressionAttributeValues": {f":{name}": value for name, value in values.items()},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _of_realm(realm: str | None) -> dict[str, Any]:
    if realm is None:
        return {}
    return {
        "FilterExpression": "begins_with(#key, :realm)",
        "ExpressionAttributeNames": {"#key": items.KEY},
        "ExpressionAttributeValues": {":realm": {"S": items.realm_prefix(realm)}},
    }
