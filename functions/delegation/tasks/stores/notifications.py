"""Notifications that ends of tasks owe, as a store keeps them: written with the end itself, deleted when delivered."""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import FORMAT
from delegation.tasks.life.notifications.owed import Notification, NotificationState
from delegation.timestamps import isoformat

PARTITION: Final = "/notifications"
"""Ends the partition of a task's notifications; no version has such a partition, so reads of tasks do not see them."""
SHARDS: Final = 4


class NotificationStore(Protocol):
    """The notifications beside the tasks. `TaskStore.apply` adds them: `Advance` by `owed_by`, `Expect` its own.

    All methods raise StoreUnavailable, writes OutcomeUnknown too, and MalformedRecord for one of a newer release.
    """

    def notification(self, task_id: str, notification_id: str) -> Notification | None:
        """Return a notification, read consistently; None when it was delivered."""

    def notifications_of(self, task_id: str) -> Sequence[Notification]:
        """Return what ends of a task still owe, in the order of their ids, read consistently."""

    def notifications(self, state: NotificationState, until: datetime, *, limit: int = 100) -> Sequence[Notification]:
        """Return at most `limit` notifications of a state that are due by a time, about the oldest first.

        A change of the last seconds may be missing.
        """

    def revise_notification(self, before: Notification, after: Notification) -> bool:
        """Replace a notification if it still has the revision of `before`; return whether it had."""

    def remove_notification(self, delivered: Notification) -> None:
        """Delete a notification, whatever its revision; nothing if it is absent."""


def key_of(task_id: str, notification_id: str) -> dict[str, Any]:
    """Return the key of a notification in the task table, whose sort key is a number (`dynamodb_children`)."""
    number = int.from_bytes(hashlib.sha256(notification_id.encode()).digest()[:15]) + 1
    return {"task_id": task_id + PARTITION, "version": number}


def buckets(state: NotificationState) -> tuple[str, ...]:
    """Return the partitions of the due index that have the notifications of a state; none is a task's."""
    return tuple(f"{state}-{shard}" for shard in range(SHARDS))


def notification_item(owed: Notification) -> dict[str, Any]:
    """Return a notification as it is stored, with its place in the due index."""
    shard = zlib.crc32(owed.task_id.encode()) % SHARDS
    item = {
        **key_of(owed.task_id, owed.notification_id),
        "format": FORMAT,
        "notification_id": owed.notification_id,
        "end_version": owed.version,
        "channel": owed.channel,
        "body": owed.body,
        "created_ts": isoformat(owed.created_ts),
        "attempts": owed.attempts,
        "last_error": owed.last_error,
        "revision": owed.revision,
        "due_bucket": f"{owed.state}-{shard}",
        "due_at": isoformat(owed.due_at),
    }
    return {name: value for name, value in item.items() if value is not None}


def notification_of(item: Mapping[str, Any]) -> Notification:
    """Return a stored notification; raises MalformedRecord for one of another format."""
    if item.get("format") != FORMAT:
        raise MalformedRecord(f"notification: format: {item.get('format')!r} is not {FORMAT}")
    try:
        return Notification(
            notification_id=str(item["notification_id"]),
            task_id=str(item["task_id"]).removesuffix(PARTITION),
            version=int(item["end_version"]),
            channel=str(item["channel"]),
            body=str(item["body"]),
            created_ts=datetime.fromisoformat(item["created_ts"]),
            due_at=datetime.fromisoformat(item["due_at"]),
            state=NotificationState(str(item["due_bucket"]).rpartition("-")[0]),
            attempts=int(item["attempts"]),
            last_error=item.get("last_error"),
            revision=int(item["revision"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedRecord(f"notification of task {item.get('task_id')}: {error}") from None
