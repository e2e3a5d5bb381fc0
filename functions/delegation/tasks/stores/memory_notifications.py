"""NotificationStore in memory, under the lock of its task store, whose hook injects faults."""

from collections.abc import Sequence
from datetime import datetime

from delegation.tasks.life.notifications.owed import Notification, NotificationState
from delegation.tasks.life.notifications.receivers import Receiver
from delegation.tasks.stores.memory import MemoryTaskStore


class MemoryNotificationStore:
    def __init__(self, tasks: MemoryTaskStore) -> None:
        self._tasks = tasks

    def notification(self, task_id: str, notification_id: str) -> Notification | None:
        self._tasks.fault("before notification")
        with self._tasks.lock:
            return self._tasks.owed.get((task_id, notification_id))

    def notifications_of(self, task_id: str) -> Sequence[Notification]:
        self._tasks.fault("before notifications_of")
        with self._tasks.lock:
            return [self._tasks.owed[key] for key in sorted(self._tasks.owed) if key[0] == task_id]

    def notifications(
        self, state: NotificationState, until: datetime, *, limit: int = 100, parked: str | None = None
    ) -> Sequence[Notification]:
        self._tasks.fault("before notifications")
        with self._tasks.lock:
            found = [one for one in self._tasks.owed.values() if one.state is state and one.due_at <= until]
        found = [one for one in found if (one.channel if one.parked else None) == parked]
        return sorted(found, key=lambda owed: (owed.due_at, owed.task_id, owed.notification_id))[:limit]

    def revise_notification(self, before: Notification, after: Notification) -> bool:
        self._tasks.fault("before revise_notification")
        key = (before.task_id, before.notification_id)
        with self._tasks.lock:
            present = self._tasks.owed.get(key)
            is_unmoved = present is not None and present.revision == before.revision
            if is_unmoved:
                self._tasks.owed[key] = after
        self._tasks.fault("after revise_notification")
        return is_unmoved

    def remove_notification(self, delivered: Notification) -> None:
        self._tasks.fault("before remove_notification")
        with self._tasks.lock:
            self._tasks.owed.pop((delivered.task_id, delivered.notification_id), None)
        self._tasks.fault("after remove_notification")

    def receivers(self) -> Sequence[Receiver]:
        self._tasks.fault("before receivers")
        with self._tasks.lock:
            return [self._tasks.receivers[channel] for channel in sorted(self._tasks.receivers)]

    def receiver(self, channel: str) -> Receiver | None:
        self._tasks.fault("before receiver")
        with self._tasks.lock:
            return self._tasks.receivers.get(channel)

    def revise_receiver(self, before: Receiver | None, after: Receiver) -> bool:
        self._tasks.fault("before revise_receiver")
        with self._tasks.lock:
            present = self._tasks.receivers.get(after.channel)
            is_unmoved = (present.revision if present else None) == (before.revision if before else None)
            if is_unmoved:
                self._tasks.receivers[after.channel] = after
        self._tasks.fault("after revise_receiver")
        return is_unmoved
