"""Choosing the engine of upkeep of a table, and how one attempt hands over to a Spark job.

An attempt begins inline. If too many files are left once the references are known, it hands them over to Spark; a
process without Spark then deletes them inline after all.
"""

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from delegation.attempts.details import HandedDetails
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import HANDED_OVER, held_by
from delegation.tasks.work.parts.hooks import INLINE, SPARK
from delegation.tasks.work.service import TaskService

logger = logging.getLogger(__name__)
_UNFINISHED: Final = 2
"""Attempts after which one that had too little time again is repeated with Spark, whose driver has enough."""


class EngineSettings(Protocol):
    """The most files that are deleted inline, and whether there is Spark."""

    @property
    def inline_max_files(self) -> int: ...

    @property
    def has_spark(self) -> bool: ...


def engine_of(task: Task, settings: EngineSettings) -> str:
    """Return the engine of an attempt, by what the task says of those before; raise MalformedRecord."""
    details = HandedDetails.of(task)
    without_plan = not details.plan_segments and _is_stalled(task)
    return SPARK if settings.has_spark and (details.next_engine == SPARK or without_plan) else INLINE


def spark_above(task: Task, settings: EngineSettings) -> int | None:
    """Return with how many files left an inline attempt hands them over; None: it deletes all; raise MalformedRecord.

    An attempt that is to run with Spark and runs inline is of a process that has none.
    """
    if not settings.has_spark or engine_of(task, settings) == SPARK:
        return None
    return 0 if _is_stalled(task) else settings.inline_max_files


def _is_stalled(task: Task) -> bool:
    return task.error_code == HANDED_OVER and task.attempt_count > _UNFINISHED


@dataclass(frozen=True, slots=True)
class HandOver:
    """Records that an attempt hands over, and that a job took over."""

    tasks: TaskService

    def begin_job(self, task_id: str, attempt: int) -> Task:
        """Return the task of a job that begins; raise LeaseLost if the attempt does not hold it any more."""
        task = held_by(self.tasks.reads.get(task_id), attempt)
        joined = self.tasks.types.labels(task).correlation_id
        fields = {"action": "job", "task_id": task_id, "attempt": attempt, "correlation_id": joined}
        logger.info("job began", extra=fields)
        return task

    def note(self, task: Task, engine: str | None) -> Task:
        """Record which engine the attempt hands over to; raise LeaseLost."""

        def decide(current: Task, _now: datetime) -> Task:
            return held_by(current, task.attempt_count).with_details({"next_engine": engine})

        return self.tasks.holding(task).writes.change(task.task_id, decide)
