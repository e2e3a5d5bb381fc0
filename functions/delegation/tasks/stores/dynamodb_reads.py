"""What is read of the task table: heads and rows by key, and the sparse indexes of heads.

`due` is one Query for each shard. `DynamoDbTaskStore` adds the writes.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, Final

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.lanes import Queued, Running
from delegation.tasks.life.model import FORMAT, HEAD, Task
from delegation.tasks.stores import codec
from delegation.tasks.stores.admission import (
    EVERY_LANE,
    RUNNING,
    Entry,
    LaneReader,
    LanesPage,
    Register,
    Span,
    merged,
    register_of,
    running_entry,
)
from delegation.tasks.stores.base import Child, DueEntry, Received, ReceivedPage, TaskHeads, Unreadable
from delegation.timestamps import isoformat, stored_time_or
from polaris_common.dynamodb import DynamoDbCalls, from_item, to_item

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
        """See TaskStore.get_many: a BatchGetItem for every 100 tasks; what it leaves out is asked for again."""
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
        """See TaskStore.due: one Query for each shard, in parallel, and one more for each further MB."""

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
        """See AdmissionStore.queued: Queries for each lane that has more, of four shards in parallel."""
        return self._lanes(now, EVERY_LANE, each, None).found

    def queued_in(self, now: datetime, *, each: int, lanes: int, span: Span) -> LanesPage:
        """See AdmissionStore.queued_in: mostly one Query for each of the four shards."""
        return self._lanes(now, span, each, lanes)

    def _lanes(self, now: datetime, span: Span, each: int, lanes: int | None) -> LanesPage:
        def read(bucket: str) -> LaneReader:
            return LaneReader(partial(self._waiting, bucket), each=each, lanes=lanes).run(span)

        with ThreadPoolExecutor(max_workers=4) as pool:
            return merged(list(pool.map(read, codec.queued_buckets())), now, each=each)

    def _waiting(self, bucket: str, span: Span, limit: int, start: Any) -> tuple[Sequence[Entry], Any]:
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
        """See AdmissionStore.running: one Query for each MB, about 5,000 tasks."""
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
        """See TaskStore.children: one Query for each MB."""
        return sorted(map(child_of, self._linked(task_id + CHILDREN)), key=lambda child: child.task_id)

    def parents(self, task_id: str) -> Mapping[str, int]:
        """See TaskStore.parents: one Query for each MB."""
        return {item["parent_id"]: int(item["attempt"]) for item in self._linked(task_id + PARENTS)}

    def _linked(self, partition: str) -> list[dict[str, Any]]:
        return self.query(
            None,
            KeyConditionExpression="task_id = :id",
            ExpressionAttributeValues=to_item({":id": partition}),
            ConsistentRead=True,
        )

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        """See TaskStore.heads: a Scan, which reads rows too and returns heads only."""
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
        from delegation.tasks.stores.dynamodb_received import ReceivedTasks  # noqa: PLC0415

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
