"""Results too large for the task's record: objects in the record bucket, which the record names with their hash."""

import hashlib
from typing import Final, Protocol

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from polaris_common.errors import DelegationError

MOST_RESULT: Final = 65_536
"""Bytes of a result in the record, twice for a parent: while it awaits its children, and as its outcome.

DynamoDB stores at most 400 KB as one item (its Developer Guide, "Quotas").
"""
_KEPT: Final = "object:"
"""Begins a pending result that is the key of an object; a JSON result never begins with it."""


class ResultStore(Protocol):
    """The record bucket, as the plan stores of `storage` are; its errors are DelegationErrors."""

    def put(self, key: str, data: bytes) -> None: ...

    def get(self, key: str) -> bytes:
        """Return an object; raises an error when there is none."""


def pending(results: ResultStore | None, task: Task, result: str) -> str:
    """Return what a record holds of a result until the end: the JSON text, or the key of its object. The object is
    stored first; its name is made of attempt and content, so a repeat stores the same. Raises DelegationError
    (RESULT_TOO_LARGE) without a bucket."""
    data = result.encode()
    if len(data) <= MOST_RESULT:
        return result
    if results is None:
        raise DelegationError(
            f"the result has {len(data):,} bytes of at most {MOST_RESULT:,} in the task table; set "
            "DELEGATION_PLAN_BUCKET in the process that runs the task, or return less, and retry the task",
            code="RESULT_TOO_LARGE",
            task_id=task.task_id,
        )
    key = f"results/{task.task_id}/{task.attempt_count}-{hashlib.sha256(data).hexdigest()}.json"
    results.put(key, data)
    return _KEPT + key


def outcome(pending_result: str | None) -> dict[str, str | None]:
    if pending_result is not None and pending_result.startswith(_KEPT):
        return {"result_extended": None, "result_location": pending_result.removeprefix(_KEPT)}
    return {"result_extended": None if pending_result == "null" else pending_result, "result_location": None}


def read(results: ResultStore | None, task: Task) -> str | None:
    """Return the JSON text of a task's result, None without one; raises MalformedRecord when it cannot be the one."""
    if task.result_location is None:
        return task.result_extended
    if results is None:
        raise MalformedRecord(
            f"task {task.task_id}: its result is {task.result_location} in the record bucket, which this process does "
            "not know: set DELEGATION_PLAN_BUCKET"
        )
    data = results.get(task.result_location)
    if hashlib.sha256(data).hexdigest() not in task.result_location:
        raise MalformedRecord(f"task {task.task_id}: the result {task.result_location} was changed in the bucket")
    return data.decode()
