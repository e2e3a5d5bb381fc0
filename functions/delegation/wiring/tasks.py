"""The task service over its store and SQS: the task table, or the NoSQL persistence if the environment names that."""

import importlib
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from delegation.metrics import TABLES_PARTLY_DELETED, MetricLines
from delegation.orchestration.dispatch import SqsDispatchQueue
from delegation.tasks.endings import AttemptCounts, EndingLines
from delegation.tasks.life.model import Task
from delegation.tasks.life.notifications import Notification
from delegation.tasks.life.policy import Policies
from delegation.tasks.pauses import ReadPauses
from delegation.tasks.stores.admission import AdmissionStore
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbPauseStore, DynamoDbTaskStore
from delegation.tasks.work.hooks import (
    DispatchQueue,
    ExternalJobs,
    JobsLeftToSweeper,
    NoDispatchQueue,
    TaskHooks,
    announce_nothing,
    ignored,
    uncounted,
)
from delegation.tasks.work.service import TaskService
from delegation.timestamps import elapsed, utc_now
from delegation.wiring.clients import PATIENT, QUICK, aws
from delegation.wiring.settings import NotificationQueueSettings, QueueSettings, ResultSettings, TaskSettings
from delegation.wiring.types import TYPES
from polaris_common.dynamodb import client_config

if TYPE_CHECKING:
    from delegation.notifications.queue import NotificationQueue
    from delegation.storage.s3_plans import S3PlanStore
    from delegation.tasks.pauses import PauseStore
    from delegation.tasks.stores.notifications import NotificationStore
    from delegation.tasks.submit import Tasks


_PERSISTENCE: Final = "delegation.wiring.persistent_tasks"
"""Imported by name when it is chosen: no deployed package contains the persistence."""


class StoredTasks(TaskStore, AdmissionStore, Protocol):
    """The store of a process: a DynamoDbTaskStore or a PersistenceTaskStore."""


def task_service(
    queue: DispatchQueue | None = None,
    *,
    store: StoredTasks | None = None,
    counts: bool = True,
    prints_ends: bool = True,
) -> TaskService:
    """Return the task service of a process that only submits tasks or runs purges; see `tasks_over`."""
    settings = TaskSettings.read()
    store = store or task_store()
    return tasks_over(store, settings.policies(), queue, JobsLeftToSweeper(), counts=counts, prints_ends=prints_ends)


def connect() -> "Tasks":
    """Return what submits tasks from any process. It needs a task store's variables, and workers to run the tasks.
    Imports are inside, because no function of the service calls it."""
    from delegation.tasks.submit import Tasks  # noqa: PLC0415

    return Tasks(task_service(counts=False, prints_ends=False))


def task_store() -> StoredTasks:
    settings = TaskSettings.read()
    if settings.store == "table":
        return task_table(settings.tasks_table)
    store: StoredTasks = _persistence().process_tasks(settings)
    return store


def task_table(table: str | None = None) -> DynamoDbTaskStore:
    """Return the store of a task table, by default the one that the environment names."""
    client = ConditionalTable(aws("dynamodb", client_config()))
    return DynamoDbTaskStore(client, table or TaskSettings.read().tasks_table)


def pause_store(store: StoredTasks) -> "PauseStore":
    if isinstance(store, DynamoDbTaskStore):
        return DynamoDbPauseStore(store.dynamodb, store.table)
    pauses: PauseStore = _persistence().pauses_of(store)
    return pauses


def notification_store(store: StoredTasks) -> "NotificationStore":
    if isinstance(store, DynamoDbTaskStore):
        from delegation.tasks.stores.notifications import DynamoDbNotificationStore  # noqa: PLC0415

        return DynamoDbNotificationStore(store)
    notifications: NotificationStore = _persistence().notifications_of(store)
    return notifications


def _persistence() -> Any:
    return importlib.import_module(_PERSISTENCE)


def dispatch_queue() -> DispatchQueue:
    return SqsDispatchQueue(aws("sqs", QUICK), QueueSettings.read().queue_url)


def tasks_over(
    store: StoredTasks,
    policies: Policies,
    queue: DispatchQueue | None,
    external_jobs: ExternalJobs,
    *,
    counts: bool = True,
    prints_ends: bool = True,
) -> TaskService:
    """Return the task service. It prints a metric for each partly deleted table; without `counts` the step Complete
    does. With `prints_ends`, as in every process of the service, it prints a line with metrics for each task that it
    ends, and for each attempt that it starts or ends."""
    return TaskService(
        store,
        policies,
        queue or NoDispatchQueue(),
        clock=utc_now,
        hooks=TaskHooks(
            types=TYPES,
            external_jobs=external_jobs,
            left_partly_done=count_partly_deleted if counts else ignored,
            results=record_bucket(),
            announce=announcer(),
            ended=ending_lines() if prints_ends else ignored,
            counted=AttemptCounts(MetricLines.of_environment(), TYPES) if prints_ends else uncounted,
            pauses=ReadPauses(pause_store(store).read, TYPES, monotonic=elapsed),
        ),
    )


def ending_lines() -> EndingLines:
    return EndingLines(MetricLines.of_environment(), TYPES, codes=known_codes)


def known_codes() -> Collection[str]:
    """Return every code of the catalogue, loaded here because only failures need it."""
    from delegation.edge.codes import codes  # noqa: PLC0415

    return frozenset(name for chapter in codes().values() for name in chapter)


class RecordBucket:
    """ResultStore on the service's own bucket; hardly any process keeps or reads a large result."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket

    def put(self, key: str, data: bytes) -> None:
        self._objects().put(key, data)

    def get(self, key: str) -> bytes:
        return self._objects().get(key)

    def _objects(self) -> "S3PlanStore":
        # Loaded here, because the API and the steps would load S3 at each cold start.
        from delegation.storage.s3_plans import S3PlanStore  # noqa: PLC0415

        return S3PlanStore(aws("s3", PATIENT), self._bucket)


def record_bucket() -> RecordBucket | None:
    """Return the bucket that the environment names, None without one."""
    bucket = ResultSettings.read().record_bucket
    return None if bucket is None else RecordBucket(bucket)


def count_partly_deleted(task: Task) -> None:
    """Print the metric of a purge that failed after its first delete."""
    lines = MetricLines.of_environment()
    lines.put({TABLES_PARTLY_DELETED: 1}, task_id=task.task_id, error_code=task.error_code or "")


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
    return SqsNotificationQueue(
        aws("sqs", QUICK), url, {pool: queue_url for pool, queue_url in others.items() if queue_url}
    )


def _announce(owed: Sequence[Notification]) -> None:
    from delegation.notifications.queue import announce  # noqa: PLC0415

    queue = notification_queue()
    if queue is not None:
        announce(queue, owed)
