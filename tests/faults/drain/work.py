"""The work of the drain: a task that takes as long as its payload says, in a Lambda or in a Spark job."""

import json
from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from delegation.orchestration.failures import Step
from delegation.orchestration.job_runs import JobRun
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.lanes import Traits
from delegation.tasks.life.model import Task
from delegation.tasks.work.hooks import INLINE, SPARK

if TYPE_CHECKING:
    from tests.faults.drain.site import DispatchedTasks

TASK_TYPE: Final = "TABLE_PURGE"
TASK_TYPES: Final = frozenset({TASK_TYPE})
LONGEST_INLINE: Final = 800
"""Seconds; longer work becomes a Spark job."""
_PROGRESS: Final = timedelta(minutes=20)
_FIRST_SIGN: Final = 30.0
"""Seconds after which a job writes for the first time that it works."""


def seconds_of(task: Task) -> float:
    return float(json.loads(task.task_payload)["seconds"])


def traits_of(payload: str) -> Traits:
    stated = json.loads(payload)
    return Traits(stated["tenant"], stated["bucket"], is_small=stated["small"])


class Sized:
    """TaskBehavior whose work ends after the time that the payload states; notes how long each task waited."""

    task_types = TASK_TYPES

    def __init__(self, site: "DispatchedTasks") -> None:
        self._site = site
        self.waited: dict[str, timedelta] = {}
        self._working: dict[tuple[str, int], float] = {}

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        self.waited.setdefault(task.task_id, self._site.clock() - task.received_timestamp)
        return INLINE if seconds_of(task) <= LONGEST_INLINE else SPARK

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        self._working[task.task_id, task.attempt_count] = seconds_of(task)
        return task

    def working(self, step: Step) -> Generator[timedelta, None, None]:
        """The rest of the invocation that called `run`: the work, and the write of its outcome."""
        seconds = self._working.pop((step.task_id, step.attempt), None)
        if seconds is not None:
            yield timedelta(seconds=seconds)
            self.finish(step.task_id, step.attempt)

    def finish(self, task_id: str, attempt: int) -> None:
        try:
            self._site.tasks.leases.start(task_id, attempt, effects=True)
            self._site.tasks.leases.succeed(task_id, attempt, "done")
        except LeaseLost:
            return


class Jobs:
    """JobService whose runs report progress and end after the time of their task."""

    def __init__(self, site: "DispatchedTasks") -> None:
        self._site = site
        self._runs: dict[str, JobRun] = {}
        self.lists = 0

    def start(
        self, name: str, arguments: Sequence[str], folders: Sequence[str] = (), *, with_jars: bool = False
    ) -> str:
        if name not in self._runs:
            self._runs[name] = JobRun(name, name, "RUNNING", started_at=self._site.clock())
            self._work_on(name, seconds_of(self._site.tasks.reads.get(name.rpartition("-")[0])), first=_FIRST_SIGN)
        return name

    def _work_on(self, name: str, left: float, first: float = _PROGRESS.total_seconds()) -> None:
        task_id, _, attempt = name.rpartition("-")
        part = min(left, first)

        def later() -> None:
            if self._runs[name].has_ended:
                return
            if part < left:
                self._site.tasks.leases.note(task_id, int(attempt), progress_ts=self._site.clock())
                self._work_on(name, left - part)
            else:
                self._site.behavior.finish(task_id, int(attempt))
                self._runs[name] = replace(self._runs[name], state="SUCCESS")

        self._site.after(timedelta(seconds=part), later)

    def get(self, run_id: str) -> JobRun | None:
        return self._runs.get(run_id)

    def active(self, prefix: str, *, as_of: datetime | None = None) -> Sequence[JobRun]:
        self.lists += 1
        own = (self._runs.get(f"{prefix}{n}") for n in range(1, 9))
        return [run for run in own if run is not None and not run.has_ended]

    def cancel(self, run_id: str) -> None:
        self._runs[run_id] = replace(self._runs[run_id], state="CANCELLED")
