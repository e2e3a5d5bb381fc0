"""What is read of the task table: heads and rows by key, and the sparse indexes of heads, lists by time among them.

The lists are three sparse indexes of the heads, sorted by the time at which tasks were received:
    received      a partition for each day
    target        a partition for each thing that tasks work on, a table for example
    correlation   a partition for each correlation id

They hold keys only, so that a write which moves none of them costs nothing more; the heads are read by BatchGetItem.

`due` is one Query for each shard. `DynamoDbTaskStore` adds the writes.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Final

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.lanes import Queued, Running
from delegation.tasks.life.model import FORMAT, HEAD, Task, label_key
from delegation.tasks.stores import codec
from delegation.tasks.stores.admission import (
    EVERY_LANE,
    RUNNING,
    Entry,
    LaneRange,
    LaneReader,
    LanesPage,
    Register,
    merged,
    register_of,
    running_entry,
)
from delegation.tasks.stores.base import Child, DueEntry, Received, ReceivedPage, TaskHeads, Unreadable
from delegation.timestamps import isoformat, stored_time_or
from polaris_common.dynamodb import DynamoDbCalls, from_item, to_item

RECEIVED_INDEX: Final = "received"
TARGET_INDEX: Final = "target"
CORRELATION_INDEX: Final = "correlation"
FIRST_DAY: Final = date(2026, 1, 1)
"""The day on which a list ends at the latest: no release stored a task before."""
MOST_DAYS: Final = 32
"""Days that are queried at once; 63 of a call, because it begins with one and doubles while they are empty."""
_HEADS_A_CALL: Final = 100
"""Keys of a BatchGetItem at most (Amazon DynamoDB API Reference, BatchGetItem)."""
_LAST: Final = "~"
"""Sorts after every character of a received key."""
Read = Callable[..., dict[str, Any]]
"""Makes a repeatable call of DynamoDB: its operation, then its arguments."""


class ReceivedTasks:
    """Reads pages of the three indexes of a task table; `wait` pauses before a repeat, which it gets the number of."""

    def __init__(self, read: Read, table: str, *, wait: Callable[[int], None], tries: int) -> None:
        self._read = read
        self._table = table
        self._wait = wait
        self._tries = tries

    def page(self, which: Received, before: str | None, limit: int) -> ReceivedPage:
        """Return a page: a Query, or one for each day until it is full, and a BatchGetItem."""
        before = before or f"{isoformat(which.until)}{_LAST}"
        if before < _first_key(which):
            return ReceivedPage((), None)
        if which.correlation_id is None and which.target is None:
            keys, cursor = self._of_days(which, before, limit)
        else:
            keys, cursor = self._labelled(which, before, limit)
        heads = self._heads([_task_id(key) for key in keys])
        found = ((key, heads[_task_id(key)]) for key in keys if _task_id(key) in heads)
        return ReceivedPage(tuple(one for one in found if _is_listed(which, one[1])), cursor)

    def _labelled(self, which: Received, before: str, limit: int) -> tuple[list[str], str | None]:
        if which.correlation_id is not None:
            index, name, value = CORRELATION_INDEX, "correlation_key", label_key(which.correlation_id)
        else:
            index, name, value = TARGET_INDEX, "target_key", label_key(which.target)
        keys = self._query(index, name, value, since=_first_key(which), before=before, limit=limit)
        return keys, keys[-1] if len(keys) == limit else None

    def _of_days(self, which: Received, before: str, limit: int) -> tuple[list[str], str | None]:
        """Return the keys of a page, and where the next begins: the last key, or a day that was not read."""
        first = _first_key(which)
        day, last = date.fromisoformat(codec.day_of(before)), date.fromisoformat(codec.day_of(first))
        keys: list[str] = []
        width = 1
        while day >= last and width <= MOST_DAYS:
            days = [day - timedelta(n) for n in range(min(width, (day - last).days + 1))]
            keys += chain.from_iterable(self._days(days, first, before, limit - len(keys)))
            if len(keys) >= limit:
                return keys[:limit], keys[limit - 1]
            day, width = days[-1] - timedelta(1), 2 * width
        return keys, f"{day}{_LAST}" if day >= last else None

    def _days(self, days: list[date], first: str, before: str, limit: int) -> Iterator[list[str]]:
        def of_day(day: date) -> list[str]:
            return self._query(RECEIVED_INDEX, "received_bucket", str(day), since=first, before=before, limit=limit)

        if len(days) == 1:
            yield of_day(days[0])
            return
        with ThreadPoolExecutor(max_workers=8) as pool:
            yield from pool.map(of_day, days)

    def _query(self, index: str, name: str, value: str | None, *, since: str, before: str, limit: int) -> list[str]:
        """Return the keys of a partition, newest first, from `since` to below `before`."""
        keys: list[str] = []
        start: dict[str, Any] = {}
        while len(keys) < limit:
            answer = self._read(
                "query",
                TableName=self._table,
                IndexName=index,
                KeyConditionExpression=f"{name} = :value AND received_key BETWEEN :since AND :before",
                ExpressionAttributeValues=to_item({":value": value, ":since": since, ":before": before}),
                ScanIndexForward=False,
                Limit=limit + 1 - len(keys),  # BETWEEN includes `before`
                **start,
            )
            found = [from_item(item)["received_key"] for item in answer["Items"]]
            keys += [key for key in found if key != before]
            if "LastEvaluatedKey" not in answer:
                break
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        return keys[:limit]

    def _heads(self, ids: list[str]) -> dict[str, Task | Unreadable]:
        """Return the heads that exist; DynamoDB leaves some for another call when they are large or it is throttled."""
        heads: dict[str, Task | Unreadable] = {}
        pending = [to_item({"task_id": task_id, "version": HEAD}) for task_id in dict.fromkeys(ids)]
        repeats = 0
        while pending:
            if repeats == self._tries:
                raise StoreUnavailable(f"{len(pending)} tasks of a list were not read: DynamoDB is throttled")
            self._wait(repeats)
            some, pending = pending[:_HEADS_A_CALL], pending[_HEADS_A_CALL:]
            answer = self._read("batch_get_item", RequestItems={self._table: {"Keys": some}})
            for item in map(from_item, answer["Responses"].get(self._table, [])):
                heads[item["task_id"]] = codec.entry_of(item["task_id"], item)
            left: Mapping[str, Any] = answer.get("UnprocessedKeys", {}).get(self._table, {})
            unread = left.get("Keys", [])
            repeats = repeats + 1 if len(unread) == len(some) else 0
            pending = [*unread, *pending]
        return heads


def _is_listed(which: Received, head: Task | Unreadable) -> bool:
    return isinstance(head, Unreadable) or which.has_labels_of(head)


def _first_key(which: Received) -> str:
    """Return what sorts before the keys of all tasks of a list."""
    first = datetime.combine(FIRST_DAY, datetime.min.time(), UTC)
    return isoformat(max(which.since or first, first))


def _task_id(key: str) -> str:
    return key.partition("/")[2]


CHILDREN: Final = "/children"
PARENTS: Final = "/parents"
PAIRS_A_CALL: Final = 40
"""Children whose two items one transaction deletes, below DynamoDB's limit of 100 actions."""


def child_item(parent_id: str, child: Child) -> dict[str, Any]:
    return {
        **child_key(parent_id, child.task_id),
        "child_id": child.task_id,
        "attempt": child.attempt,
        "task_type": child.task_type,
        "task_payload": child.task_payload,
        "format": FORMAT,
    }


def parent_item(parent_id: str, child: Child) -> dict[str, Any]:
    return {**parent_key(parent_id, child.task_id), "parent_id": parent_id, "attempt": child.attempt, "format": FORMAT}


def child_key(parent_id: str, child_id: str) -> dict[str, Any]:
    return {"task_id": parent_id + CHILDREN, "version": _number(child_id)}


def parent_key(parent_id: str, child_id: str) -> dict[str, Any]:
    return {"task_id": child_id + PARENTS, "version": _number(parent_id)}


def child_of(item: Mapping[str, Any]) -> Child:
    return Child(item["child_id"], int(item["attempt"]), item["task_type"], item["task_payload"])


def _number(task_id: str) -> int:
    """Return a number from 1 to 2^120 for an id, the same in every process."""
    return int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:15]) + 1


DUE_INDEX: Final = "due"
ADMISSION_INDEX: Final = "admission"
_KEYS_A_CALL: Final = 100
"""Amazon DynamoDB API Reference, BatchGetItem."""
REGISTER_KEY: Final = {"task_id": "admission", "version": -1}
"""The key of the register of admissions, which is no head and no row."""


class DynamoDbTaskReads:
    dynamodb: DynamoDbCalls
    table: str

    def get(self, task_id: str) -> Task | None:
        return self._item(task_id, HEAD)

    def get_many(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        """Return heads: a BatchGetItem for every 100 tasks; what it leaves out is requested again."""
        found: dict[str, Task] = {}
        keys = [to_item({"task_id": task_id, "version": HEAD}) for task_id in dict.fromkeys(task_ids)]
        failures = 0
        while keys:
            some, keys = keys[:_KEYS_A_CALL], keys[_KEYS_A_CALL:]
            asked = {self.table: {"Keys": some, "ConsistentRead": True}}
            answer = self.dynamodb.repeatable("batch_get_item", RequestItems=asked)
            for task in map(codec.task_of, map(from_item, answer["Responses"].get(self.table, ()))):
                found[task.task_id] = task
            left = answer.get("UnprocessedKeys", {}).get(self.table, {}).get("Keys", [])
            keys += left
            failures = failures + 1 if len(left) == len(some) else 0
            if failures == self.dynamodb.tries:
                raise StoreUnavailable("DynamoDB left the keys of a BatchGetItem unprocessed")
            if failures:
                self.dynamodb.wait(failures)
        return found

    def get_version(self, task_id: str, version: int) -> Task | None:
        return self._item(task_id, version) if version > HEAD else None

    def _item(self, task_id: str, version: int) -> Task | None:
        answer = self._read("get_item", Key=to_item({"task_id": task_id, "version": version}), ConsistentRead=True)
        return codec.task_of(from_item(answer["Item"])) if "Item" in answer else None

    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        found = self.query(
            limit,
            KeyConditionExpression="task_id = :id AND version > :after",
            ExpressionAttributeValues=to_item({":id": task_id, ":after": max(after, HEAD)}),
            ConsistentRead=True,
        )
        return tuple(codec.task_of(item) for item in found)

    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        """Return due entries: one Query for each shard, in parallel, and one more for each further MB."""

        def shard(bucket: str) -> list[DueEntry]:
            items = self.query(
                limit,
                IndexName=DUE_INDEX,
                KeyConditionExpression="due_bucket = :bucket AND due_at <= :now",
                ExpressionAttributeValues=to_item({":bucket": bucket, ":now": isoformat(now)}),
            )
            return [DueEntry(item["task_id"], stored_time_or(now, item["due_at"])) for item in items]

        with ThreadPoolExecutor(max_workers=8) as pool:
            found = pool.map(shard, codec.due_buckets() if shards is None else shards)
        return sorted(chain.from_iterable(found), key=lambda entry: (entry.due_at, entry.task_id))[:limit]

    def queued(self, now: datetime, *, each: int) -> Sequence[Queued]:
        """Return waiting tasks: Queries for each lane that has more, of four shards in parallel."""
        return self._lanes(now, EVERY_LANE, each, None).found

    def queued_in(self, now: datetime, *, each: int, lanes: int, span: LaneRange) -> LanesPage:
        """Return waiting tasks: usually one Query for each of the four shards."""
        return self._lanes(now, span, each, lanes)

    def _lanes(self, now: datetime, span: LaneRange, each: int, lanes: int | None) -> LanesPage:
        def read(bucket: str) -> LaneReader:
            return LaneReader(partial(self._waiting, bucket), each=each, lanes=lanes).run(span)

        with ThreadPoolExecutor(max_workers=4) as pool:
            return merged(list(pool.map(read, codec.queued_buckets())), now, each=each)

    def _waiting(self, bucket: str, span: LaneRange, limit: int, start: Any) -> tuple[Sequence[Entry], Any]:
        """Read one page; neither bound is a key."""
        if span.after > span.until:
            return (), None
        values = {":bucket": bucket, ":after": span.after, ":until": span.until}
        answer = self._read(
            "query",
            IndexName=ADMISSION_INDEX,
            KeyConditionExpression="admission_bucket = :bucket AND admission_key BETWEEN :after AND :until",
            ExpressionAttributeValues=to_item(values),
            Limit=limit,
            **({} if start is None else {"ExclusiveStartKey": start}),
        )
        items = map(from_item, answer["Items"])
        return [(item["admission_key"], item["task_id"]) for item in items], answer.get("LastEvaluatedKey")

    def running(self) -> Sequence[Running]:
        """Return admitted tasks: one Query for each MB, about 5,000 tasks."""
        items = self.query(
            1_000_000,
            IndexName=ADMISSION_INDEX,
            KeyConditionExpression="admission_bucket = :bucket",
            ExpressionAttributeValues=to_item({":bucket": RUNNING}),
        )
        return tuple(running_entry(item["task_id"], item["admission_key"]) for item in items)

    def register(self) -> Register:
        answer = self._read("get_item", Key=to_item(REGISTER_KEY), ConsistentRead=True)
        return register_of(from_item(answer["Item"]) if "Item" in answer else None)

    def children(self, task_id: str) -> Sequence[Child]:
        """Return children: one Query for each MB."""
        return sorted(map(child_of, self._linked(task_id + CHILDREN)), key=lambda child: child.task_id)

    def parents(self, task_id: str) -> Mapping[str, int]:
        """Return parents: one Query for each MB."""
        return {item["parent_id"]: int(item["attempt"]) for item in self._linked(task_id + PARENTS)}

    def _linked(self, partition: str) -> list[dict[str, Any]]:
        return self.query(
            None,
            KeyConditionExpression="task_id = :id",
            ExpressionAttributeValues=to_item({":id": partition}),
            ConsistentRead=True,
        )

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        """Return heads by a Scan, which reads rows too."""
        found: list[Task | Unreadable] = []
        start: dict[str, Any] = {}
        if cursor is not None:
            start = {"ExclusiveStartKey": to_item({"task_id": cursor, "version": HEAD})}
        while len(found) <= limit:
            answer = self._read(
                "scan",
                FilterExpression="version = :head",
                ExpressionAttributeValues=to_item({":head": HEAD}),
                **start,
            )
            found += [codec.entry_of(item["task_id"], item) for item in map(from_item, answer["Items"])]
            if "LastEvaluatedKey" not in answer:
                break
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        page = tuple(found[:limit])
        return TaskHeads(page, page[-1].task_id if len(found) > limit else None)

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        # Loaded here, because only the API reads lists.

        reading = ReceivedTasks(
            self.dynamodb.repeatable, self.table, wait=self.dynamodb.wait, tries=self.dynamodb.tries
        )
        return reading.page(which, before, limit)

    def query(self, limit: int | None, **arguments: Any) -> list[dict[str, Any]]:
        """Return the items of a Query: its pages until there are `limit` items if given, or until the last page."""
        items: list[dict[str, Any]] = []
        start: dict[str, Any] = {}
        while limit is None or len(items) < limit:
            page = {} if limit is None else {"Limit": limit - len(items)}
            answer = self._read("query", **page, **arguments, **start)
            items += map(from_item, answer["Items"])
            if "LastEvaluatedKey" not in answer:
                break
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        return items

    def _read(self, operation: str, **arguments: Any) -> dict[str, Any]:
        return self.dynamodb.repeatable(operation, TableName=self.table, **arguments)
