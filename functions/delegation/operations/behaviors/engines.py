"""Choosing the engine of upkeep of a table, and how one attempt hands over to a Spark job.

An attempt begins inline. If too many files are left once the references are known, it hands them over to Spark; a
process without Spark then deletes them inline after all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from delegation.attempts.details import HandedDetails
from delegation.operations.behaviors.outcome import KILLED_TWICE, check_killed
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import HANDED_OVER, held_by
from delegation.tasks.work.parts.hooks import INLINE, SPARK
from delegation.tasks.work.work_errors import AttemptRunner
from delegation.worksets.engines.choice import HandedToSpark

_UNFINISHED: Final = 2
"""Attempts after which one that had too little time again is repeated with Spark, whose driver has enough."""


class EngineSettings(Protocol):
    """The most files that are deleted inline, and whether there is Spark."""

    @property
    def inline_max_files(self) -> int: ...

    @property
    def has_spark(self) -> bool: ...


def engine_of(task: Task, settings: EngineSettings) -> str:
    """Return the engine of an attempt, by what the task states about those before; raise MalformedRecord."""
    details = HandedDetails.of(task)
    unable = task.killed.count >= KILLED_TWICE or (not details.plan_segments and _is_stalled(task))
    return SPARK if settings.has_spark and (details.next_engine == SPARK or unable) else INLINE


def spark_above(task: Task, settings: EngineSettings) -> int | None:
    """Return with how many files left an inline attempt hands them over; None: it deletes all; raise MalformedRecord.

    An attempt that is to run with Spark and runs inline is of a process that has none.
    """
    if not settings.has_spark or engine_of(task, settings) == SPARK:
        return None
    return 0 if _is_stalled(task) else settings.inline_max_files


def _is_stalled(task: Task) -> bool:
    return task.error_code == HANDED_OVER and task.attempt_count > _UNFINISHED


Outcome = tuple[str, Mapping[str, Any], Mapping[str, Any]]
"""What a success writes: the summary, details of the operation's own, and fields of the record."""


@dataclass(frozen=True, slots=True)
class UpkeepRuns:
    """Runs the attempts at upkeep of tables, in this process or in a Spark job, with the runner of all attempts."""

    runner: AttemptRunner
    settings: EngineSettings

    def prepare(self, task: Task) -> str:
        """See TaskBehavior.prepare: inline, unless the attempt before handed the rest over to Spark."""
        try:
            return engine_of(task, self.settings)
        except MalformedRecord:  # the attempt ends with it
            return INLINE

    def run(self, task: Task, work: Callable[[int | None], Outcome]) -> Task:
        """Do the work in this process and record the outcome, of a hand-over to Spark too.

        `work` is called with the number of files above which the attempt hands over what is left (`spark_above`).
        """

        def done() -> Task:
            check_killed(task, has_spark=self.settings.has_spark)
            try:
                return self.runner.succeed(task, *work(spark_above(task, self.settings)))
            except HandedToSpark:
                # Before the attempt ends: one that is lost in between is continued with Spark, too.
                self._continues_with(SPARK, task)
                raise

        return self.runner.run(task, done)

    def run_job(self, task_id: str, attempt: int, work: Callable[[Task], Outcome]) -> Task:
        """Do the work in a Spark job, whose lease another process renews while it makes progress.

        What follows a failure is chosen anew: an inline attempt waits for the references, and hands over again.
        Raises LeaseLost if the attempt no longer holds the task. The job service reports the start.
        """
        task = self.runner.begin_job(task_id, attempt)

        def done() -> Task:
            held = self._continues_with(None, task)
            return self.runner.succeed(held, *work(held))

        return self.runner.run(task, done)

    def _continues_with(self, engine: str | None, task: Task) -> Task:
        """Record the engine of the attempt after this one, None if that is open; raise LeaseLost."""

        def decide(current: Task, _now: datetime) -> Task:
            return held_by(current, task.attempt_count).with_details({"next_engine": engine})

        return self.runner.tasks.holding(task).writes.change(task.task_id, decide)
