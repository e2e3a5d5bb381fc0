"""The queues of notifications on SQS. A message is `{task_id, notification_id, n}`; `n` is the number of the delivery.
Events, callbacks and receivers set apart have a queue each, so that none waits for another. With a message group per
channel, SQS serves a channel with few messages before one with many (Amazon SQS developer guide, "Fair queues")."""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from delegation.items import ItemOutcome, each_item
from delegation.notifications.https import malformed_message
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.notifications import Notification, is_callback, revived
from delegation.tasks.stores.notifications import NotificationStore


class Pool(StrEnum):
    CALLBACKS = "callbacks"
    EVENTS = "events"
    APART = "apart"


def pool_of(owed: Notification, *, apart: bool = False) -> Pool:
    """Return the queue of a notification's next message; `apart`: its receiver is set apart."""
    if apart:
        return Pool.APART
    return Pool.CALLBACKS if is_callback(owed.channel) else Pool.EVENTS


@dataclass(frozen=True, slots=True)
class Message:
    """Delivery `n` of a notification must start; `apart`: even if its receiver is set apart."""

    task_id: str
    notification_id: str
    n: int
    apart: bool = False

    @classmethod
    def of(cls, owed: Notification, *, apart: bool = False) -> "Message":
        return cls(owed.task_id, owed.notification_id, owed.attempts + 1, apart)

    def text(self) -> str:
        fields = {"task_id": self.task_id, "notification_id": self.notification_id, "n": self.n}
        return json.dumps({**fields, "apart": True} if self.apart else fields)


class NotificationQueue(Protocol):
    def send(self, owed: Notification, *, apart: bool = False) -> None:
        """Send the message for the next delivery. Raises StoreUnavailable if its queue did not accept it."""

    def depth(self, pool: Pool) -> int:
        """Return about how many messages wait in a queue. Raises StoreUnavailable."""


class SqsNotificationQueue:
    """NotificationQueue over a boto3 SQS client; one queue replaces those without a URL."""

    def __init__(self, client: Any, queue_url: str, others: Mapping[Pool, str] | None = None) -> None:
        self._client = client
        self._urls = {pool: (others or {}).get(pool, queue_url) for pool in Pool}

    def send(self, owed: Notification, *, apart: bool = False) -> None:
        url, text = self._urls[pool_of(owed, apart=apart)], Message.of(owed, apart=apart).text()
        self._call("send_message", QueueUrl=url, MessageBody=text, MessageGroupId=owed.channel)

    def depth(self, pool: Pool) -> int:
        name = "ApproximateNumberOfMessages"
        answer = self._call("get_queue_attributes", QueueUrl=self._urls[pool], AttributeNames=[name])
        return int(answer["Attributes"][name])

    def _call(self, method: str, **arguments: Any) -> Any:
        try:
            return getattr(self._client, method)(**arguments)
        except ClientError as error:
            name = _name_of(arguments["QueueUrl"])
            raise StoreUnavailable(
                f"SQS refused a call for the queue {name}: {error.response['Error']['Code']}"
            ) from error
        except (HTTPClientError, BotoConnectionError) as error:
            name = _name_of(arguments["QueueUrl"])
            raise StoreUnavailable(f"the queue {name} could not be reached: {type(error).__name__}") from error


def _name_of(url: str) -> str:
    return url.rpartition("/")[2]


def announce(queue: NotificationQueue, owed: Sequence[Notification]) -> None:
    """Send the first messages of new notifications; the sweeper repeats those that are not accepted."""
    deque(
        each_item(owed, queue.send, name="notifications.announced", shown=lambda notification: notification.task_id), 0
    )


def parse(body: str) -> Message:
    """Return the message of a body. Raises NotificationError (MALFORMED_MESSAGE)."""
    try:
        fields = json.loads(body)
        message = Message(
            str(fields["task_id"]), str(UUID(fields["notification_id"])), fields["n"], fields.get("apart") is True
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise malformed_message(
            "the message is no JSON object with `task_id`, `notification_id` (a UUID) and `n`. SQS moves it to the "
            "dead-letter queue"
        ) from None
    if not isinstance(message.n, int) or isinstance(message.n, bool) or message.n < 1:
        raise malformed_message(
            "`n` must be a whole number, 1 or greater. SQS moves the message to the dead-letter queue"
        )
    return message


def dead_letters_of(store: NotificationStore, task_id: str) -> list[Notification]:
    return [notification for notification in store.notifications_of(task_id) if notification.is_dead]


def resent(
    store: NotificationStore, dead: Iterable[Notification], now: datetime
) -> list[ItemOutcome[Notification, bool]]:
    """Make dead letters deliverable again, with all their attempts; the result is False for one that has changed."""

    def resend(notification: Notification) -> bool:
        return store.revise_notification(notification, revived(notification, now))

    return list(
        each_item(
            dead,
            resend,
            name="notifications.resent",
            shown=lambda notification: notification.notification_id,
            most_wasted=timedelta.max,
        )
    )
