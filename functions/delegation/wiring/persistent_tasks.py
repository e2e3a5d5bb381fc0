"""Tasks in the NoSQL persistence: their store in a process, and the sweep of unused objects of its commits."""

from functools import cache
from typing import Any

from delegation.metrics import CHANGES_UNREADABLE, MetricLines
from delegation.tasks.life.declared import is_wanted
from delegation.tasks.stores.persistence import PersistenceTaskStore, catalog_of_tasks, create_tasks, task_process
from delegation.tasks.stores.persistence_records import (
    EVERY,
    PersistenceNotificationStore,
    PersistencePauseStore,
    Sweep,
    SweepReport,
    persistence_maintenance,
    translated,
)
from delegation.tasks.submit import Tasks
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.service import TaskService
from delegation.wiring.clients import aws
from delegation.wiring.settings import TaskSettings
from polaris_common.dynamodb import client_config
from polaris_persistence.backends.base import Backend, ReferenceKey
from polaris_persistence.backends.dynamodb import TIMEOUTS, Calls, DynamoDbBackend
from polaris_persistence.backends.dynamodb_tables import create_tables
from polaris_persistence.ids.nodes import SHORT_LIVED
from polaris_persistence.maintenance.sweep import RealmMaintenance


def process_tasks(settings: TaskSettings) -> PersistenceTaskStore:
    return persistent_tasks(process_client(), settings.objects_table, settings.persistence_references)


def persistent_tasks(client: Any, objects: str, references: str) -> PersistenceTaskStore:
    """Return the tasks in two tables; makes no call. Its node id is leased for minutes: workers and commands may be
    killed."""
    process = task_process(backend_of(client, objects, references), leases=SHORT_LIVED, unreadable=count_unreadable)
    return PersistenceTaskStore(catalog_of_tasks(process), create=False)


def create_task_tables(client: Any, objects: str, references: str) -> list[str]:
    """Create the missing tables of the two and the tasks' reference; return the names of new tables. May be repeated.
    Raises StoreUnavailable, OutcomeUnknown."""
    with translated():
        new = create_tables(client, objects, references)
    create_tasks(catalog_of_tasks(task_process(backend_of(client, objects, references), leases=SHORT_LIVED)))
    return new


def backend_of(client: Any, objects: str, references: str) -> Backend:
    return DynamoDbBackend(Calls(client), objects=objects, references=references)


@cache
def process_client() -> Any:
    """Return this process's client; its time-outs leave a commit time to find out an unanswered call's result."""
    return aws("dynamodb", client_config(**TIMEOUTS))


def pauses_of(store: PersistenceTaskStore) -> PersistencePauseStore:
    return PersistencePauseStore(store)


def notifications_of(store: PersistenceTaskStore) -> PersistenceNotificationStore:
    return PersistenceNotificationStore(store)


def sweeps(_tasks: TaskService) -> list[Behavior[Sweep, SweepReport]]:
    """Return the behavior that deletes unused objects of commits in the tables that the environment names."""

    def maintenance() -> RealmMaintenance:
        settings = TaskSettings.read()
        backend = backend_of(process_client(), settings.objects_table, settings.persistence_references)
        return task_process(backend, leases=SHORT_LIVED).maintenance()

    return [persistence_maintenance(maintenance)]


def ensure_swept(tasks: TaskService) -> bool:
    """Submit the recurring sweep unless it exists, usually with one read; return whether this call did."""
    [behavior] = sweeps(tasks)
    head = tasks.reads.find(behavior.task_id(Sweep()))
    return is_wanted(head, EVERY, tasks.clock()) and Tasks(tasks).submit(behavior, Sweep()).is_new


def count_unreadable(reference: ReferenceKey) -> None:
    """Print the metric of a waiting change that cannot be decoded."""
    MetricLines.of_environment().put({CHANGES_UNREADABLE: 1}, catalog=reference.catalog, reference=reference.name)
