"""What the API shows of a purge beyond what every task has: how far it is, and what it deleted."""

from typing import Final

from delegation.operations.purge.behavior.details import PurgeDetails
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.tasks.life.task_type import Measured
from delegation.wire.responses import ExecutionResult, KeptFiles
from delegation.worksets import attempt

FILES: Final = "files"


def measured(task: Task) -> Measured | None:
    """Return the files deleted of those planned; None for details that this release cannot read."""
    try:
        details = PurgeDetails.of(task)
    except MalformedRecord:
        return None
    return Measured(details.files_deleted, details.files_planned, FILES, details.files_per_second)


def execution_result(task: Task) -> ExecutionResult:
    """Return the totals of a purge that succeeded; raises MalformedRecord."""
    details = PurgeDetails.of(task)
    return ExecutionResult(
        files_deleted=details.files_deleted,
        bytes_deleted=details.bytes_deleted,
        files_kept=details.files_kept,
        findings=tuple(KeptFiles(code=one.code, count=one.count) for one in details.findings),
    )


def receipt_key(task: Task) -> str | None:
    """Return the key of the receipt in the plan bucket, None without a plan; raises MalformedRecord."""
    segments = PurgeDetails.of(task).plan_segments
    return attempt.receipt_key(segments[-1].id) if segments else None
