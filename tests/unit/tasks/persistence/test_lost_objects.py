"""Objects that are gone, and a reference that was never made: no task is taken for one that does not exist."""

import pytest

from delegation.tasks.errors import MalformedRecord, StoreUnavailable
from delegation.tasks.stores.base import Adopt, Child, Create
from delegation.tasks.stores.persistence import PersistenceTaskStore, catalog_of_tasks, create_tasks, task_process
from delegation.tasks.stores.persistence_entities import STORED_CHILD, STORED_TASK
from polaris_persistence.backends.base import Locator
from polaris_persistence.backends.memory import MemoryBackend
from tests.kit.tasks.builders import NOW, submitted, touched


def lose(backend: MemoryBackend, type_: str) -> None:
    """Delete all objects of a type, as a restore of the references alone leaves it."""
    rows = backend.scan(limit=1_000).rows
    backend.delete_many(Locator(row.key, row.parts) for row in rows if row.key.type == type_)


def test_a_task_whose_object_is_gone_is_not_taken_for_none() -> None:
    backend = MemoryBackend()
    PersistenceTaskStore(catalog_of_tasks(task_process(backend))).apply(Create(task := submitted()))
    lose(backend, STORED_TASK.name)
    store = PersistenceTaskStore(catalog_of_tasks(task_process(backend)))
    for read in (
        lambda: store.get(task.task_id),
        lambda: store.get_many([task.task_id]),
        lambda: store.get_version(task.task_id, 1),
        lambda: store.history(task.task_id),
        lambda: store.apply(Create(task.evolve(nonce="another"))),
    ):
        with pytest.raises(MalformedRecord, match="no longer exists"):
            read()
    [unreadable] = store.heads().unreadable
    assert unreadable.task_id == task.task_id


def test_a_child_whose_object_is_gone_is_not_left_out() -> None:
    backend = MemoryBackend()
    store = PersistenceTaskStore(catalog_of_tasks(task_process(backend)))
    store.apply(Create(task := submitted()))
    store.apply(Adopt(task, touched(task), Child("child", 1, "acme.child", "{}")))
    lose(backend, STORED_CHILD.name)
    store = PersistenceTaskStore(catalog_of_tasks(task_process(backend)))
    with pytest.raises(MalformedRecord, match="no longer exists"):
        store.children(task.task_id)


def test_without_its_reference_the_store_is_unavailable_until_it_is_created() -> None:
    catalog = catalog_of_tasks(task_process(MemoryBackend()))
    store = PersistenceTaskStore(catalog, create=False)
    for call in (lambda: store.get("task"), lambda: store.due(NOW), lambda: store.apply(Create(submitted()))):
        with pytest.raises(StoreUnavailable, match="create-table"):
            call()
    assert [create_tasks(catalog), create_tasks(catalog)] == [True, False]
    task = submitted()
    assert store.apply(Create(task)) == task
