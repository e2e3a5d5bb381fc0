"""The store below a simulated deployment: in memory, or the persistence in memory, each whole or without its nonces."""

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol, TypeVar

from delegation.tasks.errors import RevisionConflict, StaleTask, TaskExists
from delegation.tasks.life.model import Task
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import Adopt, Child, Create, Expect, TaskChange, TaskStore, require_unmoved
from delegation.tasks.stores.memory import Fault, MemoryTaskStore, no_fault
from delegation.tasks.stores.persistence import PersistenceTaskStore, catalog_of_tasks, task_process
from delegation.tasks.stores.persistence_entities import HEADS, StoredTask, place_keys
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.entities import EntityChanges, EntityHead
from polaris_persistence.index.keys import IndexKey

T = TypeVar("T")
TABLE: Final = "table"
PERSISTENCE: Final = "persistence"


class SharedStore(TaskStore, Protocol):
    """What all processes of a deployment write to, and what the simulator looks at."""

    fault: Fault
    lock: threading.RLock
    _heads: Mapping[str, Task]

    @property
    def _rows(self) -> Mapping[str, Mapping[int, Task]]: ...

    @property
    def _children(self) -> Mapping[str, Mapping[str, Child]]: ...

    def make_unreadable(self, task_id: str) -> None: ...

    def apply_locked(self, change: TaskChange) -> Task: ...


class StoreWithoutNonces(MemoryTaskStore):
    """Does not recognize a repeated write by its nonce."""

    def _create(self, task: Task) -> Task:
        if task.task_id in self._heads:
            raise TaskExists(task.task_id, self._heads[task.task_id])
        return super()._create(task)

    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        head = self._heads.get(before.task_id)
        if head is not None and head.version != before.version:
            raise StaleTask(before.task_id, head)
        if head is not None and head.revision != before.revision:
            raise RevisionConflict(before.task_id, head)
        return super()._move(before, after, row=row)


class OfEachTask(Mapping[str, T]):
    """What a store has of each task, read when it is asked for."""

    def __init__(self, heads: Mapping[str, Task], read: Callable[[str], T]) -> None:
        self._heads = heads
        self._read = read

    def __getitem__(self, task_id: str) -> T:
        return self._read(task_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._heads)

    def __len__(self) -> int:
        return len(self._heads)


class PersistenceInMemory(PersistenceTaskStore):
    """The store on the persistence in memory; a head that was not changed is the same object at each read."""

    def __init__(self) -> None:
        process = task_process(MemoryBackend(), draw=random.Random(0), overlaps_lease=False)
        super().__init__(catalog_of_tasks(process))
        self.fault: Fault = no_fault
        self.lock = threading.RLock()
        self._heads: dict[str, Task] = {}

    @property
    def _rows(self) -> Mapping[str, Mapping[int, Task]]:
        return OfEachTask(self._heads, self._rows_of)

    @property
    def _children(self) -> Mapping[str, Mapping[str, Child]]:
        return OfEachTask(self._heads, lambda task_id: {child.task_id: child for child in self.children(task_id)})

    def _rows_of(self, task_id: str) -> Mapping[int, Task]:
        found = {row.version: row for row in self.history(task_id, limit=10_000)}
        if not found:
            raise KeyError(task_id)
        return found

    def apply(self, change: TaskChange) -> Task:
        task = super().apply(change)
        return self._heads.setdefault(task.task_id, task) if self._heads.get(task.task_id) == task else self._put(task)

    def apply_locked(self, change: TaskChange) -> Task:
        return self.apply(change)

    def get(self, task_id: str) -> Task | None:
        found = super().get(task_id)
        same = self._heads.get(task_id)
        if found != same:
            raise AssertionError(f"the store has {found}, but {same} was written last")
        return same

    def remove(self, task: Task) -> bool:
        removed = super().remove(task)
        if removed:
            del self._heads[task.task_id]
        return removed

    def make_unreadable(self, task_id: str) -> None:
        """Store the head as a newer release would; as elsewhere the simulator itself still sees it."""
        head = self._heads[task_id]

        def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
            entities = EntityChanges(attempt)
            ref = entities.put(IndexKey.of(HEADS, task_id), StoredTask(item={**codec.head_item(head), "format": 2}))
            for key in place_keys(head):
                entities.link(key, ref)
            return Changed(entities.head, None)

        self.committer.commit(change)

    def _put(self, task: Task) -> Task:
        self._heads[task.task_id] = task
        return task


class PersistenceWithoutNonces(PersistenceInMemory):
    """Does not recognize a repeated write by its nonce."""

    def apply(self, change: TaskChange) -> Task:
        task_id = change.after.task_id
        head = self.get(task_id)
        if isinstance(change, Create) and head is not None:
            raise TaskExists(task_id, head)
        if not isinstance(change, Create | Expect) and not (isinstance(change, Adopt) and change.only_expects):
            require_unmoved(change.before, head)
        return super().apply(change)


STORES: Final[Mapping[str, Callable[[], SharedStore]]] = {TABLE: MemoryTaskStore, PERSISTENCE: PersistenceInMemory}
WITHOUT_NONCES: Final[Mapping[str, Callable[[], SharedStore]]] = {
    TABLE: StoreWithoutNonces,
    PERSISTENCE: PersistenceWithoutNonces,
}
