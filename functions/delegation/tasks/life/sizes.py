"""What fits into a task's record: DynamoDB stores at most 400 KB as one item (its Developer Guide, "Quotas")."""

from typing import Final

from delegation.tasks.errors import TaskPayloadTooLarge

MOST_PAYLOAD: Final = 131_072
"""Bytes of a task's payload, which every version of the task holds."""
MOST_RESULT: Final = 65_536
"""Bytes of a result in the record, twice for a parent: while it awaits its children, and as its outcome."""


def require_payload(task_type: str, payload: str) -> str:
    """Return a payload that fits beside result, report and error texts; raises TaskPayloadTooLarge."""
    size = len(payload.encode())
    if size > MOST_PAYLOAD:
        raise TaskPayloadTooLarge(task_type, size, MOST_PAYLOAD)
    return payload


def fits_record(result: str) -> bool:
    """Return whether a result is kept in the task's record."""
    return len(result.encode()) <= MOST_RESULT
