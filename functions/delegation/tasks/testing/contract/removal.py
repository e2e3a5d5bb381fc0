"""What every TaskStore promises of removing: a whole task, or old versions of one."""

import pytest

from delegation.tasks.errors import RevisionConflict, StaleTask, TaskExists
from delegation.tasks.stores.base import Advance, Create, Revise, TaskStore
from delegation.tasks.testing.builders import (
    HOUR,
    NOW,
    acquired,
    failed,
    retried,
    submitted,
    touched,
)
from delegation.tasks.testing.contract.support import Check, a_life, row, rows, stored

# ---- removing


def remove_deletes_rows_and_head_of_that_task_only(store: TaskStore) -> None:
    """A task of more rows than one DynamoDB transaction deletes."""
    other = store.apply(Create(submitted()))
    life = a_life()
    for turn in range(6):
        life.append(acquired(life[-1], "worker-3", NOW + (turn + 2) * HOUR))
        life.append(retried(life[-1], NOW + (turn + 2) * HOUR))
    life.append(failed(life[-1]))
    done = stored(store, life)
    assert store.remove(done) is True
    assert store.get(done.task_id) is None
    assert rows(store, done.task_id) == []
    assert store.remove(done) is False
    assert rows(store, other.task_id) == [row(other)]
    again = submitted(done.task_id)
    assert store.apply(Create(again)) == again


def remove_of_a_task_that_changed_is_refused(store: TaskStore) -> None:
    life = a_life()
    done = stored(store, life[:-1])
    head = store.apply(Advance(done, life[-1]))
    with pytest.raises(StaleTask) as stale:
        store.remove(done)
    assert stale.value.stored == head
    assert store.get(head.task_id) == head
    assert rows(store, head.task_id) == [row(task) for task in life]


def remove_of_a_task_that_was_touched_is_refused(store: TaskStore) -> None:
    """A head may be rewritten after its end: by a newer release, say, whose write must not be lost with the task."""
    done = stored(store, a_life()[:-1])
    head = store.apply(Revise(done, touched(done, files_deleted=7)))
    with pytest.raises(RevisionConflict) as conflict:
        store.remove(done)
    assert conflict.value.stored == head
    assert store.get(head.task_id) == head
    assert store.get_version(head.task_id, head.version) is not None
    assert store.remove(head) is True


def remove_of_a_live_task_is_refused(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    with pytest.raises(ValueError, match="terminal"):
        store.remove(task)
    assert store.get(task.task_id) == task


# ---- forgetting


def forget_deletes_old_rows_of_that_task_only(store: TaskStore) -> None:
    """A task of more rows than one DynamoDB transaction deletes."""
    other = store.apply(Create(submitted()))
    life = a_life()
    for turn in range(8):
        life.append(acquired(life[-1], "worker-3", NOW + (turn + 2) * HOUR))
        life.append(retried(life[-1], NOW + (turn + 2) * HOUR))
    head = stored(store, life)
    below = len(life) - 2
    assert store.forget(head.task_id, below) == below - 1
    assert rows(store, head.task_id) == [row(task) for task in life[below - 1 :]]
    assert store.get(head.task_id) == head
    assert store.get_version(head.task_id, 1) is None
    assert store.forget(head.task_id, below) == 0
    assert rows(store, other.task_id) == [row(other)]


def forget_leaves_the_row_of_the_head(store: TaskStore) -> None:
    life = a_life()
    head = stored(store, life)
    assert store.forget(head.task_id, head.version + 5) == head.version - 1
    assert rows(store, head.task_id) == [row(head)]
    again = store.apply(Revise(head, touched(head, files_deleted=7)))
    assert store.get(head.task_id) == again
    assert store.forget(submitted().task_id, 3) == 0


def forget_of_a_first_version_deletes_nothing(store: TaskStore) -> None:
    """A recurring task of an unknown type stays at version 1."""
    task = store.apply(Create(submitted()))
    for below in (1, 2):
        assert store.forget(task.task_id, below) == 0
    assert rows(store, task.task_id) == [row(task)]


def a_task_is_there_although_its_first_row_was_forgotten(store: TaskStore) -> None:
    """A recurring task is submitted again and again; the row that states whose creation it was may be gone."""
    head = stored(store, a_life())
    store.forget(head.task_id, head.version)
    with pytest.raises(TaskExists) as caught:
        store.apply(Create(submitted(head.task_id)))
    assert caught.value.stored == head


CHECKS: tuple[Check, ...] = (
    a_task_is_there_although_its_first_row_was_forgotten,
    remove_deletes_rows_and_head_of_that_task_only,
    remove_of_a_task_that_changed_is_refused,
    remove_of_a_task_that_was_touched_is_refused,
    remove_of_a_live_task_is_refused,
    forget_deletes_old_rows_of_that_task_only,
    forget_leaves_the_row_of_the_head,
    forget_of_a_first_version_deletes_nothing,
)
