"""Items of one type in a DynamoDB table: a store gives `Items` the key and a codec, and states its own conditions."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from delegation.timestamps import isoformat, stored_epoch
from polaris_common.dynamodb import DynamoDbCalls, from_item, to_item

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Item = Mapping[str, Any]


class Items(Generic[T]):
    """Reads and writes the items of one type; every method raises the errors of `calls`. `key` names the table's key
    attributes. `encode` returns a whole item; `decode` raises a DelegationError for an unreadable one."""

    def __init__(
        self,
        calls: DynamoDbCalls,
        table: str,
        key: tuple[str, ...],
        encode: Callable[[T], Item],
        decode: Callable[[dict[str, Any]], T],
    ) -> None:
        self.calls = calls
        self.table = table
        self._key = key
        self._encode = encode
        self._decode = decode

    def get(self, key: Item) -> T | None:
        """Read an item consistently."""
        answer = self.calls.repeatable("get_item", TableName=self.table, Key=to_item(key), ConsistentRead=True)
        return self._decode(from_item(answer["Item"])) if "Item" in answer else None

    def query(self, condition: str, values: Item, limit: int | None = None, **more: Any) -> Iterator[dict[str, Any]]:
        """Yield stored items that meet a key condition, page after page, about `limit` at most."""
        left, start = limit, dict[str, Any]()
        while left is None or left > 0:
            answer = self.calls.repeatable(
                "query",
                TableName=self.table,
                KeyConditionExpression=condition,
                ExpressionAttributeValues=to_item(values),
                **({} if left is None else {"Limit": left}),
                **more,
                **start,
            )
            yield from map(from_item, answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return
            left = None if left is None else left - len(answer["Items"])
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def scan(self, condition: str | None = None, values: Item | None = None, **more: Any) -> Iterator[dict[str, Any]]:
        """Yield the answers of a Scan, one per page; `condition` filters them."""
        if condition is not None:
            more["FilterExpression"] = condition
        if values:
            more["ExpressionAttributeValues"] = to_item(values)
        while True:
            answer = self.calls.repeatable("scan", TableName=self.table, **more)
            yield answer
            if "LastEvaluatedKey" not in answer:
                return
            more["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def put(self, value: T) -> None:
        """Put an item, whatever is stored; may be repeated."""
        self.calls.repeatable("put_item", TableName=self.table, Item=to_item(self._encode(value)))

    def replace(self, value: T, before: int | None) -> bool:
        """Put an item if the stored one has the revision `before`, or if None and none is stored; return whether it
        was."""
        return self.write("put_item", self._revision(before), Item=to_item(self._encode(value)))

    def remove(self, key: Item, before: int | None = None) -> bool:
        """Delete an item, with `before` only if it has that revision; return whether it was deleted."""
        if before is not None:
            return self.write("delete_item", self._revision(before), Key=to_item(key))
        self.calls.repeatable("delete_item", TableName=self.table, Key=to_item(key))
        return True

    def write(self, operation: str, condition: tuple[str, Item], **arguments: Any) -> bool:
        """Write if a condition with its values holds; return whether it did."""
        expression, values = condition
        if values:
            arguments["ExpressionAttributeValues"] = to_item(values)
        refused = self.calls.conditional(operation, TableName=self.table, ConditionExpression=expression, **arguments)
        return refused is None

    def put_once(self, value: T, conflict: Callable[[T | None], Exception], **condition: Any) -> None:
        """Put an item with a `nonce` under a condition; raise what `conflict` returns for the item that refused it."""
        refusing = self.calls.put_once(self.table, self._key, self._encode(value), **condition)
        if refusing is not None:
            raise conflict(self._decode(dict(refusing)) if refusing else None)

    def _revision(self, before: int | None) -> tuple[str, Item]:
        if before is None:
            return f"attribute_not_exists({self._key[0]})", {}
        return "revision = :before", {":before": before}


def readable(
    items: Iterable[Item],
    decode: Callable[[Any], T],
    damaged: Callable[[Any, str], T] | None = None,
    *,
    name: str,
    shown: Callable[[Any], str],
) -> Iterator[T]:
    """Yield decoded items; for an unreadable one what `damaged` returns for it and the reason, if given."""
    from delegation.items import each_item, reason_of  # noqa: PLC0415 - most processes read no lists

    outcomes = each_item(items, decode, name=name, shown=shown, in_a_row=None, most_wasted=timedelta.max)
    for outcome in outcomes:
        if outcome.result is not None:
            yield outcome.result
        elif damaged is not None and outcome.error is not None:
            yield damaged(outcome.item, reason_of(outcome.error))


def item_of_model(record: BaseModel) -> dict[str, Any]:
    """Return a record's attributes: times as text, but `expires_at` in epoch seconds, as DynamoDB's time to live
    requires; a field that is None has none."""
    item = {name: _stored(value) for name, value in vars(record).items() if value is not None}
    expires_at: datetime | None = getattr(record, "expires_at", None)
    return item if expires_at is None else {**item, "expires_at": int(expires_at.timestamp())}


def model_of_item(model: type[M], item: Item, malformed: Callable[[str], Exception]) -> M:
    """Return the record of an item; raise what `malformed` returns for the first wrong attribute."""
    values = dict(item)
    try:
        if "expires_at" in values:
            values["expires_at"] = stored_epoch(values["expires_at"])
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise malformed(f"{first['loc']}: {first['msg']}") from None
    except (TypeError, ValueError) as error:
        raise malformed(f"expires_at: {error}") from None


def _stored(value: Any) -> Any:
    match value:
        case datetime():
            return isoformat(value)
        case str():
            return str(value)
        case tuple():
            return list(value)
        case Mapping():
            return dict(value)
        case _:
            return value
