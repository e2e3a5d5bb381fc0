"""NotificationStore on the task table: an item for each, found by its own partitions in the due index. Writes need no
condition: the task head's condition in the same transaction admits each once."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from delegation.stored_items import Items
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.notifications import Notification, NotificationState
from delegation.tasks.stores import notifications as stored
from delegation.tasks.stores.dynamodb_reads import TASK_KEY, DynamoDbTaskReads
from delegation.timestamps import isoformat
from polaris_common.dynamodb import to_item

if TYPE_CHECKING:
    from delegation.tasks.life.notifications import Receiver

logger = logging.getLogger(__name__)
_INDEX: Final = "due"


def puts(table: str, owed: Iterable[Notification]) -> list[dict[str, Any]]:
    """Return the actions of a transaction that write notifications."""
    return [{"Put": {"TableName": table, "Item": to_item(stored.notification_item(one))}} for one in owed]


class DynamoDbNotificationStore:
    def __init__(self, tasks: DynamoDbTaskReads) -> None:
        calls, table = tasks.dynamodb, tasks.table
        self._owed = Items(calls, table, TASK_KEY, stored.notification_item, stored.notification_of)
        self._receivers = Items(calls, table, TASK_KEY, stored.receiver_item, stored.receiver_of)

    def notification(self, task_id: str, notification_id: str) -> Notification | None:
        return self._owed.get(stored.key_of(task_id, notification_id))

    def notifications_of(self, task_id: str) -> Sequence[Notification]:
        owed = map(stored.notification_of, self._partition(task_id))
        return sorted(owed, key=lambda notification: notification.notification_id)

    def notifications(
        self, state: NotificationState, until: datetime, *, limit: int = 100, parked: str | None = None
    ) -> Sequence[Notification]:
        def shard(bucket: str) -> list[dict[str, Any]]:
            values = {":bucket": bucket, ":until": isoformat(until)}
            return list(self._owed.query("due_bucket = :bucket AND due_at <= :until", values, limit, IndexName=_INDEX))

        buckets = stored.buckets(state, parked)
        with ThreadPoolExecutor(max_workers=len(buckets)) as pool:
            entries = sorted(chain.from_iterable(pool.map(shard, buckets)), key=_place)
        keys = [{"task_id": entry["task_id"], "version": entry["version"]} for entry in entries[:limit]]
        owed = filter(None, map(self._readable, keys))
        return [one for one in owed if one.state is state and (one.channel if one.parked else None) == parked]

    def revise_notification(self, before: Notification, after: Notification) -> bool:
        return self._owed.replace(after, before.revision)

    def remove_notification(self, delivered: Notification) -> None:
        self._owed.remove(stored.key_of(delivered.task_id, delivered.notification_id))

    def receivers(self) -> Sequence["Receiver"]:
        records = stored.readable_receivers(self._partition(stored.RECEIVERS))
        return sorted(records, key=lambda receiver: receiver.channel)

    def receiver(self, channel: str) -> "Receiver | None":
        return self._receivers.get(stored.receiver_key(channel))

    def revise_receiver(self, before: "Receiver | None", after: "Receiver") -> bool:
        return self._receivers.replace(after, None if before is None else before.revision)

    def _partition(self, task_id: str) -> Iterator[dict[str, Any]]:
        return self._owed.query("task_id = :id", {":id": task_id + stored.PARTITION}, ConsistentRead=True)

    def _readable(self, key: dict[str, Any]) -> Notification | None:
        """Return a notification, None for one of a newer release too, so that it does not hide the others."""
        try:
            return self._owed.get(key)
        except MalformedRecord as error:
            logger.warning("skipped", extra={"action": "notify", "key": key["task_id"], "error_code": error.code})
            return None


def _place(entry: dict[str, Any]) -> tuple[str, str]:
    return entry["due_at"], entry["task_id"]
