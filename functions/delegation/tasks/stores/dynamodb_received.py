"""The lists of the task table: three sparse indexes of the heads, sorted by the time at which tasks were received.

    received      a partition for each day
    target        a partition for each thing that tasks work on, a table for example
    correlation   a partition for each correlation id

They hold keys only, so that a write which moves none of them costs nothing more; the heads are read by BatchGetItem.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import Any, Final

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import HEAD, Task, label_key
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import Received, ReceivedPage, Unreadable
from delegation.timestamps import isoformat
from polaris_common.dynamodb import from_item, to_item

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
        """See TaskStore.received: a Query, or one for each day until the page is full, and a BatchGetItem."""
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
