"""What is read of the task table: heads and rows by key, and the sparse indexes of heads, lists by time among them.

The lists are three sparse indexes of the heads, sorted by the time at which tasks were received:
    received      a partition for each day
    target        a partition for each thing that tasks work on, a table for example
    correlation   a partition for each correlation id

They hold keys only, so that a write which moves none of them costs nothing more; the heads are read by BatchGetItem.

`due` is one Query for each shard. `DynamoDbTaskStore` adds the writes.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from delegation.stored_items import Items
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.lanes import Running
from delegation.tasks.life.model import FORMAT, HEAD, Task, label_key
from delegation.tasks.stores import codec
from delegation.tasks.stores.admission import (
    RUNNING,
    Entry,
    LaneRange,
    LaneReader,
    LanesPage,
    Register,
    merged,
    register_item,
    register_of,
    running_entry,
)
from delegation.tasks.stores.base import Child, DueEntry, Received, ReceivedPage, TaskHeads, Unreadable
from delegation.timestamps import isoformat, stored_time_or
from polaris_common.dynamodb import DynamoDbCalls, from_item, to_item

DUE_INDEX: Final = "due"
ADMISSION_INDEX: Final = "admission"
RECEIVED_INDEX: Final = "received"
TARGET_INDEX: Final = "target"
CORRELATION_INDEX: Final = "correlation"
FIRST_DAY: Final = date(2026, 1, 1)
"""The day on which a list ends at the latest: no release stored a task before."""
MOST_DAYS: Final = 32
"""Days that are queried at once. A call queries at most 63: it starts with one and doubles while they are empty."""
_LAST: Final = "~"
"""Sorts after every character of a received key."""
_KEYS_A_CALL: Final = 100
"""Amazon DynamoDB API Reference, BatchGetItem."""
TASK_KEY: Final = ("task_id", "version")
REGISTER_KEY: Final = {"task_id": "admission", "version": -1}
"""The key of the register of admissions, which is no head and no row."""


class DynamoDbTaskReads:
    def __init__(self, dynamodb: DynamoDbCalls, table: str) -> None:
        self.dynamodb = dynamodb
        self.table = table
        self._tasks = Items(dynamodb, table, TASK_KEY, codec.head_item, codec.task_of)
        self._register = Items(
            dynamodb, table, TASK_KEY, lambda register: {**register_item(register), **REGISTER_KEY}, register_of
        )

    def get(self, task_id: str) -> Task | None:
        return self._tasks.get({"task_id": task_id, "version": HEAD})

    def get_many(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        """Return heads: a BatchGetItem for every 100 tasks; unprocessed keys are requested again."""
        heads = map(codec.task_of, self._heads(task_ids, consistent=True))
        return {task.task_id: task for task in heads}

    def get_version(self, task_id: str, version: int) -> Task | None:
        return self._tasks.get({"task_id": task_id, "version": version}) if version > HEAD else None

    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        values = {":id": task_id, ":after": max(after, HEAD)}
        rows = self._tasks.query("task_id = :id AND version > :after", values, limit, ConsistentRead=True)
        return tuple(map(codec.task_of, rows))

    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        """Return due entries: one Query for each shard, in parallel, and one more for each further MB."""

        def shard(bucket: str) -> list[DueEntry]:
            values = {":bucket": bucket, ":now": isoformat(now)}
            items = self._tasks.query("due_bucket = :bucket AND due_at <= :now", values, limit, IndexName=DUE_INDEX)
            return [DueEntry(item["task_id"], stored_time_or(now, item["due_at"])) for item in items]

        with ThreadPoolExecutor(max_workers=8) as pool:
            entries = pool.map(shard, codec.due_buckets() if shards is None else shards)
        return sorted(chain.from_iterable(entries), key=lambda entry: (entry.due_at, entry.task_id))[:limit]

    def queued_in(self, now: datetime, *, each: int, lanes: int, span: LaneRange) -> LanesPage:
        """Return waiting tasks: usually one Query for each of the four shards, in parallel."""

        def read(bucket: str) -> LaneReader:
            return LaneReader(partial(self._waiting, bucket), each=each, lanes=lanes).run(span)

        with ThreadPoolExecutor(max_workers=4) as pool:
            return merged(list(pool.map(read, codec.queued_buckets())), now, each=each)

    def _waiting(self, bucket: str, span: LaneRange, limit: int, start: Any) -> tuple[Sequence[Entry], Any]:
        """Read one page; neither bound is itself a key."""
        if span.after > span.until:
            return (), None
        values = {":bucket": bucket, ":after": span.after, ":until": span.until}
        answer = self.dynamodb.repeatable(
            "query",
            TableName=self.table,
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
        items = self._tasks.query("admission_bucket = :bucket", {":bucket": RUNNING}, IndexName=ADMISSION_INDEX)
        return tuple(running_entry(item["task_id"], item["admission_key"]) for item in items)

    def register(self) -> Register:
        return self._register.get(REGISTER_KEY) or Register()

    def write_register(self, register: Register) -> bool:
        return self._register.replace(register, register.revision - 1 or None)

    def children(self, task_id: str) -> Sequence[Child]:
        """Return children: one Query for each MB."""
        return sorted(map(child_of, self._linked(task_id + CHILDREN)), key=lambda child: child.task_id)

    def parents(self, task_id: str) -> Mapping[str, int]:
        """Return parents: one Query for each MB."""
        return {item["parent_id"]: int(item["attempt"]) for item in self._linked(task_id + PARENTS)}

    def _linked(self, partition: str) -> Iterator[dict[str, Any]]:
        return self._tasks.query("task_id = :id", {":id": partition}, ConsistentRead=True)

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        """Return heads by a Scan, which reads rows too."""
        entries: list[Task | Unreadable] = []
        start: dict[str, Any] = {}
        if cursor is not None:
            start = {"ExclusiveStartKey": to_item({"task_id": cursor, "version": HEAD})}
        for answer in self._tasks.scan("version = :head", {":head": HEAD}, **start):
            entries += [codec.entry_of(item["task_id"], item) for item in map(from_item, answer["Items"])]
            if len(entries) > limit:
                break
        page = tuple(entries[:limit])
        return TaskHeads(page, page[-1].task_id if len(entries) > limit else None)

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        """Return a page: a Query, or one for each day until it is full, and a BatchGetItem."""
        before = before or f"{isoformat(which.until)}{_LAST}"
        if before < _first_key(which):
            return ReceivedPage((), None)
        if which.correlation_id is not None:
            keys, cursor = self._labelled(CORRELATION_INDEX, which.correlation_id, which, before, limit)
        elif which.target is not None:
            keys, cursor = self._labelled(TARGET_INDEX, which.target, which, before, limit)
        else:
            keys, cursor = self._of_days(which, before, limit)
        items = self._heads((_task_id(key) for key in keys), consistent=False)
        heads = {item["task_id"]: codec.entry_of(item["task_id"], item) for item in items}
        entries = ((key, heads[_task_id(key)]) for key in keys if _task_id(key) in heads)
        listed = ((key, head) for key, head in entries if isinstance(head, Unreadable) or which.has_labels_of(head))
        return ReceivedPage(tuple(listed), cursor)

    def _labelled(
        self, index: str, label: str, which: Received, before: str, limit: int
    ) -> tuple[list[str], str | None]:
        keys = self._received_keys(index, f"{index}_key", label_key(label), _first_key(which), before, limit=limit)
        return keys, keys[-1] if len(keys) == limit else None

    def _of_days(self, which: Received, before: str, limit: int) -> tuple[list[str], str | None]:
        """Return the keys of a page, and where the next starts: the last key, or a day not yet read."""
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
            return self._received_keys(RECEIVED_INDEX, "received_bucket", str(day), first, before, limit=limit)

        if len(days) == 1:
            yield of_day(days[0])
            return
        with ThreadPoolExecutor(max_workers=8) as pool:
            yield from pool.map(of_day, days)

    def _received_keys(
        self, index: str, name: str, value: str | None, since: str, before: str, *, limit: int
    ) -> list[str]:
        """Return the keys of a partition, newest first, from `since` to below `before`."""
        items = self._tasks.query(
            f"{name} = :value AND received_key BETWEEN :since AND :before",
            {":value": value, ":since": since, ":before": before},
            limit + 1,  # BETWEEN includes `before`
            IndexName=index,
            ScanIndexForward=False,
        )
        return list(islice((key for item in items if (key := item["received_key"]) != before), limit))

    def _heads(self, task_ids: Iterable[str], *, consistent: bool) -> Iterator[dict[str, Any]]:
        """Yield the existing heads. DynamoDB leaves some unprocessed if they are large or it is throttled."""
        keys = [to_item({"task_id": task_id, "version": HEAD}) for task_id in dict.fromkeys(task_ids)]
        failures = 0
        while keys:
            if failures == self.dynamodb.tries:
                raise StoreUnavailable(f"DynamoDB throttled the reads of {len(keys)} tasks. Repeat the request")
            self.dynamodb.wait(failures)
            some, keys = keys[:_KEYS_A_CALL], keys[_KEYS_A_CALL:]
            request = {self.table: {"Keys": some, "ConsistentRead": consistent}}
            answer = self.dynamodb.repeatable("batch_get_item", RequestItems=request)
            yield from map(from_item, answer["Responses"].get(self.table, ()))
            unread = answer.get("UnprocessedKeys", {}).get(self.table, {}).get("Keys", [])
            failures = failures + 1 if len(unread) == len(some) else 0
            keys = [*unread, *keys]


def _first_key(which: Received) -> str:
    """Return what sorts before all keys of a list."""
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


_KEY_TYPES: Final = {"task_id": "S", "version": "N"}
_INDEXES: Final = {
    DUE_INDEX: {"due_bucket": "S", "due_at": "S"},
    ADMISSION_INDEX: {"admission_bucket": "S", "admission_key": "S"},
    RECEIVED_INDEX: {"received_bucket": "S", "received_key": "S"},
    TARGET_INDEX: {"target_key": "S", "received_key": "S"},
    CORRELATION_INDEX: {"correlation_key": "S", "received_key": "S"},
}


def create_task_table(client: Any, name: str) -> bool:
    """Create the task table, billed by request, and wait for it; False if it exists. `client` is a boto3 DynamoDB
    client. Raises StoreUnavailable if DynamoDB refuses or cannot be reached."""
    indexes = [
        {"IndexName": index, "KeySchema": _schema(keys), "Projection": {"ProjectionType": "KEYS_ONLY"}}
        for index, keys in _INDEXES.items()
    ]
    types = {**_KEY_TYPES, **{name: kind for keys in _INDEXES.values() for name, kind in keys.items()}}
    try:
        client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in types.items()],
            KeySchema=_schema(_KEY_TYPES),
            GlobalSecondaryIndexes=indexes,
        )
        client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    except client.exceptions.ResourceInUseException:
        return False
    except ClientError as error:
        raise StoreUnavailable(f"the table {name} could not be created: {error.response['Error']['Code']}") from error
    except BotoCoreError as error:
        raise StoreUnavailable(f"the table {name} could not be created: {type(error).__name__}") from error
    return True


def _schema(names: dict[str, str]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": part} for name, part in zip(names, ("HASH", "RANGE"), strict=True)]
