"""Choosing the engine of an expiry, by what its task says of the attempts before.

An attempt that does not know the size of the plan runs inline. If too many files are left once the references are
known, it hands them over to Spark; a process without Spark then deletes them inline after all.
"""

from typing import Final

from delegation.operations.expiry.behavior.details import ExpiryDetails
from delegation.operations.expiry.context import ExpirySettings
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import HANDED_OVER
from delegation.tasks.work.parts.hooks import INLINE, SPARK

_UNFINISHED: Final = 2
"""Attempts after which one that had too little time again is repeated with Spark, whose driver has enough."""


def engine_of(task: Task, settings: ExpirySettings) -> str:
    """Return the engine of an attempt; raise MalformedRecord."""
    details = ExpiryDetails.of(task)
    without_plan = not details.plan_segments and _is_stalled(task)
    return SPARK if settings.has_spark and (details.next_engine == SPARK or without_plan) else INLINE


def spark_above(task: Task, settings: ExpirySettings) -> int | None:
    """Return with how many files left an inline attempt hands them over; None: it deletes all; raise MalformedRecord.

    An attempt that is to run with Spark and runs inline is of a process that has none.
    """
    if not settings.has_spark or engine_of(task, settings) == SPARK:
        return None
    return 0 if _is_stalled(task) else settings.inline_max_files


def _is_stalled(task: Task) -> bool:
    return task.error_code == HANDED_OVER and task.attempt_count > _UNFINISHED
