"""A DynamoDB client in memory, and the service's stores on it."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import chain
from threading import RLock
from typing import Any, Final

from botocore.exceptions import ClientError

from delegation.gateway.drop.store import CALLERS_INDEX, DUE_INDEX, NEWEST_INDEX, TombstoneStore, TombstoneTable
from delegation.gateway.drop.tombstones import Tombstone
from delegation.identifiers import TableIdentifier
from delegation.references.store import ReferenceStore, ReferenceTable
from delegation.upkeep.health.store import HealthStore, HealthTable
from polaris_common.dynamodb import from_item

Item = dict[str, Any]
Condition = Callable[[Item, Item], bool]
_INDEXES: Final = {
    NEWEST_INDEX: ("listed_in", "listed_key"),
    CALLERS_INDEX: ("caller", "listed_key"),
    DUE_INDEX: ("checked_in", "check_at"),
}
_PAGE: Final = 500


class MemoryDynamoDb:
    """One table with the key attributes `key`, atomic under threads. An expression that it cannot read raises
    ValueError."""

    def __init__(self, *key: str) -> None:
        self._key = key
        self._lock = RLock()
        self._rows: dict[str, dict[str, Item]] = defaultdict(dict)

    def get_item(self, *, Key: Item, **_: Any) -> Item:
        found = self._stored(Key)
        return {} if found is None else {"Item": found}

    def put_item(self, *, Item: Item, **condition: Any) -> Item:
        with self._lock:
            self._require(self._stored(Item), "PutItem", **condition)
            self._put(Item)
        return {}

    def delete_item(self, *, Key: Item, **condition: Any) -> Item:
        with self._lock:
            self._require(self._stored(Key), "DeleteItem", **condition)
            row, column = self._place(Key)
            self._rows[row].pop(column, None)
        return {}

    def batch_write_item(self, *, RequestItems: Mapping[str, list[Item]]) -> Item:
        for request in chain.from_iterable(RequestItems.values()):
            self._put(request["PutRequest"]["Item"])
        return {}

    def query(
        self,
        *,
        KeyConditionExpression: str,
        ExpressionAttributeValues: Item,
        IndexName: str | None = None,
        ScanIndexForward: bool = True,
        Limit: int = _PAGE,
        ExclusiveStartKey: Item | None = None,
        ProjectionExpression: str | None = None,
        ExpressionAttributeNames: Mapping[str, str] | None = None,
        **_: Any,
    ) -> Item:
        key = self._key if IndexName is None else _INDEXES[IndexName]
        with self._lock:
            rows = (
                self._rows[ExpressionAttributeValues[_value_of(KeyConditionExpression, key[0])]["S"]].values()
                if IndexName is None
                else chain.from_iterable(row.values() for row in self._rows.values())
            )
            met = [item for item in rows if _holds(KeyConditionExpression, item, ExpressionAttributeValues)]

        columns = (key[1], *self._key)

        def position(item: Item) -> tuple[bytes, ...]:
            return tuple([item[name]["S"].encode() for name in columns])

        met.sort(key=position, reverse=not ScanIndexForward)
        if ExclusiveStartKey is not None:
            start = position(ExclusiveStartKey)
            met = [one for one in met if (position(one) > start if ScanIndexForward else position(one) < start)]
        page = met[:Limit]
        last = {name: page[-1][name] for name in {*key, *self._key}} if len(met) > len(page) else None
        if ProjectionExpression is not None:
            names = [(ExpressionAttributeNames or {}).get(name, name) for name in ProjectionExpression.split(", ")]
            page = [{name: item[name] for name in names if name in item} for item in page]
        return {"Items": page} if last is None else {"Items": page, "LastEvaluatedKey": last}

    def clear(self) -> None:
        self._rows.clear()

    def scan(self, **_: Any) -> Item:
        with self._lock:
            return {"Items": [item for row in self._rows.values() for item in row.values()]}

    def _place(self, item: Item) -> tuple[str, str]:
        return item[self._key[0]]["S"], item[self._key[1]]["S"]

    def _stored(self, item: Item) -> Item | None:
        row, column = self._place(item)
        return self._rows[row].get(column)

    def _put(self, item: Item) -> None:
        row, column = self._place(item)
        self._rows[row][column] = item

    @staticmethod
    def _require(
        stored: Item | None,
        operation: str,
        ConditionExpression: str | None = None,
        ExpressionAttributeValues: Item | None = None,
        **_: Any,
    ) -> None:
        if ConditionExpression is None or _holds(ConditionExpression, stored or {}, ExpressionAttributeValues or {}):
            return
        answer: Any = {"Error": {"Code": "ConditionalCheckFailedException", "Message": ""}}
        if stored is not None:
            answer["Item"] = stored
        raise ClientError(answer, operation)


_TOKENS: Final = re.compile(r"[(),]|<=|<|=|:?\w+")
_FUNCTIONS: Final[Mapping[str, Callable[[Item, Item, str, str], bool]]] = {
    "attribute_exists": lambda item, _values, name, _value: name in item,
    "attribute_not_exists": lambda item, _values, name, _value: name not in item,
    "attribute_type": lambda item, values, name, value: values[value]["S"] in item.get(name, {}),
    "begins_with": lambda item, values, name, value: str(item.get(name, {}).get("S")).startswith(values[value]["S"]),
}


def _value_of(expression: str, name: str) -> str:
    return expression.partition(f"{name} = ")[2].partition(" ")[0]


def _holds(expression: str, item: Item, values: Item) -> bool:
    """Whether an item meets a condition: functions and comparisons with NOT, AND, OR and parentheses."""
    return _parsed(expression)(item, values)


@cache
def _parsed(expression: str) -> Condition:
    """Parse a condition once: a query asks it of each item."""
    tokens = iter([*_TOKENS.findall(expression), ""])
    condition, rest = _alternatives(next(tokens), tokens)
    if rest:
        raise ValueError(f"{rest} in {expression}")
    return condition


def _alternatives(token: str, tokens: Iterator[str]) -> tuple[Condition, str]:
    condition, token = _all_of(token, tokens)
    while token == "OR":
        other, token = _all_of(next(tokens), tokens)
        condition = _either(condition, other)
    return condition, token


def _all_of(token: str, tokens: Iterator[str]) -> tuple[Condition, str]:
    condition, token = _one(token, tokens), next(tokens)
    while token == "AND":
        condition, token = _both(condition, _one(next(tokens), tokens)), next(tokens)
    return condition, token


def _either(first: Condition, second: Condition) -> Condition:
    return lambda item, values: first(item, values) or second(item, values)


def _both(first: Condition, second: Condition) -> Condition:
    return lambda item, values: first(item, values) and second(item, values)


def _one(token: str, tokens: Iterator[str]) -> Condition:
    if token == "NOT":
        negated = _one(next(tokens), tokens)
        return lambda item, values: not negated(item, values)
    if token == "(":
        condition, closing = _alternatives(next(tokens), tokens)
        if closing != ")":
            raise ValueError(f"{closing} for a parenthesis")
        return condition
    if token in _FUNCTIONS:
        function, opening, name, after = _FUNCTIONS[token], next(tokens), next(tokens), next(tokens)
        argument = next(tokens) if after == "," else ""
        if opening != "(" or (argument and next(tokens) != ")"):
            raise ValueError(f"the arguments of {token}")
        return lambda item, values: function(item, values, name, argument)
    return _comparison(token, next(tokens), next(tokens))


def _comparison(attribute: str, operator: str, value: str) -> Condition:
    def holds(item: Item, values: Item) -> bool:
        stored, given = item.get(attribute), values[value]
        if stored is None or stored.keys() != given.keys():
            return False
        left, right = (side["S"] if "S" in side else from_item({"it": side})["it"] for side in (stored, given))
        if operator == "=":
            return bool(left == right)
        return bool(left < right or (operator == "<=" and left == right))

    return holds


class MemoryReferenceStore(ReferenceStore):
    def __init__(self) -> None:
        super().__init__(ReferenceTable(MemoryDynamoDb("pk", "sk")), "references")


class MemoryHealthStore(HealthStore):
    def __init__(self) -> None:
        super().__init__(HealthTable(MemoryDynamoDb("pk", "sk")), "references")


def no_fault(_point: str) -> None: ...


class MemoryTombstoneStore(TombstoneStore):
    """`fault` is called before and after each write with its name."""

    def __init__(self, fault: Callable[[str], None] = no_fault) -> None:
        super().__init__(TombstoneTable(MemoryDynamoDb("table_key", "tombstone_id")), "tombstones")
        self.fault = fault

    def get(self, tombstone_id: str) -> Tombstone | None:
        self.fault("before get")
        return super().get(tombstone_id)

    def put(self, record: Tombstone) -> None:
        self.fault(f"before put {record.state}")
        super().put(record)
        self.fault(f"after put {record.state}")

    def replace(self, record: Tombstone, before: Tombstone) -> None:
        self.fault(f"before put {record.state}")
        super().replace(record, before)
        self.fault(f"after put {record.state}")

    def of_table(self, realm: str, identifier: TableIdentifier, limit: int) -> Any:
        self.fault("before of_table")
        return super().of_table(realm, identifier, limit)
