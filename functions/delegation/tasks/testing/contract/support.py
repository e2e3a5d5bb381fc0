"""Helpers of the checks of TaskStores: versions to store, and reads of what is stored."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, runtime_checkable
from unittest.mock import patch

import pytest

from delegation.tasks.errors import RevisionConflict, StaleTask, TaskExists
from delegation.tasks.life.model import Task
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import Advance, Create, Revise, TaskChange, TaskStore
from delegation.tasks.testing.builders import (
    HOUR,
    MINUTE,
    NOW,
    acquired,
    resubmitted,
    retried,
    started,
    submitted,
    succeeded,
    touched,
)

Check = Callable[[TaskStore], None]
THREADS = 8
FAR = NOW + 1000 * HOUR


@runtime_checkable
class HidesTasks(Protocol):
    """A store that can be asked to treat a task as one that a newer release wrote."""

    def make_unreadable(self, task_id: str) -> None: ...


def a_life() -> list[Task]:
    """Return seven versions that pass through every status but FAILURE."""
    life = [submitted()]
    life.append(acquired(life[-1]))
    life.append(retried(life[-1]))
    life.append(acquired(life[-1], "worker-2", NOW + MINUTE))
    life.append(started(life[-1], NOW + MINUTE, effects=True))
    life.append(succeeded(life[-1], NOW + 2 * MINUTE))
    life.append(resubmitted(life[-1], NOW + HOUR))
    return life


def stored(store: TaskStore, life: Sequence[Task]) -> Task:
    """Store versions one by one and return the last head."""
    head = store.apply(Create(life[0]))
    for version in life[1:]:
        head = store.apply(Advance(head, version))
    return head


def rows(store: TaskStore, task_id: str) -> list[Task]:
    return list(store.history(task_id))


def row(task: Task) -> Task:
    """Return the row of a version: everything but its place in the index, and errors of former attempts."""
    return task.row


def refused(store: TaskStore, change: TaskChange, error: type[Exception]) -> Task | None:
    """Apply a change that must be refused with exactly this error; return the head that the refusal carries."""
    with pytest.raises(error) as refusal:
        store.apply(change)
    assert refusal.type is error
    shown: Task | None = refusal.value.stored  # type: ignore[attr-defined]
    return shown


def written_by_a_newer_release(store: TaskStore, task: Task) -> None:
    """Rewrite the head of a stored task in a format that this release does not know.

    A store whose items `delegation.tasks.stores.codec` does not make has `make_unreadable(task_id)`, as in memory.
    """
    if isinstance(store, HidesTasks):
        store.make_unreadable(task.task_id)
        return
    stored = codec.head_item
    with patch.object(codec, "head_item", lambda head: {**stored(head), "format": 9}):
        store.apply(Revise(task, touched(task)))


def race(pool: ThreadPoolExecutor, store: TaskStore, changes: Sequence[TaskChange]) -> list[Task | None]:
    """Apply all changes at once, one in each thread; None where one was refused."""
    line = threading.Barrier(len(changes))

    def run(change: TaskChange) -> Task | None:
        line.wait(60)
        try:
            return store.apply(change)
        except (TaskExists, StaleTask, RevisionConflict):
            return None

    return list(pool.map(run, changes))
