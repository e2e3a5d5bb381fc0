"""The notifier, as a Lambda and as the part of the sweeper that sends what is due; and a worker's delivery, in threads
beside its tasks, without a queue. The second thread delivers to receivers set apart, which may take long."""

import contextlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import cache
from typing import Any, Final

from delegation.items import each_item
from delegation.metrics import MetricLines
from delegation.notifications.delivery import (
    COUNTED,
    Delivered,
    DeliveryOutcome,
    EventBridge,
    Notifier,
    deliver_apart,
    deliver_due,
    send_due,
)
from delegation.notifications.https import HttpsPost, SigningKeys, reader, tls
from delegation.timestamps import utc_now
from delegation.wiring.clients import QUICK, aws
from delegation.wiring.settings import NotifierSettings, TaskSettings
from delegation.wiring.tasks import StoredTasks, notification_queue, notification_store, task_store


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
    """Send what is due and return how many; nothing in a process without the queue."""
    queue = notification_queue()
    if queue is None:
        return 0
    policy = TaskSettings.read().policies().notifications
    return send_due(notification_store(store), queue, policy, utc_now())


def _client(service: str) -> Any:
    return aws(service, QUICK)


logger = logging.getLogger(__name__)
INTERVAL: Final = timedelta(seconds=15)


@contextlib.contextmanager
def delivering(stop: threading.Event, *, build: Callable[[], Notifier] = notifier) -> Iterator[None]:
    """Deliver until `stop` is set, if a property enables notifications; any number of workers may do so."""
    if not TaskSettings.read().policies().notifications.is_on:
        yield
        return
    shared = build()
    for name, deliver in (("notifier", deliver_due), ("notifier of receivers set apart", deliver_apart)):
        threading.Thread(target=_run, args=(shared, deliver, stop), name=name, daemon=True).start()
    yield


Deliver = Callable[[Notifier], Sequence[Delivered]]


def _run(notifier: Notifier, deliver: Deliver, stop: threading.Event) -> None:
    turns = iter(lambda: stop.wait(INTERVAL.total_seconds()) or "what is due", True)
    # What an error prevents is due again in a later turn, however long the failed ones took.
    outcomes = each_item(
        turns,
        lambda _: deliver_once(notifier, deliver),
        name="notifications.turns",
        in_a_row=None,
        most_wasted=timedelta.max,
    )
    deque(outcomes, 0)


def deliver_once(notifier: Notifier, deliver: Deliver = deliver_due) -> None:
    """Deliver what is due, and log it. Raises the store's errors."""
    delivered = deliver(notifier)
    for message in delivered:
        _log(message)
    counts = Counter(COUNTED[message.outcome] for message in delivered if message.outcome in COUNTED)
    MetricLines.of_environment().put(counts, action="notify")


def _log(delivered: Delivered) -> None:
    if delivered.owed is None or delivered.outcome is DeliveryOutcome.SKIPPED:
        return
    fields = {"action": "notify", "task_id": delivered.owed.task_id, "channel": delivered.owed.channel}
    if delivered.outcome is DeliveryOutcome.DELIVERED:
        logger.info("delivered", extra=fields)
    else:
        reason = {"outcome": delivered.outcome.value, "reason": delivered.owed.last_error}
        logger.warning("not delivered", extra={**fields, **reason})
