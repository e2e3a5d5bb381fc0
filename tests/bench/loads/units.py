"""A DynamoDB client in memory for the reference index, which counts capacity units by the sizes of items.

Amazon DynamoDB Developer Guide, "DynamoDB provisioned capacity mode": a strongly consistent read is one unit for each
4 KB, of a Query for each 4 KB of all items of a page; a write is one for each 1 KB of an item.
"""

import math
from bisect import bisect_left, insort
from collections import defaultdict
from typing import Any

from botocore.exceptions import ClientError

_PAGE_BYTES = 1_000_000
_READ_BYTES = 4_096
_WRITE_BYTES = 1_024


class CountedDynamoDb:
    """The operations and conditions that ReferenceStore uses; `reads` and `writes` are units."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self._keys: dict[str, list[str]] = defaultdict(list)
        self.reads = 0
        self.writes = 0

    def get_item(self, *, Key: dict[str, Any], **_: Any) -> dict[str, Any]:
        found = self._items[Key["pk"]["S"]].get(Key["sk"]["S"])
        self.reads += max(math.ceil((0 if found is None else _size(found)) / _READ_BYTES), 1)
        return {} if found is None else {"Item": found}

    def query(
        self,
        *,
        KeyConditionExpression: str,
        ExpressionAttributeValues: dict[str, Any],
        ExclusiveStartKey: dict[str, Any] | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        assert KeyConditionExpression in {"pk = :pk", "pk = :pk AND begins_with(sk, :prefix)"}
        pk = ExpressionAttributeValues[":pk"]["S"]
        prefix = ExpressionAttributeValues.get(":prefix", {"S": ""})["S"]
        keys, items = self._keys[pk], self._items[pk]
        after = None if ExclusiveStartKey is None else ExclusiveStartKey["sk"]["S"]
        at = bisect_left(keys, prefix if after is None else f"{after}\x00")
        page: list[dict[str, Any]] = []
        read = 0
        while at < len(keys) and keys[at].startswith(prefix) and read < _PAGE_BYTES:
            page.append(items[keys[at]])
            read += _size(items[keys[at]])
            at += 1
        self.reads += max(math.ceil(read / _READ_BYTES), 1)
        more = at < len(keys) and keys[at].startswith(prefix)
        last = {"LastEvaluatedKey": {"pk": {"S": pk}, "sk": {"S": keys[at - 1]}}} if more else {}
        return {"Items": page, **last}

    def put_item(self, *, Item: dict[str, Any], **condition: Any) -> dict[str, Any]:
        self._require(Item, condition, "PutItem")
        self._put(Item)
        return {}

    def delete_item(self, *, Key: dict[str, Any], **condition: Any) -> dict[str, Any]:
        self._require(Key, condition, "DeleteItem")
        pk, sk = Key["pk"]["S"], Key["sk"]["S"]
        found = self._items[pk].pop(sk, None)
        self.writes += _written({} if found is None else found)
        if found is not None:
            del self._keys[pk][bisect_left(self._keys[pk], sk)]
        return {}

    def batch_write_item(self, *, RequestItems: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
        for requests in RequestItems.values():
            for request in requests:
                self._put(request["PutRequest"]["Item"])
        return {}

    def _put(self, item: dict[str, Any]) -> None:
        pk, sk = item["pk"]["S"], item["sk"]["S"]
        if sk not in self._items[pk]:
            insort(self._keys[pk], sk)
        self.writes += max(_written(item), _written(self._items[pk].get(sk, {})))
        self._items[pk][sk] = item

    def _require(self, key: dict[str, Any], condition: dict[str, Any], operation: str) -> None:
        stored = self._items[key["pk"]["S"]].get(key["sk"]["S"])
        values = condition.get("ExpressionAttributeValues", {})
        if "ConditionExpression" not in condition:
            return
        revision = 0 if stored is None else int(stored["revision"]["N"])
        holds = {
            "attribute_not_exists(pk)": stored is None,
            "revision = :before": stored is not None and revision == int(values.get(":before", {"N": "-1"})["N"]),
            "attribute_not_exists(pk) OR revision <= :last": stored is None
            or revision <= int(values.get(":last", {"N": "-1"})["N"]),
        }
        if not holds[condition["ConditionExpression"]]:
            self.writes += 1
            error = {"Error": {"Code": "ConditionalCheckFailedException", "Message": ""}}
            raise ClientError(error | ({} if stored is None else {"Item": stored}), operation)


def _written(item: dict[str, Any]) -> int:
    return max(math.ceil(_size(item) / _WRITE_BYTES), 1)


def _size(item: dict[str, Any]) -> int:
    """The names and values of an item in bytes, numbers and lists by DynamoDB's rules of thumb."""
    return sum(len(name) + _bytes(value) for name, value in item.items())


def _bytes(value: dict[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return len(content) // 2 + 1
        case "B":
            return len(getattr(content, "value", content))
        case "L":
            return 3 + sum(1 + _bytes(one) for one in content)
        case _:
            return 1
