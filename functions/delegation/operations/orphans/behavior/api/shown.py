"""What an answer about a removal of orphan files shows beside the record."""

from typing import Final

from delegation.operations.orphans.behavior.details import OrphanDetails
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.tasks.life.task_type import Measured

FILES: Final = "files"


def measured(task: Task) -> Measured | None:
    """Return the files deleted of those planned; None for details that this release cannot read."""
    try:
        details = OrphanDetails.of(task)
    except MalformedRecord:
        return None
    return Measured(details.files_deleted, details.files_planned, FILES)


def receipt_key(task: Task) -> str | None:
    """Return the key of the receipt in the plan bucket, None without a plan; raises MalformedRecord.

    It is beside the plan that was executed last (`orphans.receipt`, which the API does not load).
    """
    segments = OrphanDetails.of(task).plan_segments
    return f"{segments[-1].id}/receipt.json" if segments else None
