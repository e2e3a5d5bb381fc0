"""How a store keeps notifications: written with the end that they announce, deleted when delivered. On the task table
each is an item, found by partitions of its own in the due index. Writes need no condition: the task head's condition in
the same transaction admits each once."""

import hashlib
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from delegation.stored_items import Items, readable
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import FORMAT
from delegation.tasks.life.notifications import Notification, NotificationState
from delegation.tasks.stores.dynamodb_reads import TASK_KEY, DynamoDbTaskReads
from delegation.timestamps import isoformat, stored_time

if TYPE_CHECKING:
    from delegation.tasks.life.notifications import Receiver


PARTITION: Final = "/notifications"
"""Suffix of the partition of a task's notifications. No version has such a partition, so reads of tasks skip them."""
RECEIVERS: Final = "receivers"
"""The partition of the receivers' records is this name and PARTITION. It is no UUID, so no task has this id."""
SHARDS: Final = 4


class NotificationStore(Protocol):
    """The notifications beside the tasks. `TaskStore.apply` adds them: `Advance` by `owed_by`, `Expect` its own. All
    methods raise StoreUnavailable, writes OutcomeUnknown too, and MalformedRecord for a newer release's."""

    def notification(self, task_id: str, notification_id: str) -> Notification | None:
        """Return a notification, read consistently; None after its delivery."""

    def notifications_of(self, task_id: str) -> Sequence[Notification]:
        """Return the notifications of a task that are not yet delivered, in the order of ids, read consistently."""

    def notifications(
        self, state: NotificationState, until: datetime, *, limit: int = 100, parked: str | None = None
    ) -> Sequence[Notification]:
        """Return at most `limit` notifications of a state that are due by a time, roughly oldest first. With `parked`
        it returns only those parked for that channel, without it no parked ones. A change of the last seconds may be
        missing."""

    def revise_notification(self, before: Notification, after: Notification) -> bool:
        """Replace a notification if it still has the revision of `before`; return whether it had."""

    def remove_notification(self, delivered: Notification) -> None:
        """Delete a notification at any revision; nothing if it is absent."""

    def receivers(self) -> Sequence["Receiver"]:
        """Return all receivers with a record, in the order of channels, read consistently."""

    def receiver(self, channel: str) -> "Receiver | None":
        """Return the record of a receiver, read consistently; None without one."""

    def revise_receiver(self, before: "Receiver | None", after: "Receiver") -> bool:
        """Store a record if the stored one has the revision of `before` (None: there is none); return whether it
        was."""


def key_of(task_id: str, notification_id: str) -> dict[str, Any]:
    """Return the key of a notification in the task table, whose sort key is a number (`dynamodb_children`)."""
    number = int.from_bytes(hashlib.sha256(notification_id.encode()).digest()[:15]) + 1
    return {"task_id": task_id + PARTITION, "version": number}


def buckets(state: NotificationState, parked: str | None = None) -> tuple[str, ...]:
    """Return the partitions of the due index for a state or a channel's parked notifications; none is a task's."""
    if parked is not None:
        return (_parking(state, parked),)
    return tuple(f"{state}-{shard}" for shard in range(SHARDS))


def _parking(state: NotificationState, channel: str) -> str:
    # A number, like the others: a former release parses the state before it.
    return f"{state}-{SHARDS + zlib.crc32(channel.encode())}"


def every(store: NotificationStore, state: NotificationState, until: datetime, *, limit: int) -> list[Notification]:
    """Return at most `limit` notifications of a state that are due by a time, the parked ones last."""
    notifications = list(store.notifications(state, until, limit=limit))
    for receiver in store.receivers():
        notifications += store.notifications(state, until, limit=limit, parked=receiver.channel)
    return notifications[:limit]


def readable_notifications(items: Iterable[Mapping[str, Any]]) -> Iterator[Notification]:
    return readable(items, notification_of, name="notifications.records", shown=_key_of)


def readable_receivers(items: Iterable[Mapping[str, Any]]) -> Iterator["Receiver"]:
    return readable(items, receiver_of, name="notifications.receivers", shown=_key_of)


def _key_of(item: Mapping[str, Any]) -> str:
    return str(item.get("channel") or item.get("task_id"))


def receiver_key(channel: str) -> dict[str, Any]:
    return key_of(RECEIVERS, channel)


def receiver_item(receiver: "Receiver") -> dict[str, Any]:
    return {
        **receiver_key(receiver.channel),
        "format": FORMAT,
        "channel": receiver.channel,
        "changed_ts": isoformat(receiver.changed_ts),
        "not_before": isoformat(receiver.not_before),
        "strikes": receiver.strikes,
        "failures": receiver.failures,
        "quick": receiver.quick,
        "times_apart": receiver.times_apart,
        "apart": receiver.apart,
        "revision": receiver.revision,
    }


def receiver_of(item: Mapping[str, Any]) -> "Receiver":
    """Return a stored record of a receiver. Raises MalformedRecord for another format."""
    from delegation.tasks.life.notifications import Receiver  # noqa: PLC0415 - few processes read one

    if item.get("format") != FORMAT:
        raise MalformedRecord(
            f"this release cannot read a receiver's record: its format is {item.get('format')!r}. Deploy the newer "
            "release that wrote it"
        )
    try:
        return Receiver(
            channel=str(item["channel"]),
            changed_ts=stored_time(item["changed_ts"]),
            not_before=stored_time(item["not_before"]),
            strikes=int(item["strikes"]),
            failures=int(item["failures"]),
            quick=int(item["quick"]),
            times_apart=int(item["times_apart"]),
            apart=bool(item["apart"]),
            revision=int(item["revision"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedRecord(f"receiver {item.get('channel')}: {error}") from None


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
        "due_bucket": _parking(owed.state, owed.channel) if owed.parked else f"{owed.state}-{shard}",
        "due_at": isoformat(owed.due_at),
        "since_ts": None if owed.since_ts is None else isoformat(owed.since_ts),
    }
    return {name: value for name, value in item.items() if value is not None}


def notification_of(item: Mapping[str, Any]) -> Notification:
    """Return a stored notification. Raises MalformedRecord for another format."""
    if item.get("format") != FORMAT:
        raise MalformedRecord(
            f"this release cannot read a notification: its format is {item.get('format')!r}. Deploy the newer "
            "release that wrote it"
        )
    state, _, shard = str(item.get("due_bucket")).rpartition("-")
    try:
        return Notification(
            notification_id=str(item["notification_id"]),
            task_id=str(item["task_id"]).removesuffix(PARTITION),
            version=int(item["end_version"]),
            channel=str(item["channel"]),
            body=str(item["body"]),
            created_ts=stored_time(item["created_ts"]),
            due_at=stored_time(item["due_at"]),
            state=NotificationState(state),
            attempts=int(item["attempts"]),
            last_error=item.get("last_error"),
            revision=int(item["revision"]),
            parked=int(shard) >= SHARDS,
            since_ts=stored_time(item["since_ts"]) if "since_ts" in item else None,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedRecord(f"a stored notification of task {item.get('task_id')} is damaged: {error}") from None


logger = logging.getLogger(__name__)
_INDEX: Final = "due"


class DynamoDbNotificationStore:
    def __init__(self, tasks: DynamoDbTaskReads) -> None:
        calls, table = tasks.dynamodb, tasks.table
        self._owed = Items(calls, table, TASK_KEY, notification_item, notification_of)
        self._receivers = Items(calls, table, TASK_KEY, receiver_item, receiver_of)

    def notification(self, task_id: str, notification_id: str) -> Notification | None:
        return self._owed.get(key_of(task_id, notification_id))

    def notifications_of(self, task_id: str) -> Sequence[Notification]:
        owed = map(notification_of, self._partition(task_id))
        return sorted(owed, key=lambda notification: notification.notification_id)

    def notifications(
        self, state: NotificationState, until: datetime, *, limit: int = 100, parked: str | None = None
    ) -> Sequence[Notification]:
        def shard(bucket: str) -> list[dict[str, Any]]:
            values = {":bucket": bucket, ":until": isoformat(until)}
            return list(self._owed.query("due_bucket = :bucket AND due_at <= :until", values, limit, IndexName=_INDEX))

        shards = buckets(state, parked)
        with ThreadPoolExecutor(max_workers=len(shards)) as pool:
            entries = sorted(chain.from_iterable(pool.map(shard, shards)), key=itemgetter("due_at", "task_id"))
        keys = [{"task_id": entry["task_id"], "version": entry["version"]} for entry in entries[:limit]]
        owed = filter(None, map(self._readable, keys))
        return [due for due in owed if due.state is state and due.parked_with == parked]

    def revise_notification(self, before: Notification, after: Notification) -> bool:
        return self._owed.replace(after, before.revision)

    def remove_notification(self, delivered: Notification) -> None:
        self._owed.remove(key_of(delivered.task_id, delivered.notification_id))

    def receivers(self) -> Sequence["Receiver"]:
        records = readable_receivers(self._partition(RECEIVERS))
        return sorted(records, key=lambda receiver: receiver.channel)

    def receiver(self, channel: str) -> "Receiver | None":
        return self._receivers.get(receiver_key(channel))

    def revise_receiver(self, before: "Receiver | None", after: "Receiver") -> bool:
        return self._receivers.replace(after, None if before is None else before.revision)

    def _partition(self, task_id: str) -> Iterator[dict[str, Any]]:
        return self._owed.query("task_id = :id", {":id": task_id + PARTITION}, ConsistentRead=True)

    def _readable(self, key: dict[str, Any]) -> Notification | None:
        """Return a notification; None also for one of a newer release, so that it does not hide the others."""
        try:
            return self._owed.get(key)
        except MalformedRecord as error:
            logger.warning("skipped", extra={"action": "notify", "key": key["task_id"], "error_code": error.code})
            return None
