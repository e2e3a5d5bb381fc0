"""What fits into a task's record: DynamoDB stores at most 400 KB as one item (its Developer Guide, "Quotas")."""

from typing import Final

from delegation.errors import DelegationError

MOST_PAYLOAD: Final = 131_072
"""Bytes of a task's payload, which every version of the task holds."""
MOST_RESULT: Final = 65_536
"""Bytes of a result in the record, twice for a parent: while it awaits its children, and as its outcome."""


def require_payload(task_type: str, payload: str) -> str:
    """Return a payload that fits beside result, report and error texts.

    Raises DelegationError (TASK_PAYLOAD_TOO_LARGE).
    """
    size = len(payload.encode())
    if size > MOST_PAYLOAD:
        raise DelegationError(
            f"the payload of a {task_type} has {size:,} bytes of at most {MOST_PAYLOAD:,}; store what is large "
            "elsewhere and pass its name",
            code="TASK_PAYLOAD_TOO_LARGE",
        )
    return payload


def fits_record(result: str) -> bool:
    """Return whether a result is kept in the task's record."""
    return len(result.encode()) <= MOST_RESULT
