"""The notifier, and the part of the sweeper that sends what is owed."""

from functools import cache
from typing import Any

from delegation.notifications.delivery import Notifier, send_due
from delegation.notifications.events import EventBridge
from delegation.notifications.https import HttpsPost, tls
from delegation.notifications.keys import SigningKeys, reader
from delegation.timestamps import utc_now
from delegation.wiring.clients import QUICK, aws
from delegation.wiring.notifications.sender import notification_queue
from delegation.wiring.settings import NotifierSettings, TaskSettings
from delegation.wiring.tasks import StoredTasks, notification_store, task_store


def notifier() -> Notifier:
    settings, policy = NotifierSettings.read(), TaskSettings.read().policies().notifications
    return Notifier(
        notification_store(task_store()),
        policy,
        HttpsPost(
            tls(settings.callback_authorities), private=policy.private_addresses, loopback=settings.callback_loopback
        ),
        SigningKeys(reader(settings.callback_keys, cache(_client)), clock=utc_now),
        EventBridge(_client("events"), settings.event_bus),
        utc_now,
    )


def send_owed(store: StoredTasks) -> int:
    """Send what is owed and due, and return how many; nothing in a process without the queue."""
    queue = notification_queue()
    if queue is None:
        return 0
    policy = TaskSettings.read().policies().notifications
    return send_due(notification_store(store), queue, policy, utc_now())


def _client(service: str) -> Any:
    return aws(service, QUICK)
