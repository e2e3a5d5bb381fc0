"""NotificationStore on the task table: an item for each, found by its own partitions in the due index. Writes need no
condition: the task head's condition in the same transaction admits each once."""

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.notifications import Notification, NotificationState
from delegation.tasks.stores import notifications as stored
from delegation.tasks.stores.dynamodb_reads import DynamoDbTaskReads
from delegation.timestamps import isoformat
from polaris_common.dynamodb import from_item, to_item

if TYPE_CHECKING:
    from delegation.tasks.life.notifications import Receiver

logger = logging.getLogger(__name__)
_INDEX: Final = "due"


def puts(table: str, owed: Iterable[Notification]) -> list[dict[str, Any]]:
    """Return the actions of a transaction that write notifications."""
    return [{"Put": {"TableName": table, "Item": to_item(stored.notification_item(one))}} for one in owed]


class DynamoDbNotificationStore:
    def __init__(self, tasks: DynamoDbTaskReads) -> None:
        self._tasks = tasks
        self._calls = tasks.dynamodb
        self._table = tasks.table

    def notification(self, task_id: str, notification_id: str) -> Notification | None:
        return self._get(stored.key_of(task_id, notification_id))

    def notifications_of(self, task_id: str) -> Sequence[Notification]:
        found = self._tasks.query(
            None,
            KeyConditionExpression="task_id = :id",
            ExpressionAttributeValues=to_item({":id": task_id + stored.PARTITION}),
            ConsistentRead=True,
        )
        return sorted(map(stored.notification_of, found), key=lambda owed: owed.notification_id)

    def notifications(
        self, state: NotificationState, until: datetime, *, limit: int = 100, parked: str | None = None
    ) -> Sequence[Notification]:
        def shard(bucket: str) -> list[dict[str, Any]]:
            return self._tasks.query(
                limit,
                IndexName=_INDEX,
                KeyConditionExpression="due_bucket = :bucket AND due_at <= :until",
                ExpressionAttributeValues=to_item({":bucket": bucket, ":until": isoformat(until)}),
            )

        buckets = stored.buckets(state, parked)
        with ThreadPoolExecutor(max_workers=len(buckets)) as pool:
            entries = sorted(chain.from_iterable(pool.map(shard, buckets)), key=_place)
        keys = [{"task_id": entry["task_id"], "version": entry["version"]} for entry in entries[:limit]]
        found = [one for one in map(self._readable, keys) if one is not None and one.state is state]
        return [one for one in found if (one.channel if one.parked else None) == parked]

    def revise_notification(self, before: Notification, after: Notification) -> bool:
        refused = self._calls.conditional(
            "put_item",
            TableName=self._table,
            Item=to_item(stored.notification_item(after)),
            ConditionExpression="revision = :before",
            ExpressionAttributeValues=to_item({":before": before.revision}),
        )
        return refused is None

    def remove_notification(self, delivered: Notification) -> None:
        key = stored.key_of(delivered.task_id, delivered.notification_id)
        self._calls.repeatable("delete_item", TableName=self._table, Key=to_item(key))

    def receivers(self) -> Sequence["Receiver"]:
        found = self._tasks.query(
            None,
            KeyConditionExpression="task_id = :id",
            ExpressionAttributeValues=to_item({":id": stored.RECEIVERS + stored.PARTITION}),
            ConsistentRead=True,
        )
        return sorted(stored.readable_receivers(found), key=lambda receiver: receiver.channel)

    def receiver(self, channel: str) -> "Receiver | None":
        key = to_item(stored.receiver_key(channel))
        answer = self._calls.repeatable("get_item", TableName=self._table, Key=key, ConsistentRead=True)
        return stored.receiver_of(from_item(answer["Item"])) if "Item" in answer else None

    def revise_receiver(self, before: "Receiver | None", after: "Receiver") -> bool:
        item = to_item(stored.receiver_item(after))
        return self._calls.conditional("put_item", TableName=self._table, Item=item, **_unmoved(before)) is None

    def _readable(self, key: dict[str, Any]) -> Notification | None:
        """Return a notification, None for one of a newer release too, so that it does not hide the others."""
        try:
            return self._get(key)
        except MalformedRecord as error:
            logger.warning("skipped", extra={"action": "notify", "key": key["task_id"], "error_code": error.code})
            return None

    def _get(self, key: dict[str, Any]) -> Notification | None:
        answer = self._calls.repeatable("get_item", TableName=self._table, Key=to_item(key), ConsistentRead=True)
        return stored.notification_of(from_item(answer["Item"])) if "Item" in answer else None


def _unmoved(before: "Receiver | None") -> dict[str, Any]:
    if before is None:
        return {"ConditionExpression": "attribute_not_exists(task_id)"}
    values = to_item({":before": before.revision})
    return {"ConditionExpression": "revision = :before", "ExpressionAttributeValues": values}


def _place(entry: dict[str, Any]) -> tuple[str, str]:
    return entry["due_at"], entry["task_id"]
