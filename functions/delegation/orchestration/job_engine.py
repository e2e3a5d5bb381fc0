"""Spark jobs of a plain worker: the steps of the state machine, with the worker as the clock between them."""

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from delegation.orchestration.job_runs import ExternalJobRuns, JobService, JobServiceUnavailable
from delegation.orchestration.step_input import Step
from delegation.orchestration.steps import Steps
from delegation.tasks.errors import OutcomeUnknown, StoreUnavailable
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.transitions import HANDED_OVER
from delegation.tasks.work.service import TaskService

logger = logging.getLogger(__name__)
_PASSING: Final = (JobServiceUnavailable, StoreUnavailable, OutcomeUnknown)
_PAUSE: Final = timedelta(seconds=5)


class JobEngine:
    """Sees a held task's job run through, as StartJob, Heartbeat and Complete of the state machine do.

    A worker that stops ends the job and hands the task over; the next attempt goes on by the plan and its marks.
    """

    def __init__(
        self, tasks: TaskService, jobs: JobService, *, wait: Callable[[threading.Event, float], object] | None = None
    ) -> None:
        """`wait` is for seconds, or until the event is set."""
        self._tasks = tasks
        # Not those of `tasks`, which may rest: a stopping worker asks once and now.
        self._job_runs = ExternalJobRuns(jobs)
        self._steps = Steps(tasks, frozenset(), jobs=jobs)
        self._wait = wait or threading.Event.wait

    def drive(self, task: Task, stopping: threading.Event) -> Task:
        """See tasks.worker.Engine."""
        step = Step(task.task_id, task.dispatch_count, attempt=task.attempt_count, holder=task.lease_owner)
        following = {
            "start-again": self._steps.start_job,
            "heartbeat": self._steps.heartbeat,
            "complete": self._steps.complete,
        }
        act = self._steps.start_job
        while not stopping.is_set():
            answer = self._once(act, step)
            if answer is None:
                self._wait(stopping, self._at_most(_PAUSE.total_seconds()))
                continue
            if answer["next"] not in following:
                return self._tasks.get(task.task_id)
            act = following[answer["next"]]
            self._wait(stopping, self._at_most(answer.get("wait_seconds", 0)))
        return self._hand_over(step)

    def _once(self, act: Callable[[Step], dict[str, Any]], step: Step) -> dict[str, Any] | None:
        """One step; None when it has to be repeated, as the state machine's Retry would."""
        try:
            return act(step)
        except _PASSING as error:
            logger.warning("a step failed", extra={"task_id": step.task_id, "error_code": error.code})
            return None

    def _at_most(self, seconds: float) -> float:
        """Waits of the steps, shortened where the lease is short."""
        return min(seconds, (self._tasks.lease.lost_timeout / 4).total_seconds())

    def _hand_over(self, step: Step) -> Task:
        """End the job; while one cannot be reached the task is kept, and who finds it lost ends the job first."""
        task = self._tasks.get(step.task_id)
        if not task.is_held or task.attempt_count != step.attempt or not self._job_runs.end(task):
            return task
        error = AttemptError(HANDED_OVER, "the worker stops; the next attempt goes on", ErrorClass.HANDED_OVER)
        return self._steps.give_back(step, error)
