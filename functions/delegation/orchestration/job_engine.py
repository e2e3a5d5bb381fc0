"""Spark jobs of a worker: the steps of the state machine, run in a loop with their waits."""

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeVar

from delegation.orchestration.failures import Step
from delegation.orchestration.job_runs import ExternalJobRuns, JobService, JobServiceUnavailable
from delegation.orchestration.steps import Steps
from delegation.tasks.errors import OutcomeUnknown, StoreUnavailable
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.transitions import HANDED_OVER
from delegation.tasks.work.service import TaskService

T = TypeVar("T")
logger = logging.getLogger(__name__)
_TRANSIENT: Final = (JobServiceUnavailable, StoreUnavailable, OutcomeUnknown)
_PAUSE: Final = timedelta(seconds=5)
_STARTS: Final = 7
"""Failed starts of a job that end the attempt, as many as in the state machine."""


class JobEngine:
    """Runs a held task's job with the state machine's steps StartJob, Heartbeat and Complete. A worker that stops
    cancels the job and hands the task over; the next attempt continues from the plan and its marks."""

    def __init__(
        self, tasks: TaskService, jobs: JobService, *, wait: Callable[[threading.Event, float], object] | None = None
    ) -> None:
        """`wait` waits for some seconds, or until the event is set."""
        self._tasks = tasks
        # Not the ExternalJobs of `tasks`: those may pause after a failed call, and a stopping worker calls only once.
        self._job_runs = ExternalJobRuns(jobs)
        self._steps = Steps(tasks, frozenset(), jobs=jobs)
        self._wait = wait or threading.Event.wait

    def drive(self, task: Task, stopping: threading.Event) -> Task:
        step = Step(task.task_id, task.dispatches.count, attempt=task.attempt_count, holder=task.lease.owner)
        following = {
            "start-again": self._steps.start_job,
            "heartbeat": self._steps.heartbeat,
            "complete": self._steps.complete,
        }
        act = self._steps.start_job
        unstarted = 0
        while not stopping.is_set():
            answer = self._tried(act, step)
            if answer is None:
                unstarted += act == following["start-again"]
                if unstarted >= _STARTS:
                    unstarted = 0
                    ended = self._tried(self._steps.give_up_start, step)
                    if ended is not None and not (ended.is_held and ended.attempt_count == step.attempt):
                        return ended
                self._wait(stopping, self._capped(_PAUSE.total_seconds()))
                continue
            if answer["next"] not in following:
                return self._tasks.reads.get(task.task_id)
            act = following[answer["next"]]
            self._wait(stopping, self._capped(answer.get("wait_seconds", 0)))
        return self._hand_over(step)

    def _tried(self, act: Callable[[Step], T], step: Step) -> T | None:
        """Do one step; return None if it has to be repeated, as the state machine's Retry would."""
        try:
            return act(step)
        except _TRANSIENT as error:
            logger.warning("a step failed and is repeated", extra={"task_id": step.task_id, "error_code": error.code})
            return None

    def _capped(self, seconds: float) -> float:
        """Return the wait, but at most a quarter of the lease."""
        return min(seconds, (self._tasks.policies.lease.lost_timeout / 4).total_seconds())

    def _hand_over(self, step: Step) -> Task:
        """Cancel the job and hand the task over; if that fails, the attempt will be found lost."""
        task = self._tasks.reads.get(step.task_id)
        if not task.is_held or task.attempt_count != step.attempt or not self._job_runs.end(task):
            return task
        error = AttemptError(
            HANDED_OVER, "the worker stopped. The next attempt continues the work", ErrorClass.HANDED_OVER
        )
        return self._steps.end_attempt(step, error)
