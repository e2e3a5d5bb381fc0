"""Tasks of every status as the package's contract suites build them; here they are purges."""

from typing import Any

from delegation.tasks.contract import support
from delegation.tasks.contract.support import (
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    acquired,
    failed,
    nonce,
    resubmitted,
    retried,
    split_details,
    stamp,
    started,
    succeeded,
    touched,
)
from delegation.tasks.life.model import Status, Task
from tests.kit.clocks import Clock

__all__ = [
    "HOUR",
    "MINUTE",
    "NOW",
    "SECOND",
    "Clock",
    "acquired",
    "failed",
    "in_status",
    "nonce",
    "resubmitted",
    "retried",
    "split_details",
    "stamp",
    "started",
    "submitted",
    "succeeded",
    "touched",
]


def submitted(task_id: str | None = None, **fields: Any) -> Task:
    """Return version 1 of a purge, accepted at NOW, with a new nonce."""
    return support.submitted(task_id, **{"task_type": "TABLE_PURGE", **fields})


def in_status(status: Status, **fields: Any) -> Task:
    """Return a purge that reached a status the ordinary way; `fields` are those of its first version."""
    return support.in_status(status, **{"task_type": "TABLE_PURGE", **fields})
