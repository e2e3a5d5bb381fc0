"""Tasks of every status, made with the package's own transitions."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from delegation.tasks.life import transitions as t
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import PARTS, Status, Task

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
    """Return the fields of a task, with those that are no fields of Task among its details."""
    own = {name: value for name, value in fields.items() if name in Task.model_fields}
    more = {name: value for name, value in fields.items() if name not in own}
    if misplaced := more.keys() & _OF_PARTS:
        raise ValueError(f"fields of a part are set with the part: {sorted(misplaced)}")
    return {**own, "details": {**own.get("details", {}), **more}} if more else own


def stamp(before: Task, after: Task) -> Task:
    """Return a decided task, ready to be written after `before`."""
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
    """Return a head rewritten within its version; what is no field of a task is a detail."""
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
