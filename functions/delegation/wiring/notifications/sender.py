"""What sends notifications to their queue; hardly any invocation loads it."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from delegation.tasks.life.notifications import Notification
from delegation.tasks.work.parts.hooks import announce_nothing
from delegation.wiring.clients import QUICK, aws
from delegation.wiring.settings import NotificationQueueSettings

if TYPE_CHECKING:
    from delegation.notifications.queue import NotificationQueue


def announcer() -> Callable[[Sequence[Notification]], None]:
    """Return what sends notifications that were just stored; nothing in a process without their queue."""
    return announce_nothing if NotificationQueueSettings.read().queue_url is None else _announce


def notification_queue() -> "NotificationQueue | None":
    settings = NotificationQueueSettings.read()
    return None if settings.queue_url is None else _queue(settings.queue_url, settings.events_url, settings.apart_url)


@cache
def _queue(url: str, events: str | None, apart: str | None) -> "NotificationQueue":
    from delegation.notifications.queue import Pool, SqsNotificationQueue  # noqa: PLC0415

    others = {Pool.EVENTS: events, Pool.APART: apart}
    return SqsNotificationQueue(aws("sqs", QUICK), url, {pool: one for pool, one in others.items() if one})


def _announce(owed: Sequence[Notification]) -> None:
    from delegation.notifications.queue import announce  # noqa: PLC0415

    queue = notification_queue()
    if queue is not None:
        announce(queue, owed)
