"""What follows when attempts of a task are killed again and again: Spark, or the end of the task."""

from typing import Final

from delegation.attempts.details import PlanDetails
from delegation.errors import GuardRefused
from delegation.tasks.life.hand_overs import MEASURED
from delegation.tasks.life.model import Task

KILLED_TWICE: Final = 2
"""Attempts killed without progress between them after which no other one in a function is tried."""


def check_killed(task: Task, *, has_spark: bool) -> None:
    """Raise GuardRefused (TOO_LARGE_FOR_FUNCTION) if attempts are killed and the next one would run in a function."""
    if task.killed.count < KILLED_TWICE or has_spark:
        return
    raise too_large(task, "set delegation:emr-subnet-ids, so that Spark runs it, or give its process more memory")


def too_large(task: Task, action: str) -> GuardRefused:
    """Return the error with the size that the attempts measured before they were killed."""
    details = PlanDetails.of(task)
    listed = task.details.get("files_listed")
    sizes = [
        str(task.details[MEASURED]) if MEASURED in task.details else "",
        f"{listed} files listed" if listed else "",
        f"{details.files_planned} files planned" if details.files_planned else "",
    ]
    measured = ", ".join(filter(None, sizes)) or "nothing was measured before the metadata of the table was read"
    return GuardRefused(
        f"{task.killed.count} attempts were killed without progress between them, as processes are whose memory or "
        f"time runs out ({measured}); {action}, and retry",
        code="TOO_LARGE_FOR_FUNCTION",
    )
