"""Stores that each break one promise about notifications."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from delegation.tasks.life.model import Task
from delegation.tasks.life.notifications import Notification, NotificationState, Receiver, owed_by
from delegation.tasks.stores.base import Advance, Expect, TaskChange
from delegation.tasks.stores.memory import MemoryNotificationStore, MemoryTaskStore


class AnnouncesNothing(MemoryTaskStore):
    def _announce(self, notifications: Iterable[Notification]) -> None:
        """Forget them."""


class AnnouncesBeforeTheCondition(MemoryTaskStore):
    def apply(self, change: TaskChange) -> Task:
        if isinstance(change, Advance | Expect):
            self._announce(change.owed)
        return super().apply(change)


class AnnouncesOnlyTheLastVersion(MemoryTaskStore):
    def _announce(self, notifications: Iterable[Notification]) -> None:
        found = list(notifications)
        super()._announce(one for one in found if self._heads[one.task_id].version == one.version)


class AnnouncesEachStatus(MemoryTaskStore):
    """Even a task that names no channel."""

    def apply_locked(self, change: TaskChange) -> Task:
        task = super().apply_locked(change)
        if isinstance(change, Advance):
            self._announce(owed_by([task.evolve(notify=("event",))]))
        return task


class OneForEachChannel(MemoryTaskStore):
    """An end overwrites what former ends announce."""

    def _announce(self, notifications: Iterable[Notification]) -> None:
        for one in notifications:
            self.owed[one.task_id, one.channel] = one


class RemovedWithTheTask(MemoryTaskStore):
    def remove(self, task: Task) -> bool:
        for key in [key for key in self.owed if key[0] == task.task_id]:
            del self.owed[key]
        return super().remove(task)


class NotificationsAsTasks(MemoryTaskStore):
    def _announce(self, notifications: Iterable[Notification]) -> None:
        for one in notifications:
            super()._announce([one])
            self._heads[one.notification_id] = self._heads[one.task_id].evolve(task_id=one.notification_id)


class WithoutCondition(MemoryNotificationStore):
    def revise_notification(self, before: Notification, after: Notification) -> bool:
        self._tasks.owed[before.task_id, before.notification_id] = after
        return True


class AnyState(MemoryNotificationStore):
    def notifications(
        self, state: NotificationState, until: datetime, *, limit: int = 100, parked: str | None = None
    ) -> Sequence[Notification]:
        del state, parked
        found = [one for one in self._tasks.owed.values() if one.due_at <= until]
        return sorted(found, key=lambda one: one.due_at)[:limit]


class NewestFirst(MemoryNotificationStore):
    def notifications(
        self, state: NotificationState, until: datetime, *, limit: int = 100, parked: str | None = None
    ) -> Sequence[Notification]:
        return list(super().notifications(state, until, parked=parked))[::-1][:limit]


class KeepsWhatWasDelivered(MemoryNotificationStore):
    def remove_notification(self, delivered: Notification) -> None:
        """Delete nothing."""


class ForgetsAttempts(MemoryNotificationStore):
    def revise_notification(self, before: Notification, after: Notification) -> bool:
        return super().revise_notification(before, replace(after, attempts=0))


class ParksNothing(MemoryNotificationStore):
    def notifications(
        self, state: NotificationState, until: datetime, *, limit: int = 100, parked: str | None = None
    ) -> Sequence[Notification]:
        found = [one for one in self._tasks.owed.values() if one.state is state and one.due_at <= until]
        return [one for one in found if parked in {None, one.channel}][:limit]


class LastReceiverWins(MemoryNotificationStore):
    def revise_receiver(self, before: Receiver | None, after: Receiver) -> bool:
        del before
        self._tasks.receivers[after.channel] = after
        return True
