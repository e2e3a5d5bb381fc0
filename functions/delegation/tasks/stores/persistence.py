"""TaskStore on the NoSQL persistence: all entities of all tasks (`persistence_entities`) are one index of one
reference.

A change is one commit; concurrent changes of a process share a compare-and-set. For workers with the NoSQL persistence
and no task table; DynamoDB allows more writes a second, because writes of different tasks do not contend.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final

from delegation.tasks.errors import OutcomeUnknown, StoreUnavailable, TaskExists
from delegation.tasks.life.lanes import Running
from delegation.tasks.life.model import Task
from delegation.tasks.stores import codec
from delegation.tasks.stores.admission import (
    QUEUED,
    RUNNING,
    Entry,
    LaneRange,
    LanesPage,
    Register,
    lane_of,
    page_of,
    register_item,
    register_of,
    running_entry,
)
from delegation.tasks.stores.base import (
    Adopt,
    Advance,
    Child,
    Create,
    DueEntry,
    Expect,
    Received,
    ReceivedPage,
    Revise,
    TaskChange,
    TaskHeads,
    Unreadable,
    only_expects,
    require_terminal,
    require_unmoved,
    require_version,
)
from delegation.tasks.stores.persistence_entities import (
    CHILDREN,
    DUE,
    HEADS,
    PARENTS,
    REGISTER,
    ROWS,
    STORED_CHILD,
    STORED_TASK,
    StoredChild,
    StoredTask,
    child_of,
    disown_children,
    entry_of,
    head_of,
    list_place_of,
    place_keys,
    range_of,
    row_key,
    stored_of,
    stored_task,
    write_children,
    write_task,
)
from delegation.tasks.stores.persistence_records import (
    STORED_NOTIFICATION,
    STORED_PAUSES,
    StoredItems,
    committed,
    translated,
    write_notifications,
)
from delegation.timestamps import isoformat, stored_time_or
from polaris_persistence.backends.base import Backend
from polaris_persistence.catalogs.process import OWN_TYPES, PersistenceProcess
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.directories import entity_committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead
from polaris_persistence.errors import ReferenceExists
from polaris_persistence.index.index import Index
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import installed

REALM: Final = "delegation-service"
"""The realm of tasks in keys. It belongs to no catalog: a catalog's realm in keys is a number or an older name."""
CATALOG: Final = "tasks"
REFERENCE: Final = "tasks"


def task_process(backend: Backend, **settings: Any) -> PersistenceProcess:
    """Return persistence with the object types of stored tasks; sweeping these objects needs them too."""
    return PersistenceProcess(
        backend,
        types=installed((*OWN_TYPES, STORED_TASK, STORED_CHILD, STORED_NOTIFICATION, STORED_PAUSES)),
        **settings,
    )


def catalog_of_tasks(process: PersistenceProcess) -> CatalogStore:
    return process.store(REALM, CATALOG)


def create_tasks(store: CatalogStore) -> bool:
    """Create the reference of a PersistenceTaskStore; False if it exists. Raises StoreUnavailable, OutcomeUnknown."""
    with translated():
        try:
            store.create_reference(REFERENCE)
        except ReferenceExists:
            return False
    return True


class PersistenceTaskStore:
    """TaskStore on one reference of a catalog's store. With `create` the first call creates it if needed; otherwise
    call `create_tasks` first."""

    def __init__(
        self,
        store: CatalogStore,
        *,
        policy: IndexPolicy = IndexPolicy(),  # noqa: B008 - frozen
        create: bool = True,
        **settings: Any,
    ) -> None:
        if create:
            create_tasks(store)
        self.catalog_store = store
        self.committer = entity_committer(store, REFERENCE, policy=policy, **settings)
        self._registers = StoredItems(self, StoredTask, register_item, register_of)

    def apply(self, change: TaskChange) -> Task:
        after = change.after
        try:
            with translated():
                return self.committer.commit(lambda attempt: _applied(attempt, change), operation=after.task_id).result
        except OutcomeUnknown:
            return self._read_back(change, after)

    def get(self, task_id: str) -> Task | None:
        return self._task(IndexKey.of(HEADS, task_id))

    def get_many(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        return {task.task_id: task for task in self._tasks([IndexKey.of(HEADS, task_id) for task_id in set(task_ids)])}

    def create_all(self, tasks: Sequence[Task]) -> bool:
        def create(entities: EntityChanges) -> bool:
            if any(head_of(entities, task.task_id) is not None for task in tasks):
                return False
            for task in tasks:
                write_task(entities, None, task, (task,))
            return True

        try:
            return committed(self.committer, create, tasks[0].task_id)
        except (OutcomeUnknown, StoreUnavailable):
            return False

    def get_version(self, task_id: str, version: int) -> Task | None:
        return self._task(row_key(task_id, version))

    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        first = row_key(task_id, max(after, 0) + 1)
        with translated():
            index = self.index()
            keys = [key for key, _ in islice(index.items(start=first, prefix=IndexKey.of(ROWS, task_id)), limit)]
        return tuple(self._tasks(keys, index))

    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        end = IndexKey.of(DUE, isoformat(now) + "~")  # after every key of that moment: `~` sorts after a separator
        with translated():
            items = self.index().items(end=end, prefix=IndexKey.of(DUE))
            # One index without shards: entries of other shards are skipped.
            asked = ((k, ref) for k, ref in items if shards is None or codec.due_bucket(k.elements()[-1]) in shards)
            places = [key.elements() for key, _ in islice(asked, limit)]
        return [DueEntry(task_id, stored_time_or(now, due_at)) for _, due_at, task_id in places]

    def children(self, task_id: str) -> Sequence[Child]:
        stored = self._stored_children(IndexKey.of(CHILDREN, task_id))
        return [Child(child.child_id, child.attempt, child.task_type, child.task_payload) for child in stored]

    def parents(self, task_id: str) -> Mapping[str, int]:
        return {child.parent_id: child.attempt for child in self._stored_children(IndexKey.of(PARENTS, task_id))}

    def _stored_children(self, prefix: IndexKey) -> list[StoredChild]:
        with translated():
            named = list(self.index().items(prefix=prefix))
            loaded = self.catalog_store.fetch_many([ref for _, ref in named])
            return [child_of(key, ref, child) for (key, ref), child in zip(named, loaded, strict=True)]

    def disown(self, task_id: str, up_to_attempt: int) -> int:
        return committed(self.committer, lambda entities: disown_children(entities, task_id, up_to_attempt), task_id)

    def queued_in(self, now: datetime, *, each: int, lanes: int, span: LaneRange) -> LanesPage:
        of_lane: dict[str, list[Entry]] = {}
        for entry in sorted(self._places(QUEUED)):
            of_lane.setdefault(lane_of(entry[0]), []).append(entry)
        return page_of(of_lane, now, each=each, most=lanes, span=span)

    def running(self) -> Sequence[Running]:
        return tuple(running_entry(task_id, place) for place, task_id in self._places(RUNNING))

    def _places(self, name: str) -> list[tuple[str, str]]:
        with translated():
            keys = [key.elements() for key, _ in self.index().items(prefix=IndexKey.of(name))]
        return [(place, task_id) for _, place, task_id in keys]

    def register(self) -> Register:
        return self._registers.get(REGISTER) or Register()

    def write_register(self, register: Register) -> bool:
        return self._registers.replace(REGISTER, register, register.revision - 1 or None)

    def remove(self, task: Task) -> bool:
        require_terminal(task)

        def remove(entities: EntityChanges) -> bool:
            head = head_of(entities, task.task_id)
            if head is None:
                return False
            require_unmoved(task, head)
            for key, _ in list(entities.items(IndexKey.of(ROWS, task.task_id))):
                entities.remove(key)
            disown_children(entities, task.task_id, task.attempt_count)
            for key in (IndexKey.of(HEADS, task.task_id), *place_keys(head)):
                entities.remove(key)
            return True

        return committed(self.committer, remove, task.task_id)

    def forget(self, task_id: str, below: int) -> int:
        def forget(entities: EntityChanges) -> int:
            head = head_of(entities, task_id)
            last = 0 if head is None else min(below, head.version) - 1
            rows = entities.items(IndexKey.of(ROWS, task_id))
            old = [key for key, _ in rows if int(key.elements()[-1]) <= last]
            for key in old:
                entities.remove(key)
            return len(old)

        return committed(self.committer, forget, task_id)

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        """Return heads in the order of ids."""
        start = None if cursor is None else IndexKey.of(HEADS, cursor)
        keys, entries, more = self._page(start, None, IndexKey.of(HEADS), limit)
        return TaskHeads(tuple(entries), keys[-1].elements()[-1] if more else None)

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        """Return a label's keys, or all, in the order of the index."""
        keys, heads, more = self._page(*range_of(which, before), limit)
        places = [list_place_of(key) for key in keys]
        entries = [
            (place, head)
            for place, head in zip(places, heads, strict=True)
            if isinstance(head, Unreadable) or which.has_labels_of(head)
        ]
        return ReceivedPage(tuple(entries), places[-1] if more else None)

    def _page(
        self, start: IndexKey | None, end: IndexKey | None, prefix: IndexKey, limit: int
    ) -> tuple[list[IndexKey], list[Task | Unreadable], bool]:
        """Return at most `limit` keys after `start`, which end with task ids; their tasks; and whether more follow."""
        with translated():
            items = self.index().items(start=start, end=end, prefix=prefix)
            named = list(islice(((key, ref) for key, ref in items if key != start), limit + 1))
            stored = self.catalog_store.fetch_many([ref for _, ref in named[:limit]])
        keys = [key for key, _ in named[:limit]]
        heads = [entry_of(key.elements()[-1], task) for key, task in zip(keys, stored, strict=True)]
        return keys, heads, len(named) > limit

    def index(self) -> Index:
        """Return the index of everything as of the newest commit."""
        head = self.committer.head()
        return Index.load(head.value.index, self.catalog_store.fetch_many) if head else Index.empty()

    def _task(self, key: IndexKey) -> Task | None:
        return next(iter(self._tasks([key])), None)

    def _tasks(self, keys: Collection[IndexKey], index: Index | None = None) -> list[Task]:
        """Return the tasks under those keys that the index has. Raises MalformedRecord, also for one without object."""
        with translated():
            index = index or self.index()
            named = [(key, ref) for key in keys if (ref := index.get(key)) is not None]
            loaded = self.catalog_store.fetch_many(ref for _, ref in named)
            return [stored_of(key, ref, task) for (key, ref), task in zip(named, loaded, strict=True)]

    def _read_back(self, change: TaskChange, after: Task) -> Task:
        head = self.get(after.task_id)
        if head is not None and not only_expects(change):
            row = self.get_version(after.task_id, after.version)
            if head.nonce == after.nonce or (isinstance(change, Create | Advance) and row and row.nonce == after.nonce):
                return head
        raise OutcomeUnknown(f"a write to task {after.task_id} got no clear answer. Repeat the request")


def _applied(attempt: CommitAttempt[EntityHead], change: TaskChange) -> Changed[EntityHead, Task]:
    """Apply one change to the present state; raise a refusal, write nothing if the change is already applied."""
    entities = EntityChanges(attempt)
    after = change.after
    head = head_of(entities, after.task_id)
    match change:
        case Expect(task):
            write_notifications(entities, change.owed)
            return Changed(entities.head if change.owed else None, require_version(task, head))
        case Create(task) if head is None:
            write_task(entities, None, task, (task,))
        case Create(task):
            first = stored_task(entities, row_key(task.task_id, 1))
            if head is not None and first is not None and first.nonce == task.nonce:
                return Changed(None, head)
            raise TaskExists(task.task_id, head)
        case Adopt(before) if change.only_expects:
            task = require_version(before, head)
            write_children(entities, task.task_id, change.children)
            return Changed(entities.head, task)
        case Advance(before, after) | Revise(before, after) | Adopt(before, after):
            rows = change.rows if isinstance(change, Advance) else ()
            if head is not None and head.nonce == after.nonce:
                return Changed(None, head)
            if head is not None and rows and head.version != before.version:
                ours = stored_task(entities, row_key(after.task_id, after.version))
                if ours is not None and ours.nonce == after.nonce:
                    return Changed(None, head)
            require_unmoved(before, head)
            write_task(entities, head, after, rows)
            if isinstance(change, Adopt):
                write_children(entities, after.task_id, change.children)
            elif isinstance(change, Advance):
                write_notifications(entities, change.owed)
    return Changed(entities.head, after)
