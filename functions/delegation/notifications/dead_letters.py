"""Having dead letters delivered again, as an operator asks for it."""

from collections.abc import Iterable
from datetime import datetime

from delegation.tasks.life.notifications.owed import Notification, revived
from delegation.tasks.stores.notifications import NotificationStore


def dead_letters_of(store: NotificationStore, task_id: str) -> list[Notification]:
    """Return the dead letters of a task's ends."""
    return [one for one in store.notifications_of(task_id) if one.is_dead]


def resent(store: NotificationStore, dead: Iterable[Notification], now: datetime) -> list[Notification]:
    """Let dead letters be delivered again, with all their attempts; return those that nobody else changed meanwhile."""
    return [one for one in dead if store.revise_notification(one, revived(one, now))]
