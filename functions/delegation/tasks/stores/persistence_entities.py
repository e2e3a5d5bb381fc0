"""The entities of tasks on the NoSQL persistence, and the keys under which one index has them:

head/{task_id}              the current copy
row/{task_id}/{version}     one version, never changed
due/{due_at}/{task_id}      the current copy again, while the task needs attention at a time
child/{task_id}/{child_id}  a child of a task, and the attempt that adopted it
parent/{child_id}/{task_id} the same, to find the parents of a child
queued/{place}/{task_id}    the current copy again, while the task waits for its admission in a lane
running/{place}/{task_id}   the current copy again, while the task is admitted
admissions                  the register of recent admissions
pauses                      the record of pauses
notification/{task_id}/{id} what an end of a task announces
owed/{due_at}/{task_id}/{id}, dead/{due_at}/{task_id}/{id}
                            the same, to find what is to be delivered, and what was not
received/{time}/{task_id}   the current copy again, by the time at which the task was received, the newest first
target/{key}/{time}/{task_id} and correlation/{key}/{time}/{task_id}: the same for each label that the task has
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delegation.tasks.life.model import Task, label_key
from delegation.tasks.stores import codec
from delegation.tasks.stores.admission import place_of
from delegation.tasks.stores.base import Child, Received, Unreadable
from delegation.timestamps import isoformat
from polaris_persistence.commits.entities import EntityChanges, missing
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel
from polaris_persistence.objects.store import of_model
from polaris_persistence.objects.types import ObjectType

_RECEIVED: Final = "received"
_TARGET: Final = "target"
_CORRELATION: Final = "correlation"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FAR: Final = 10**18
"""Microseconds from 1970 to beyond the year 9999. Times are subtracted from it, so that the newest sorts first."""


def range_of(which: Received, before: str | None) -> tuple[IndexKey, IndexKey | None, IndexKey]:
    """Return where a list starts (after the position `before` if given), where it ends, and the prefix of its keys."""
    if which.correlation_id is not None:
        prefix: tuple[str, ...] = _CORRELATION, label_key(which.correlation_id) or ""
    elif which.target is not None:
        prefix = _TARGET, label_key(which.target) or ""
    else:
        prefix = (_RECEIVED,)
    if before is None:
        start = IndexKey.of(*prefix, _newest_first(which.until))
    else:
        moment, _, task_id = before.partition("/")
        start = IndexKey.of(*prefix, _newest_first(datetime.fromisoformat(moment)), task_id)
    end = None if which.since is None else IndexKey.of(*prefix, _newest_first(which.since) + "~")
    return start, end, IndexKey.of(*prefix)


def list_place_of(key: IndexKey) -> str:
    """Return the position of a key in a list, as `codec.received_key` does."""
    *_, listed, task_id = key.elements()
    return f"{isoformat(_EPOCH + timedelta(microseconds=_FAR - int(listed)))}/{task_id}"


def _newest_first(moment: datetime) -> str:
    return f"{_FAR - (moment - _EPOCH) // timedelta(microseconds=1):020d}"


HEADS: Final = "head"
ROWS: Final = "row"
DUE: Final = "due"
CHILDREN: Final = "child"
PARENTS: Final = "parent"
REGISTER: Final = IndexKey.of("admissions")


class StoredItem(PersistedModel):
    """A value in its stored format, like an item of the task table."""

    item: dict[str, Any]


class StoredTask(StoredItem):
    """A head or a row (`codec`)."""


class StoredChild(PersistedModel):
    """A child of a task (`Child`), named after both."""

    parent_id: str
    child_id: str
    attempt: int
    task_type: str
    task_payload: str


STORED_CHILD: Final = ObjectType("delegation-task-child", StoredChild)
STORED_TASK: Final = ObjectType("delegation-task", StoredTask)


def write_task(entities: EntityChanges, head: Task | None, after: Task, rows: Sequence[Task]) -> None:
    """Put new rows and the head after them, and move the head to its present places."""
    places = place_keys(after)
    for key in () if head is None else place_keys(head):
        if key not in places:
            entities.remove(key)
    for row in rows:
        entities.put(row_key(row.task_id, row.version), StoredTask(item=codec.row_item(row)))
    current = entities.put(IndexKey.of(HEADS, after.task_id), StoredTask(item=codec.head_item(after)))
    for key in places:
        entities.link(key, current)


def write_children(entities: EntityChanges, parent_id: str, children: Sequence[Child]) -> None:
    for child in children:
        stored = StoredChild(
            parent_id=parent_id,
            child_id=child.task_id,
            attempt=child.attempt,
            task_type=child.task_type,
            task_payload=child.task_payload,
        )
        ref = entities.put(IndexKey.of(CHILDREN, parent_id, child.task_id), stored)
        entities.link(_parent_key(parent_id, child.task_id), ref)


def child_of(key: IndexKey, ref: ObjectRef, stored: Loaded[PersistedModel] | None) -> StoredChild:
    """Return the child under a key. Raises ObjectMissing."""
    if stored is None:
        raise missing(key, ref)
    return of_model(stored, StoredChild).value


def disown_children(entities: EntityChanges, task_id: str, up_to_attempt: int) -> int:
    """Remove the names of children that no later attempt adopted, and return how many."""
    disowned = 0
    for key, _ in list(entities.items(IndexKey.of(CHILDREN, task_id))):
        child = entities.fetch(key, StoredChild)
        if child is not None and child.value.attempt <= up_to_attempt:
            entities.remove(key)
            entities.remove(_parent_key(task_id, child.value.child_id))
            disowned += 1
    return disowned


def _parent_key(parent_id: str, child_id: str) -> IndexKey:
    return IndexKey.of(PARENTS, child_id, parent_id)


def entry_of(task_id: str, stored: Loaded[PersistedModel] | None) -> Task | Unreadable:
    if stored is None:
        return Unreadable(task_id, "the task's object is missing from the persistence")
    return codec.entry_of(task_id, of_model(stored, StoredTask).value.item)


def stored_of(key: IndexKey, ref: ObjectRef, stored: Loaded[PersistedModel] | None) -> Task:
    """Return the task under a key. Raises MalformedRecord, ObjectMissing."""
    if stored is None:
        raise missing(key, ref)
    return codec.task_of(of_model(stored, StoredTask).value.item)


def head_of(entities: EntityChanges, task_id: str) -> Task | None:
    """Return the head of a task as the commit reads it, None without one."""
    return stored_task(entities, IndexKey.of(HEADS, task_id))


def stored_task(entities: EntityChanges, key: IndexKey) -> Task | None:
    """Return the head or row of a key, None without one. Raises MalformedRecord."""
    stored = entities.fetch(key, StoredTask)
    return codec.task_of(stored.value.item) if stored else None


def row_key(task_id: str, version: int) -> IndexKey:
    return IndexKey.of(ROWS, task_id, f"{version:010d}")


def place_keys(task: Task) -> list[IndexKey]:
    """Return the keys beside the head under which a task is found."""
    listed = (_newest_first(task.received_timestamp), task.task_id)
    labels = ((_TARGET, task.target_key), (_CORRELATION, task.correlation_key))
    keys = [IndexKey.of(_RECEIVED, *listed), *(IndexKey.of(name, key, *listed) for name, key in labels if key)]
    if task.due_at is not None:
        keys.append(IndexKey.of(DUE, isoformat(task.due_at), task.task_id))
    place = place_of(task)
    return keys if place is None else [*keys, IndexKey.of(*place, task.task_id)]
