"""Delivering what ends of tasks owe: at least once, with one Idempotency-Key and one body however often it is tried.

A notification is deleted after its delivery succeeded. A process that dies in between leaves it to the sweeper, and
its receiver gets it again with the same key.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from delegation.metrics import NOTIFICATIONS_DEAD, NOTIFICATIONS_DELIVERED, NOTIFICATIONS_FAILED, Metric
from delegation.notifications.errors import CallbackNotAccepted, CallbackUnknown, NotificationError
from delegation.notifications.events import EventBus
from delegation.notifications.https import Post
from delegation.notifications.keys import Keys
from delegation.notifications.queue import Message, NotificationQueue
from delegation.tasks.life.notifications import owed as owing
from delegation.tasks.life.notifications.owed import Notification, NotificationState
from delegation.tasks.life.notifications.policy import NotificationPolicy, callback_name, is_callback
from delegation.tasks.stores.notifications import NotificationStore
from delegation.wire.signatures import KEY_HEADER, SIGNATURE_HEADER, signature

_ACCEPTED: Final = range(200, 300)


class DeliveryOutcome(StrEnum):
    """What became of a message."""

    DELIVERED = "delivered"
    FAILED = "failed"
    DEAD = "dead"
    SKIPPED = "skipped"


COUNTED: Final[Mapping[DeliveryOutcome, Metric]] = {
    DeliveryOutcome.DELIVERED: NOTIFICATIONS_DELIVERED,
    DeliveryOutcome.FAILED: NOTIFICATIONS_FAILED,
    DeliveryOutcome.DEAD: NOTIFICATIONS_DEAD,
}
"""The metric of each outcome that has one."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of one message; `owed` is None when the notification was delivered before."""

    outcome: DeliveryOutcome
    owed: Notification | None = None
    error: NotificationError | None = None


@dataclass(frozen=True, slots=True)
class Notifier:
    """Delivers one notification for each message; raises the store's errors, after which SQS repeats the message."""

    store: NotificationStore
    policy: NotificationPolicy
    post: Post
    keys: Keys
    events: EventBus
    clock: Callable[[], datetime]

    def take(self, message: Message) -> Delivered:
        """Deliver a notification, unless another process has begun this delivery, or it was delivered."""
        owed = self.store.notification(message.task_id, message.notification_id)
        if owed is None or owed.is_dead or owed.attempts != message.n - 1:
            return Delivered(DeliveryOutcome.SKIPPED, owed)
        begun = owing.begun(owed, self.clock(), self.policy)
        if not self.store.revise_notification(owed, begun):
            return Delivered(DeliveryOutcome.SKIPPED, owed)
        if begun.is_dead:
            return Delivered(DeliveryOutcome.DEAD, begun)
        try:
            self._deliver(begun)
        except NotificationError as error:
            return self._failed(begun, error)
        self.store.remove_notification(begun)
        return Delivered(DeliveryOutcome.DELIVERED, begun)

    def _deliver(self, owed: Notification) -> None:
        if not is_callback(owed.channel):
            self.events.put(owed)
            return
        name = callback_name(owed.channel)
        url = self.policy.callbacks.get(name)
        if url is None:
            raise CallbackUnknown(f"no property delegation.notifications.callback.{name} has its URL; set it again")
        body = owed.body.encode()
        stamp = int(self.clock().timestamp())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "polaris-delegation-service",
            KEY_HEADER: owed.notification_id,
            SIGNATURE_HEADER: signature(self.keys(name), time=stamp, idempotency_key=owed.notification_id, body=body),
        }
        status = self.post(url, headers, body)
        if status not in _ACCEPTED:
            raise CallbackNotAccepted(_refusal(status))

    def _failed(self, owed: Notification, error: NotificationError) -> Delivered:
        after = owing.failed(owed, f"{error.code}: {error}", self.clock(), self.policy)
        self.store.revise_notification(owed, after)
        return Delivered(DeliveryOutcome.DEAD if after.is_dead else DeliveryOutcome.FAILED, after, error)


def send_due(store: NotificationStore, queue: NotificationQueue, now: datetime, *, limit: int = 1_000) -> int:
    """Send a message for every notification that is owed and due, and return how many; the sweeper calls it.

    The time of the next is stored first, so that a queue that is behind is not filled. Raises the errors of store and
    queue; what was not sent is due again after a minute.
    """
    sent = 0
    for owed in store.notifications(NotificationState.OWED, now, limit=limit):
        if store.revise_notification(owed, owing.sent_again(owed, now)):
            queue.send(Message.of(owed))
            sent += 1
    return sent


def deliver_due(notifier: Notifier, *, limit: int = 100) -> list[Delivered]:
    """Deliver what is owed and due in this process, as a worker does that has no queue; raises the store's errors."""
    due = notifier.store.notifications(NotificationState.OWED, notifier.clock(), limit=limit)
    return [notifier.take(Message.of(owed)) for owed in due]


def _refusal(status: int) -> str:
    if 300 <= status < 400:
        return f"its receiver answered {status}, a redirect, which is not followed; set the URL that it names"
    return f"its receiver answered {status}; it must answer 2xx"
