"""Having dead letters delivered again, as an operator asks for it."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from delegation.items import ItemOutcome, each_item
from delegation.tasks.life.notifications import Notification, revived
from delegation.tasks.stores.notifications import NotificationStore


def dead_letters_of(store: NotificationStore, task_id: str) -> list[Notification]:
    return [one for one in store.notifications_of(task_id) if one.is_dead]


def resent(
    store: NotificationStore, dead: Iterable[Notification], now: datetime
) -> list[ItemOutcome[Notification, bool]]:
    """Let dead letters be delivered again, with all their attempts; the result is False for one that has changed."""

    def resend(one: Notification) -> bool:
        return store.revise_notification(one, revived(one, now))

    return list(
        each_item(
            dead, resend, name="notifications.resent", shown=lambda one: one.notification_id, most_wasted=timedelta.max
        )
    )
