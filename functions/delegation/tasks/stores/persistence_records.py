"""Notifications and pauses on the NoSQL persistence, as entities of the tasks' reference and in its commits; and
`persistence-maintenance`, the recurring task that marks and sweeps the objects of the persistence."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from delegation.errors import RunCancelled, RunHandedOver
from delegation.tasks.errors import LeaseLost, MalformedRecord, OutcomeUnknown, StoreUnavailable
from delegation.tasks.life.notifications import Notification, NotificationState, Receiver
from delegation.tasks.pauses import PauseRecord, pauses_item, pauses_of
from delegation.tasks.stores.notifications import (
    notification_item,
    notification_of,
    readable_notifications,
    readable_receivers,
    receiver_item,
    receiver_of,
)
from delegation.tasks.stores.persistence_entities import StoredItem
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from delegation.timestamps import isoformat
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead
from polaris_persistence.errors import (
    BackendUnavailable,
    ClockRegressed,
    CommitContended,
    CommitUnknown,
    CorruptObject,
    LeaseExpired,
    NoFreeNode,
    ObjectMissing,
    ReferenceNotFound,
    UnknownType,
)
from polaris_persistence.errors import CommitOutcomeUnknown as BackendOutcomeUnknown
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.maintenance.sweep import RealmMaintenance
from polaris_persistence.objects.objects import Loaded, PersistedModel
from polaris_persistence.objects.store import of_model
from polaris_persistence.objects.types import ObjectType

if TYPE_CHECKING:
    from delegation.tasks.stores.persistence import PersistenceTaskStore

R = TypeVar("R")
T = TypeVar("T")


@contextmanager
def translated() -> Iterator[None]:
    """Raise persistence errors as this package's errors."""
    try:
        yield
    except (CommitUnknown, BackendOutcomeUnknown) as error:
        raise OutcomeUnknown(str(error)) from error
    except (BackendUnavailable, CommitContended, NoFreeNode, LeaseExpired, ClockRegressed) as error:
        raise StoreUnavailable(str(error)) from error
    except ReferenceNotFound as error:
        raise StoreUnavailable(f"{error}. `delegation tasks create-table` creates the references") from error
    except (CorruptObject, ObjectMissing, UnknownType) as error:
        raise MalformedRecord(str(error)) from error


def committed(committer: Committer[EntityHead], change: Callable[[EntityChanges], R], operation: str) -> R:
    """Commit what `change` does to the entities and return its result. A false result means no change."""

    def attempted(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, R]:
        entities = EntityChanges(attempt)
        result = change(entities)
        return Changed(entities.head if result else None, result)

    with translated():
        return committer.commit(attempted, operation=operation).result


class StoredItems(Generic[T]):
    """Values of one type among the tasks' entities, like `Items` of a DynamoDB table; `model` is their object type."""

    def __init__(
        self,
        tasks: "PersistenceTaskStore",
        model: type[StoredItem],
        encode: Callable[[T], dict[str, Any]],
        decode: Callable[[Any], T],
    ) -> None:
        self._tasks = tasks
        self._model = model
        self._encode = encode
        self._decode = decode

    def get(self, key: IndexKey) -> T | None:
        with translated():
            ref = self._tasks.index().get(key)
            stored = self._tasks.catalog_store.fetch(ref, self._model) if ref else None
        return self._decode(stored.value.item) if stored else None

    def replace(self, key: IndexKey, value: T, before: int | None) -> bool:
        """Put a value if the stored one has the revision `before`, or if None and none is stored; return whether it
        was."""

        def change(entities: EntityChanges) -> bool:
            stored = entities.fetch(key, self._model)
            present: Any = self._decode(stored.value.item) if stored else None
            if (present.revision if present else None) != before:
                return False
            entities.put(key, self._model(item=self._encode(value)))
            return True

        return committed(self._tasks.committer, change, key.elements()[-1])


_KEY: Final = IndexKey.of("pauses")


class StoredPauses(StoredItem): ...


STORED_PAUSES: Final = ObjectType("delegation-pauses", StoredPauses)


class PersistencePauseStore:
    def __init__(self, tasks: "PersistenceTaskStore") -> None:
        self._items = StoredItems(tasks, StoredPauses, pauses_item, pauses_of)

    def read(self) -> PauseRecord:
        return self._items.get(_KEY) or PauseRecord()

    def write(self, record: PauseRecord) -> bool:
        return self._items.replace(_KEY, record, record.revision - 1 or None)


_NAME: Final = "notification"
_RECEIVER: Final = "notification-receiver"


class StoredNotification(StoredItem): ...


STORED_NOTIFICATION: Final = ObjectType("delegation-task-notification", StoredNotification)


def write_notifications(entities: EntityChanges, owed: Iterable[Notification]) -> None:
    """Put notifications, each found by its task and by its time."""
    for notification in owed:
        ref = entities.put(
            _key(notification.task_id, notification.notification_id),
            StoredNotification(item=notification_item(notification)),
        )
        entities.link(_place(notification), ref)


class PersistenceNotificationStore:
    def __init__(self, tasks: "PersistenceTaskStore") -> None:
        self._store = tasks.catalog_store
        self._committer = tasks.committer
        self._index = tasks.index
        self._owed = StoredItems(tasks, StoredNotification, notification_item, notification_of)
        self._receivers = StoredItems(tasks, StoredNotification, receiver_item, receiver_of)

    def notification(self, task_id: str, notification_id: str) -> Notification | None:
        return self._owed.get(_key(task_id, notification_id))

    def notifications_of(self, task_id: str) -> Sequence[Notification]:
        return self._found(IndexKey.of(_NAME, task_id))

    def notifications(
        self, state: NotificationState, until: datetime, *, limit: int = 100, parked: str | None = None
    ) -> Sequence[Notification]:
        place = (state.value,) if parked is None else _parking(state, parked)
        # After every key of that moment: `~` sorts after a separator.
        return self._found(IndexKey.of(*place), IndexKey.of(*place, isoformat(until) + "~"), limit)

    def revise_notification(self, before: Notification, after: Notification) -> bool:
        return self._replace(before, after, any_revision=False)

    def remove_notification(self, delivered: Notification) -> None:
        self._replace(delivered, None, any_revision=True)

    def receivers(self) -> Sequence[Receiver]:
        with translated():
            refs = [ref for _, ref in self._index().items(prefix=IndexKey.of(_RECEIVER))]
            loaded = self._store.fetch_many(refs)
        return list(readable_receivers(_stored_items(loaded)))

    def receiver(self, channel: str) -> Receiver | None:
        return self._receivers.get(IndexKey.of(_RECEIVER, channel))

    def revise_receiver(self, before: Receiver | None, after: Receiver) -> bool:
        key = IndexKey.of(_RECEIVER, after.channel)
        return self._receivers.replace(key, after, before.revision if before else None)

    def _replace(self, before: Notification, after: Notification | None, *, any_revision: bool) -> bool:
        key = _key(before.task_id, before.notification_id)

        def change(entities: EntityChanges) -> bool:
            stored = entities.fetch(key, StoredNotification)
            present = notification_of(stored.value.item) if stored else None
            if present is None or not (any_revision or present.revision == before.revision):
                return False
            entities.remove(_place(present))
            if after is None:
                entities.remove(key)
            else:
                write_notifications(entities, (after,))
            return True

        return committed(self._committer, change, before.notification_id)

    def _found(self, prefix: IndexKey, end: IndexKey | None = None, limit: int | None = None) -> Sequence[Notification]:
        with translated():
            refs = [ref for _, ref in islice(self._index().items(end=end, prefix=prefix), limit)]
            loaded = self._store.fetch_many(refs)
        return list(readable_notifications(_stored_items(loaded)))


def _stored_items(loaded: Iterable[Loaded[PersistedModel] | None]) -> Iterator[dict[str, Any]]:
    return (of_model(entity, StoredNotification).value.item for entity in loaded if entity is not None)


def _key(task_id: str, notification_id: str) -> IndexKey:
    return IndexKey.of(_NAME, task_id, notification_id)


def _parking(state: NotificationState, channel: str) -> tuple[str, ...]:
    return (f"parked-{state}", channel)


def _place(owed: Notification) -> IndexKey:
    place = _parking(owed.state, owed.channel) if owed.parked else (owed.state.value,)
    return IndexKey.of(*place, isoformat(owed.due_at), owed.task_id, owed.notification_id)


logger = logging.getLogger(__name__)

TASK_TYPE: Final = "PERSISTENCE_MAINTENANCE"
EVERY: Final = timedelta(hours=6)


class Sweep(BaseModel):
    """No parameters: the process that runs the task configures the policy."""

    model_config = ConfigDict(frozen=True)


class SweepReport(BaseModel):
    """What one run did; see RealmSweepReport. The last release also reads these reports, so `false_positive_rate` is
    kept: 0, because marks are exact."""

    model_config = ConfigDict(frozen=True)

    references: int
    marked: int
    scanned: int
    deleted: int
    young: int
    false_positive_rate: float = 0.0
    unknown: int = 0
    refused: tuple[tuple[str, str], ...] = ()
    not_before: int | None = None


def persistence_maintenance(
    maintenance: Callable[[], RealmMaintenance], *, every: timedelta = EVERY
) -> Behavior[Sweep, SweepReport]:
    """Return the behavior. `maintenance` is called when it runs, so a process that only submits needs no store. A run
    that ends early leaves its progress in the store, and the next attempt continues. A catalog that could not be swept
    does not fail the task; the report names it and a warning is logged."""

    def work(_parameters: Sweep, run: AttemptContext) -> SweepReport:
        ended: list[LeaseLost | RunCancelled | RunHandedOver] = []

        def stop() -> bool:
            try:
                run.checkpoint()
            except (LeaseLost, RunCancelled, RunHandedOver) as end:
                ended.append(end)
            return bool(ended)

        report = maintenance().run(stop)
        if ended:
            raise ended[0]
        for place, reason in report.refused:
            logger.warning("the maintenance skipped %r: %s", place, reason)
        return SweepReport.model_validate(report, from_attributes=True)

    return Behavior(TASK_TYPE, Sweep, work, result=SweepReport, identify=lambda _sweep: "", every=every)
