"""What sends notifications to their queue; hardly any invocation loads it."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from delegation.tasks.life.notifications.owed import Notification
from delegation.tasks.work.changes import unannounced
from delegation.wiring.clients import QUICK, aws
from delegation.wiring.settings import NotificationQueueSettings

if TYPE_CHECKING:
    from delegation.notifications.queue import NotificationQueue


def announcer() -> Callable[[Sequence[Notification]], None]:
    """Return what sends notifications that were just stored; nothing in a process without their queue."""
    return unannounced if NotificationQueueSettings.read().queue_url is None else _announce


def notification_queue() -> "NotificationQueue | None":
    """Return the queue of notifications, None without one."""
    url = NotificationQueueSettings.read().queue_url
    return None if url is None else _queue(url)


@cache
def _queue(url: str) -> "NotificationQueue":
    from delegation.notifications.queue import SqsNotificationQueue  # noqa: PLC0415

    return SqsNotificationQueue(aws("sqs", QUICK), url)


def _announce(owed: Sequence[Notification]) -> None:
    from delegation.notifications.queue import announce  # noqa: PLC0415

    queue = notification_queue()
    if queue is not None:
        announce(queue, owed)
