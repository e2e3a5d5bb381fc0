"""One contract for every TaskStore: memory, DynamoDB in moto (sequentially) and DynamoDB Local, the persistence."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from delegation.tasks.contract import CONCURRENT, SEQUENTIAL
from delegation.tasks.contract.support import Check
from delegation.tasks.errors import MalformedRecord, StoreUnavailable
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import Advance, Create, TaskStore
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.stores.persistence import PersistenceTaskStore, task_process
from polaris_common.dynamodb import to_item
from polaris_persistence.backends.base import Backend
from polaris_persistence.backends.memory import MemoryBackend
from tests.contract.task_tables import local_task_store, task_store
from tests.contract.where import LOCAL, MOTO
from tests.kit.tasks.builders import acquired, failed, retried, submitted
from tests.persistence.contract.backends import local_backend

MEMORY = "memory"
KERNEL = "kernel"
KERNEL_LOCAL = pytest.param("kernel-local", marks=[pytest.mark.dynamodb_local, pytest.mark.long])


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[TaskStore]:
    match request.param:
        case "memory":
            yield MemoryTaskStore()
        case "moto":
            with task_store(request.getfixturevalue("moto_client")) as in_moto:
                yield in_moto
        case "local":
            with local_task_store(request.getfixturevalue("dynamodb_local").url) as in_dynamodb:
                yield in_dynamodb
        case "kernel":
            yield kernel_store(MemoryBackend())
        case "kernel-local":
            with local_backend(request.getfixturevalue("dynamodb_local").url) as backend:
                yield kernel_store(backend)


def kernel_store(backend: Backend) -> PersistenceTaskStore:
    return PersistenceTaskStore(task_process(backend).store("realm", "tasks"))


@pytest.mark.parametrize("store", [MEMORY, MOTO, LOCAL, KERNEL, KERNEL_LOCAL], indirect=True)
@pytest.mark.parametrize("check", SEQUENTIAL, ids=lambda check: check.__name__)
def test_contract(store: TaskStore, check: Check) -> None:
    check(store)


# moto loses acknowledged writes under threads, so it is not tested here.
@pytest.mark.parametrize("store", [MEMORY, LOCAL, KERNEL, KERNEL_LOCAL], indirect=True)
@pytest.mark.parametrize("check", CONCURRENT, ids=lambda check: check.__name__)
def test_contract_under_threads(store: TaskStore, check: Check) -> None:
    check(store)


@pytest.mark.parametrize("store", [MOTO, LOCAL], indirect=True)
@pytest.mark.parametrize("stated", [{"format": 2}, {"format": "1"}, {}], ids=["newer", "text", "none"])
def test_an_item_of_another_format_is_refused(store: DynamoDbTaskStore, stated: dict[str, object]) -> None:
    task = submitted()
    for item in (codec.head_item(task), codec.row_item(task)):
        del item["format"]
        store.dynamodb.client.put_item(TableName=store.table, Item=to_item({**item, **stated}))
    with pytest.raises(MalformedRecord, match="format"):
        store.get(task.task_id)
    with pytest.raises(MalformedRecord, match="format"):
        store.get_version(task.task_id, 1)
    with pytest.raises(MalformedRecord, match="format"):
        store.history(task.task_id)
    (unreadable,) = store.heads().unreadable
    assert unreadable.task_id == task.task_id
    assert "format" in unreadable.reason


@pytest.mark.parametrize("store", [MOTO, LOCAL], indirect=True)
def test_history_continues_over_the_pages_of_the_table(store: DynamoDbTaskStore) -> None:
    """Rows of 100 KB make DynamoDB page its answer (1 MB) below the requested limit."""
    life = [submitted(task_payload="x" * 100_000)]
    store.apply(Create(life[0]))
    for n in range(12):
        after = acquired(life[-1]) if n % 2 == 0 else retried(life[-1])
        store.apply(Advance(life[-1], after))
        life.append(after)
    assert [task.version for task in store.history(life[0].task_id)] == list(range(1, 14))


@pytest.mark.parametrize("store", [MOTO, LOCAL], indirect=True)
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_an_interrupted_removal_is_finished_by_the_next(
    store: DynamoDbTaskStore, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Twenty rows take three transactions; the last also deletes the head, so no row is ever left without it."""
    life = [submitted()]
    store.apply(Create(life[0]))
    while len(life) < 20:
        after = (failed if len(life) == 19 else acquired if len(life) % 2 else retried)(life[-1])
        store.apply(Advance(life[-1], after))
        life.append(after)
    write, calls = store.dynamodb.write, iter(range(100))

    def fails(call: Callable[[], object]) -> Sequence[Mapping[str, Any]]:
        if next(calls) == steps:
            raise StoreUnavailable("no answer")
        return write(call)

    with monkeypatch.context() as patched:
        patched.setattr(store.dynamodb, "write", fails)
        with pytest.raises(StoreUnavailable):
            store.remove(life[-1])
    assert store.get(life[-1].task_id) == life[-1]
    left = [row.version for row in store.history(life[-1].task_id)]
    assert left == list(range(8 * steps + 1, 21))
    assert store.remove(life[-1]) is True
    assert store.get(life[-1].task_id) is None
    assert store.history(life[-1].task_id) == ()
