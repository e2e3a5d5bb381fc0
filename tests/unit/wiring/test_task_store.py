"""DELEGATION_TASK_STORE chooses where tasks are, for workers and for commands with --direct."""

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from delegation.cli.main import build
from delegation.metrics import CHANGES_UNREADABLE
from delegation.tasks.life.model import Status
from delegation.tasks.stores.dynamodb import DynamoDbPauseStore, DynamoDbTaskStore
from delegation.tasks.stores.notifications import DynamoDbNotificationStore
from delegation.tasks.stores.persistence import REFERENCE, PersistenceTaskStore
from delegation.tasks.stores.persistence_records import (
    TASK_TYPE,
    PersistenceNotificationStore,
    PersistencePauseStore,
    SweepReport,
)
from delegation.tasks.work.worker import WorkerSettings
from delegation.wiring import persistent_tasks as wired
from delegation.wiring.tasks import connect, notification_store, pause_store, task_store
from delegation.wiring.worker import added_worker
from polaris_persistence.backends.dynamodb import DynamoDbBackend
from polaris_persistence.commits.entities import EntityHead
from polaris_persistence.commits.waiting import WAITING_TYPE, WaitingChange, WaitingQueue
from polaris_persistence.objects.store import CatalogStore
from tests.contract.task_tables import moto, moto_task_store
from tests.unit.wiring.example_behaviors import SHOUT, Word

Run = Callable[..., Result]
OBJECTS, REFERENCES = "objects", "persistence-references"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Run:
    """Run the command on the persistence, without a configuration file and without added groups."""
    for name in ("TASKS_TABLE", "IDEMPOTENCY_TABLE", "EMR_APPLICATION_ID", "PROPERTIES", "CONFIG"):
        monkeypatch.delenv(f"DELEGATION_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DELEGATION_BEHAVIORS", "tests.unit.wiring.example_behaviors")
    monkeypatch.setenv("DELEGATION_TASK_STORE", "persistence")
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(build(()), words)


@pytest.fixture
def tables(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """The same with the two tables in moto, made by the command that makes them."""
    wired.process_client.cache_clear()
    with moto():
        monkeypatch.setenv("DELEGATION_OBJECTS_TABLE", OBJECTS)
        monkeypatch.setenv("DELEGATION_PERSISTENCE_REFERENCES_TABLE", REFERENCES)
        made = [json.loads(line) for line in run("tasks", "create-table", "--json").stdout.splitlines()]
        assert made == [{"table": OBJECTS, "created": True}, {"table": REFERENCES, "created": True}]
        yield run
        wired.process_client().close()
    wired.process_client.cache_clear()


def test_a_worker_runs_tasks_of_the_persistence_and_commands_read_and_change_them(tables: Run) -> None:
    store = task_store()
    assert isinstance(store, PersistenceTaskStore)
    assert isinstance(pause_store(store), PersistencePauseStore)
    assert isinstance(notification_store(store), PersistenceNotificationStore)
    submitted = connect().submit(SHOUT, Word(text="word"))
    later = connect().submit(SHOUT, Word(text="later"), delay=timedelta(hours=1))
    deployed, worker = added_worker(WorkerSettings("worker:7", timedelta(0)), threading.Event())
    assert worker.run_once() is not None
    assert worker.run_once() is None
    assert submitted.handle.result() == Word(text="WORD")
    shown = json.loads(tables("tasks", "show", "--direct", "--json", submitted.task_id).stdout)
    assert (shown["status"], shown["attempt_count"]) == (Status.SUCCESS, 1)
    assert tables("tasks", "cancel", "--direct", later.task_id).exit_code == 0
    assert deployed.store.get(later.task_id).error_code == "CANCELLED"  # type: ignore[union-attr]
    listed = json.loads(tables("tasks", "list", "--direct", "--json").stdout)["tasks"]
    assert {one["task_id"] for one in listed} == {submitted.task_id, later.task_id}
    assert json.loads(tables("tasks", "types", "--json").stdout)["types"] == {"SHOUT": {"SUCCESS": 1, "FAILURE": 1}}


def test_a_pause_by_a_command_stops_a_worker(tables: Run) -> None:
    connect().submit(SHOUT, Word(text="word"))
    assert tables("pause", "--direct", "--all", "--reason", "incident").exit_code == 0
    _, worker = added_worker(WorkerSettings("worker:7", timedelta(0)), threading.Event())
    assert worker.run_once() is None
    assert tables("resume", "--direct").exit_code == 0
    _, worker = added_worker(WorkerSettings("worker:8", timedelta(0)), threading.Event())
    assert worker.run_once() is not None


def test_a_worker_sweeps_what_commits_left_as_one_recurring_task(tables: Run) -> None:
    deployed, worker = added_worker(WorkerSettings("worker:7", timedelta(0)), threading.Event())
    assert [wired.ensure_swept(deployed.tasks), wired.ensure_swept(deployed.tasks)] == [True, False]
    [listed] = json.loads(tables("tasks", "list", "--direct", "--json").stdout)["tasks"]
    assert (listed["task_type"], listed["known_behavior"]) == (TASK_TYPE, True)
    swept = worker.run_once()
    assert (swept.task_type, swept.status, swept.error_code) == (TASK_TYPE, Status.SUBMITTED, None)
    [ended] = [row for row in deployed.store.history(swept.task_id) if row.status is Status.SUCCESS]
    assert SweepReport.model_validate_json(ended.result_extended or "").references == 1


def test_a_worker_counts_the_waiting_changes_that_do_not_decode(tables, capsys):
    """Line 4: the deployed process is this one."""
    store = task_store()
    assert isinstance(store, PersistenceTaskStore)
    catalog = store.catalog_store
    queue = WaitingQueue(catalog, REFERENCE, EntityHead)
    queue.add([WaitingChange(reference=REFERENCE, kind="put", data="a")], catalog.current_reference(REFERENCE))
    spoil(catalog)
    connect().submit(SHOUT, Word(text="word"))
    assert CHANGES_UNREADABLE.name in capsys.readouterr().out


def spoil(catalog: CatalogStore) -> None:
    """Make the waiting changes ones that do not decode."""
    backend = catalog.backend
    assert isinstance(backend, DynamoDbBackend)
    for row in backend.scan(limit=100).rows:
        if row.key.type == WAITING_TYPE.name:
            [stored] = backend.fetch_many([row]).values()  # type: ignore[list-item] - a row has key and parts too
            backend.put_many([dataclasses.replace(stored, value=b"")])


def test_the_task_table_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELEGATION_TASK_STORE", raising=False)
    monkeypatch.setenv("DELEGATION_TASKS_TABLE", "tasks")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    store = task_store()
    assert isinstance(store, DynamoDbTaskStore)
    store.dynamodb.client.close()
    with moto_task_store() as table:
        assert isinstance(pause_store(table), DynamoDbPauseStore)
        assert isinstance(notification_store(table), DynamoDbNotificationStore)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"OBJECTS_TABLE": ""}, "DELEGATION_OBJECTS_TABLE"),
        ({"PERSISTENCE_REFERENCES_TABLE": ""}, "DELEGATION_PERSISTENCE_REFERENCES_TABLE"),
        ({"TASK_STORE": "dynamo"}, "DELEGATION_TASK_STORE"),
        ({"TASK_STORE": "table"}, "DELEGATION_TASKS_TABLE"),
        ({"EMR_APPLICATION_ID": "app"}, "DELEGATION_EMR_APPLICATION_ID"),
    ],
)
def test_a_worker_names_the_setting_that_is_wrong(run, monkeypatch, variables, named):
    for name, value in {"OBJECTS_TABLE": "a", "PERSISTENCE_REFERENCES_TABLE": "b", **variables}.items():
        monkeypatch.setenv(f"DELEGATION_{name}", value)
    result = run("worker", "--added-only")
    assert result.exit_code == 2
    assert named in result.stderr.replace("\n", "")
