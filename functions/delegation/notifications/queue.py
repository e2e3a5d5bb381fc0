"""The queue of notifications on SQS; a message is `{task_id, notification_id, n}`, n being the delivery's number."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from delegation.notifications.errors import MalformedMessage
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.notifications.owed import Notification

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Message:
    """Delivery `n` of a notification is to begin."""

    task_id: str
    notification_id: str
    n: int

    @classmethod
    def of(cls, owed: Notification) -> "Message":
        """Return the message for the next delivery of a notification."""
        return cls(owed.task_id, owed.notification_id, owed.attempts + 1)

    def text(self) -> str:
        """Return the message's body."""
        return json.dumps({"task_id": self.task_id, "notification_id": self.notification_id, "n": self.n})


class NotificationQueue(Protocol):
    """A queue of deliveries."""

    def send(self, message: Message) -> None:
        """Send one message; raises StoreUnavailable when the queue did not accept it."""


class SqsNotificationQueue:
    """NotificationQueue over a boto3 SQS client."""

    def __init__(self, client: Any, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def send(self, message: Message) -> None:
        """See NotificationQueue.send."""
        try:
            self._client.send_message(QueueUrl=self._queue_url, MessageBody=message.text())
        except ClientError as error:
            raise StoreUnavailable(f"the queue answered {error.response['Error']['Code']}") from error
        except (HTTPClientError, BotoConnectionError) as error:
            raise StoreUnavailable(f"the queue could not be reached: {type(error).__name__}") from error


def announce(queue: NotificationQueue, owed: Sequence[Notification]) -> None:
    """Send the first message of notifications that were just stored; the sweeper sends one that is not accepted."""
    for one in owed:
        try:
            queue.send(Message.of(one))
        except StoreUnavailable as error:
            fields = {"action": "notify", "task_id": one.task_id, "error_code": error.code}
            logger.warning("not sent; the sweeper sends it", extra=fields)


def parse(body: str) -> Message:
    """Return the message of a body; raises MalformedMessage."""
    try:
        found = json.loads(body)
        message = Message(str(found["task_id"]), str(UUID(found["notification_id"])), found["n"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise MalformedMessage("the message is not {task_id, notification_id, n}") from None
    if not isinstance(message.n, int) or isinstance(message.n, bool) or message.n < 1:
        raise MalformedMessage("n: must be a whole number, 1 or greater")
    return message
