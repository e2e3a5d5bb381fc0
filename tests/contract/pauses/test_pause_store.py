"""One contract for every PauseStore: memory, the task table in moto and in DynamoDB Local, the persistence."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from delegation.dynamodb import to_item
from delegation.persistence.backends.memory import MemoryBackend
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Caller
from delegation.tasks.pauses.dynamodb import PAUSES_KEY, DynamoDbPauseStore
from delegation.tasks.pauses.model import EVERYTHING, PauseMode, PauseRecord, PauseScope, WorkPause
from delegation.tasks.pauses.store import MemoryPauseStore, PauseStore
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.testing.contract.support import FAR
from delegation.tasks_on_persistence.pauses import PersistencePauseStore
from delegation.tasks_on_persistence.store import PersistenceTaskStore, task_process
from tests.contract.task_tables import local_task_store, moto, task_store
from tests.kit.tasks.builders import NOW

LOCAL = pytest.param("local", marks=pytest.mark.dynamodb_local)
ALL = WorkPause(EVERYTHING, NOW, Caller(client_id="ops", subject="CN=ops"), "Polaris is being upgraded – äöü")
ORDERS = WorkPause(PauseScope(table="lake.sales.orders"), NOW, Caller(client_id="ops"), mode=PauseMode.DRAIN)
REALM = WorkPause(PauseScope(realm="POLARIS"), NOW, Caller(client_id="aws", subject="arn:aws:iam::1:user/a"))


@pytest.fixture(params=["memory", "moto", LOCAL, "kernel"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[PauseStore, TaskStore | None]]:
    """A store of pauses, and the store of tasks that it shares a table with."""
    match request.param:
        case "memory":
            yield MemoryPauseStore(), None
        case "moto":
            with moto() as client, task_store(client) as tasks:
                yield DynamoDbPauseStore(tasks.dynamodb, tasks.table), tasks
        case "local":
            with local_task_store(request.getfixturevalue("dynamodb_local").url) as tasks:
                yield DynamoDbPauseStore(tasks.dynamodb, tasks.table), tasks
        case "kernel":
            kept = PersistenceTaskStore(task_process(MemoryBackend()).store("realm", "tasks"))
            yield PersistencePauseStore(kept), kept


def test_the_record_moves_from_its_revision_only_and_is_no_task(pair: tuple[PauseStore, TaskStore | None]) -> None:
    store, tasks = pair
    assert store.read() == PauseRecord()
    first = PauseRecord(1, (ALL, ORDERS, REALM))
    assert store.write(first) is True
    assert store.read() == first
    assert store.write(replace(first, pauses=())) is False
    assert store.write(PauseRecord(3)) is False
    assert store.read() == first
    assert store.write(PauseRecord(2)) is True
    assert store.read() == PauseRecord(2)
    if tasks is not None:
        assert tasks.heads().entries == ()
        assert tasks.due(FAR) == []


def test_one_of_many_writers_moves_the_record(pair: tuple[PauseStore, TaskStore | None], request: Any) -> None:
    if "moto" in request.node.name:
        pytest.skip("moto loses acknowledged writes under threads")
    store, _ = pair
    with ThreadPoolExecutor(4) as pool:
        for revision in (1, 2):
            assert sum(pool.map(lambda _n, r=revision: store.write(PauseRecord(r, (ALL,))), range(4))) == 1


def test_a_record_of_another_format_is_refused() -> None:
    with moto() as client, task_store(client) as tasks:
        client.put_item(TableName=tasks.table, Item=to_item({**PAUSES_KEY, "format": 2, "revision": 1}))
        with pytest.raises(MalformedRecord, match="pauses: format"):
            DynamoDbPauseStore(tasks.dynamodb, tasks.table).read()
