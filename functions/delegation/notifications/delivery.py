"""Delivers what ends of tasks announce: at least once, with one Idempotency-Key and body for all tries. A notification
is deleted after its delivery. If a process dies in between, the sweeper delivers it again with the same key. A
notification for a receiver set apart is parked, so that nothing waits for that receiver."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import zip_longest
from typing import Any, Final, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from delegation.items import each_item
from delegation.metrics import NOTIFICATIONS_DEAD, NOTIFICATIONS_DELIVERED, NOTIFICATIONS_FAILED, Metric
from delegation.notifications.https import (
    CallbackKeysUnavailable,
    CallbackUnknown,
    Keys,
    NotificationError,
    Post,
    event_not_accepted,
)
from delegation.notifications.queue import Message, NotificationQueue, Pool, pool_of
from delegation.tasks.life import notifications as owing
from delegation.tasks.life.notifications import (
    Notification,
    NotificationPolicy,
    NotificationState,
    Receiver,
    callback_name,
    is_callback,
)
from delegation.tasks.stores.notifications import NotificationStore
from delegation.wire.signatures import KEY_HEADER, SIGNATURE_HEADER, signature
from polaris_common.errors import counted

SOURCE: Final = "polaris.delegation"
DETAIL_TYPE: Final = "Task Ended"


class EventBus(Protocol):
    """Where the event of a task's end is put; its detail is the body that callbacks have."""

    def put(self, owed: Notification) -> None:
        """Put one event. Raises NotificationError (EVENT_NOT_ACCEPTED)."""


class EventBridge:
    """EventBus over a boto3 EventBridge client; consumers recognize a repeated event by `detail.notification_id`."""

    def __init__(self, client: Any, bus: str) -> None:
        """`bus` is the name or the ARN of the event bus."""
        self._client = client
        self._bus = bus

    def put(self, owed: Notification) -> None:
        entry = {
            "EventBusName": self._bus,
            "Source": SOURCE,
            "DetailType": DETAIL_TYPE,
            "Time": owed.created_ts,
            "Detail": owed.body,
        }
        try:
            answer = self._client.put_events(Entries=[entry])
        except ClientError as error:
            raise event_not_accepted(f"EventBridge answered {error.response['Error']['Code']}") from None
        except BotoCoreError as error:
            raise event_not_accepted(f"EventBridge could not be reached: {type(error).__name__}") from None
        if answer.get("FailedEntryCount"):
            code = answer["Entries"][0].get("ErrorCode", "no code")
            raise event_not_accepted(f"EventBridge refused the event: {code}")


_ACCEPTED: Final = range(200, 300)
ROOM: Final = 1_000
"""The most waiting messages in a queue; above it the sweeper adds none."""
APART_ROOM: Final = 60
"""The same for the queue of receivers set apart, each of whose messages may take ten seconds."""
SHARE: Final = 20
"""The most messages that a sweep sends for a slow receiver."""
_AGED: Final = 100
"""The most notifications of a failing receiver that a sweep reads to find those owed for too long."""
_RACES: Final = 5


class DeliveryOutcome(StrEnum):
    DELIVERED = "delivered"
    FAILED = "failed"
    DEAD = "dead"
    SKIPPED = "skipped"
    PARKED = "parked"


COUNTED: Final[Mapping[DeliveryOutcome, Metric]] = {
    DeliveryOutcome.DELIVERED: NOTIFICATIONS_DELIVERED,
    DeliveryOutcome.FAILED: NOTIFICATIONS_FAILED,
    DeliveryOutcome.DEAD: NOTIFICATIONS_DEAD,
}
"""The metric of each outcome that has one."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of one message; `owed` is None if the notification was delivered before."""

    outcome: DeliveryOutcome
    owed: Notification | None = None
    error: NotificationError | None = None


@dataclass(frozen=True, slots=True)
class Notifier:
    """Delivers one notification per message. Raises the store's errors, after which SQS repeats the message."""

    store: NotificationStore
    policy: NotificationPolicy
    post: Post
    keys: Keys
    events: EventBus
    clock: Callable[[], datetime]

    def take(self, message: Message) -> Delivered:
        """Deliver a notification, unless another process started this delivery or it was delivered."""
        owed = self.store.notification(message.task_id, message.notification_id)
        if owed is None or owed.is_dead or owed.attempts != message.n - 1:
            return Delivered(DeliveryOutcome.SKIPPED, owed)
        receiver = self.store.receiver(owed.channel)
        if receiver is not None and receiver.apart:
            free = owing.claimed(receiver, self.clock()) if message.apart else None
            if free is None or (free is not receiver and not self.store.revise_receiver(receiver, free)):
                return self._parked(owed, receiver)
            receiver = free
        begun = owing.begun(owed, self.clock(), self.policy)
        if not self.store.revise_notification(owed, begun):
            return Delivered(DeliveryOutcome.SKIPPED, owed)
        if begun.is_dead:
            return Delivered(DeliveryOutcome.DEAD, begun)
        started = self.clock()
        try:
            self._deliver(begun)
        except (CallbackUnknown, CallbackKeysUnavailable) as error:  # the receiver was not called
            return self._failed(begun, error, apart=receiver is not None and receiver.apart)
        except NotificationError as error:
            took, now = self.clock() - started, self.clock()
            known = self._recorded(
                receiver, begun, lambda attempted: owing.after_failure(attempted, begun.channel, took, now)
            )
            return self._failed(begun, error, apart=known is not None and known.apart)
        took, now = self.clock() - started, self.clock()
        self.store.remove_notification(begun)
        self._recorded(receiver, begun, lambda attempted: owing.after_acceptance(attempted, begun.channel, took, now))
        return Delivered(DeliveryOutcome.DELIVERED, begun)

    def _parked(self, owed: Notification, receiver: Receiver) -> Delivered:
        now = self.clock()
        after = owing.parked(owed, receiver.not_before, now, self.policy)
        if not self.store.revise_notification(owed, after):
            return Delivered(DeliveryOutcome.SKIPPED, owed)
        if not (after.is_dead or receiver.is_failing):
            return Delivered(DeliveryOutcome.PARKED, after)
        error = NotificationError(
            f"its receiver failed {counted(receiver.failures, 'time')} in a row, and gets one notification at a time",
            code="RECEIVER_SET_APART",
        )
        return Delivered(DeliveryOutcome.DEAD if after.is_dead else DeliveryOutcome.FAILED, after, error)

    def _recorded(
        self, before: Receiver | None, owed: Notification, after: Callable[[Receiver | None], Receiver | None]
    ) -> Receiver | None:
        """Store a delivery's effect on its receiver, and return the record; others may change it at the same time."""
        for _ in range(_RACES):
            changed = after(before)
            if changed is None or changed is before or self.store.revise_receiver(before, changed):
                return changed
            before = self.store.receiver(owed.channel)
        return before

    def _deliver(self, owed: Notification) -> None:
        if not is_callback(owed.channel):
            self.events.put(owed)
            return
        name = callback_name(owed.channel)
        url = self.policy.callbacks.get(name)
        if url is None:
            raise CallbackUnknown(
                f"delegation.notifications.callback.{name}, with the receiver's URL, is no longer set. Set it again"
            )
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
            raise NotificationError(_refusal(status), code="CALLBACK_NOT_ACCEPTED")

    def _failed(self, owed: Notification, error: NotificationError, *, apart: bool) -> Delivered:
        after = owing.failed(owed, f"{error.code}: {error}", self.clock(), self.policy, apart=apart)
        self.store.revise_notification(owed, after)
        return Delivered(DeliveryOutcome.DEAD if after.is_dead else DeliveryOutcome.FAILED, after, error)


@dataclass(frozen=True, slots=True)
class Due:
    """Due notifications: those to receivers that are set apart, and those to all others."""

    prompt: Sequence[Notification]
    apart: Sequence[Notification]


def due(store: NotificationStore, policy: NotificationPolicy, now: datetime, *, limit: int = ROOM) -> Due:
    """Return what is to be delivered now, each receiver in turn. For a receiver set apart: at most SHARE, one per pause
    while it fails, and those owed for too long, which the notifier makes dead letters. A callback that is no longer in
    the settings is found by its record. Raises the store's errors."""
    known = {receiver.channel: receiver for receiver in store.receivers()}
    prompt: dict[str, list[Notification]] = defaultdict(list)
    apart: dict[str, list[Notification]] = {}
    for channel in sorted({*policy.every_channel, *known}):
        receiver = known.get(channel)
        if receiver is None or not receiver.apart:
            prompt[channel] += store.notifications(NotificationState.OWED, now, limit=limit, parked=channel)
        else:
            apart[channel] = _of_one_apart(store, receiver, policy, now)
    for owed in store.notifications(NotificationState.OWED, now, limit=limit):
        prompt[owed.channel].append(owed)
    return Due(_in_turn(prompt), _in_turn(apart))


def _of_one_apart(
    store: NotificationStore, receiver: Receiver, policy: NotificationPolicy, now: datetime
) -> list[Notification]:
    is_free = owing.claimed(receiver, now) is not None
    if is_free and not receiver.is_failing:
        return list(store.notifications(NotificationState.OWED, now, limit=SHARE, parked=receiver.channel))
    parked = store.notifications(NotificationState.OWED, now, limit=_AGED, parked=receiver.channel)
    aged = [owed for owed in parked if owing.is_aged(owed, now, policy)]
    return list(parked[:1]) if is_free and not aged else aged


def _in_turn(groups: Mapping[str, Sequence[Notification]]) -> list[Notification]:
    return [owed for turn in zip_longest(*groups.values()) for owed in turn if owed is not None]


def send_due(
    store: NotificationStore, queue: NotificationQueue, policy: NotificationPolicy, now: datetime, *, room: int = ROOM
) -> int:
    """Send messages for what is due, for the sweeper; return for how many notifications. No queue is filled beyond
    `room`. The time of the next check is stored first, also for those without room, which would hide those behind.
    Raises the errors of store and queue; what was not sent is due again after a minute."""
    batch = due(store, policy, now, limit=room)
    left: dict[Pool, int] = {}

    def send(each: tuple[Notification, bool]) -> bool:
        owed, apart = each
        pool = pool_of(owed, apart=apart)
        if pool not in left:
            left[pool] = (min(room, APART_ROOM) if apart else room) - queue.depth(pool)
        if owed.parked and left[pool] <= 0:
            return False
        if not (store.revise_notification(owed, owing.sent_again(owed, now)) and left[pool] > 0):
            return False
        queue.send(owed, apart=apart)
        left[pool] -= 1
        return True

    each = [*((owed, True) for owed in batch.apart), *((owed, False) for owed in batch.prompt)]
    return sum(
        sending.result is True
        for sending in each_item(
            each, send, name="notifications.sent", clock=lambda: now, shown=lambda sent: sent[0].task_id
        )
    )


def deliver_due(notifier: Notifier, *, limit: int = 100) -> list[Delivered]:
    """Deliver what is due in this process, for a worker without queue. Notifications for receivers set apart are left
    to `deliver_apart`, in another thread. Raises the store's errors."""
    batch = due(notifier.store, notifier.policy, notifier.clock(), limit=limit)
    return _delivered(notifier, [Message.of(owed) for owed in batch.prompt])


def deliver_apart(notifier: Notifier) -> list[Delivered]:
    """Deliver what is due to receivers set apart; see `deliver_due`."""
    batch = due(notifier.store, notifier.policy, notifier.clock(), limit=1)
    return _delivered(notifier, [Message.of(owed, apart=True) for owed in batch.apart])


def _delivered(notifier: Notifier, messages: Sequence[Message]) -> list[Delivered]:
    deliveries = each_item(
        messages,
        notifier.take,
        name="notifications.delivered",
        clock=notifier.clock,
        shown=lambda owed: f"notification {owed.notification_id} of task {owed.task_id}",
    )
    return [delivery.result for delivery in deliveries if delivery.result is not None]


def _refusal(status: int) -> str:
    if 300 <= status < 400:
        return f"its receiver answered {status}. Redirects are not followed: set the callback's URL to the new address"
    return f"its receiver answered {status}, but must answer 2xx"
