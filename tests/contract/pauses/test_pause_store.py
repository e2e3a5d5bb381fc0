"""One contract for every PauseStore: memory, the task table in moto and in DynamoDB Local, the persistence."""

import contextlib
from collections.abc import Iterator

import pytest

from delegation.tasks.contract.support import FAR
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.pauses import MemoryPauseStore, PauseRecord, PauseStore
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.stores.dynamodb import PAUSES_KEY, DynamoDbPauseStore
from delegation.tasks.stores.persistence import PersistenceTaskStore, task_process
from delegation.tasks.stores.persistence_records import PersistencePauseStore
from delegation.testing.pauses import ALL, PauseStoreContract, PauseStorePromises
from polaris_common.dynamodb import to_item
from polaris_persistence.backends.memory import MemoryBackend
from tests.contract.task_tables import local_task_store, moto, task_store
from tests.contract.where import LOCAL, MOTO


@contextlib.contextmanager
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[PauseStore, TaskStore | None]]:
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


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Iterator[tuple[PauseStore, TaskStore | None]]:
    with opened(request) as both:
        yield both


class TestPauseStore(PauseStoreContract):
    @pytest.fixture(params=["memory", LOCAL, "kernel"])
    def store(self, request: pytest.FixtureRequest) -> Iterator[PauseStore]:
        with opened(request) as (pauses, _):
            yield pauses


class TestPauseStoreInMoto(PauseStorePromises):
    @pytest.fixture(params=["moto"])
    def store(self, request: pytest.FixtureRequest) -> Iterator[PauseStore]:
        with opened(request) as (pauses, _):
            yield pauses


@pytest.mark.parametrize("kind", [MOTO, LOCAL, "kernel"], indirect=True)
def test_the_record_is_no_task(kind: tuple[PauseStore, TaskStore]) -> None:
    pauses, tasks = kind
    for revision in (1, 2):
        assert pauses.write(PauseRecord(revision, (ALL,))) is True
        assert tasks.heads().entries == ()
        assert tasks.due(FAR) == []


def test_a_record_of_another_format_is_refused() -> None:
    with moto() as client, task_store(client) as tasks:
        client.put_item(TableName=tasks.table, Item=to_item({**PAUSES_KEY, "format": 2, "revision": 1}))
        with pytest.raises(MalformedRecord, match=r"record of pauses.*format"):
            DynamoDbPauseStore(tasks.dynamodb, tasks.table).read()
