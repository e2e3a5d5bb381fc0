"""Tasks of every status, made with the package's own transitions, and helpers for the checks of a TaskStore."""

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, runtime_checkable
from unittest.mock import patch

import pytest

from delegation.tasks.errors import RevisionConflict, StaleTask, TaskExists
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import PARTS, Status, Task
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import Advance, Create, Revise, TaskChange, TaskStore

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
_OF_PARTS = {flat for fields in PARTS.values() for flat in fields.values()}


def nonce() -> str:
    return str(uuid.uuid4())


def submitted(task_id: str | None = None, **fields: Any) -> Task:
    """Return version 1 of a task, accepted at NOW, with a new nonce."""
    values: dict[str, Any] = {
        "task_id": task_id or str(uuid.uuid4()),
        "task_type": "EXAMPLE",
        "task_payload": '{"table": "orders"}',
        "received_timestamp": NOW,
        "last_status_change_ts": NOW,
        "created_ts": NOW,
        "next_scheduled_run_ts": NOW,
        "due_at": NOW + MINUTE,
        "nonce": nonce(),
    }
    return Task(**{**values, **split_details(fields)})


def split_details(fields: dict[str, Any]) -> dict[str, Any]:
    """Separate the fields of a task from other values, which become its details."""
    own = {name: value for name, value in fields.items() if name in Task.model_fields}
    more = {name: value for name, value in fields.items() if name not in own}
    if misplaced := more.keys() & _OF_PARTS:
        raise ValueError(f"{sorted(misplaced)} belong to parts of a task, such as `lease`. Set the whole part instead")
    return {**own, "details": {**own.get("details", {}), **more}} if more else own


def stamp(before: Task, after: Task) -> Task:
    """Return a decided task with the revision and nonce for a write after `before`."""
    return after.evolve(revision=before.revision + 1, nonce=nonce())


def acquired(task: Task, owner: str = "worker-1", now: datetime = NOW, lease: timedelta = HOUR) -> Task:
    after = t.acquire(task, owner, now, Lease.lasting(lease, now))
    return stamp(task, after)


def started(task: Task, now: datetime = NOW, *, effects: bool = False) -> Task:
    return stamp(task, t.start(task, task.attempt_count, now, effects=effects))


def succeeded(task: Task, now: datetime = NOW) -> Task:
    return stamp(task, t.succeed(task, task.attempt_count, now, summary="deleted 3 files"))


def failed(task: Task, now: datetime = NOW, code: str = "STORAGE_DENIED") -> Task:
    return stamp(task, t.fail(task, now, code=code, summary="access denied"))


def retried(task: Task, now: datetime = NOW, at: datetime | None = None) -> Task:
    after = t.schedule_retry(task, now, at=at or now + MINUTE, grace=MINUTE, code="TIMEOUT", summary="timed out")
    return stamp(task, after)


def resubmitted(task: Task, now: datetime = NOW) -> Task:
    restarted: dict[str, Any] | None = {} if task.status is Status.SUCCESS else None
    after = t.resubmit(task, now, payload=task.task_payload, synchronous=False, grace=MINUTE, restarted=restarted)
    return stamp(task, after)


def touched(task: Task, **fields: Any) -> Task:
    """Return a head rewritten within its version; unknown fields become details."""
    changes = split_details(fields)
    return stamp(task, task.with_details(changes.pop("details", {}), **changes))


def in_status(status: Status, **fields: Any) -> Task:
    """Return a task that reached a status the ordinary way; `fields` are those of its first version."""
    first = submitted(**fields)
    match status:
        case Status.SUBMITTED:
            return first
        case Status.ACQUIRING_RESOURCES:
            return acquired(first)
        case Status.RUNNING:
            return started(acquired(first), effects=True)
        case Status.RETRY_SCHEDULED:
            return retried(started(acquired(first)))
        case Status.SUCCESS:
            return succeeded(started(acquired(first), effects=True))
        case Status.FAILURE:
            return failed(started(acquired(first)))


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
    """Assert that a change is refused with exactly this error; return the head that the refusal carries."""
    with pytest.raises(error) as refusal:
        store.apply(change)
    assert refusal.type is error
    shown: Task | None = refusal.value.stored  # type: ignore[attr-defined]
    return shown


def written_by_a_newer_release(store: TaskStore, task: Task) -> None:
    """Rewrite the head of a stored task in a format that this release cannot read. A store without items of
    `delegation.tasks.stores.codec`, such as the one in memory, has `make_unreadable(task_id)`."""
    if isinstance(store, HidesTasks):
        store.make_unreadable(task.task_id)
        return
    stored = codec.head_item
    with patch.object(codec, "head_item", lambda head: {**stored(head), "format": 9}):
        store.apply(Revise(task, touched(task)))


def race(pool: ThreadPoolExecutor, store: TaskStore, changes: Sequence[TaskChange]) -> list[Task | None]:
    """Apply all changes at once, each in its own thread; None for a refused one."""
    line = threading.Barrier(len(changes))

    def run(change: TaskChange) -> Task | None:
        line.wait(60)
        try:
            return store.apply(change)
        except (TaskExists, StaleTask, RevisionConflict):
            return None

    return list(pool.map(run, changes))
