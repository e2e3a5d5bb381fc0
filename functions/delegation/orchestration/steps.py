"""The steps of the state machine: each safe to run twice, each answering the whole input of the next state."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from delegation.orchestration.job_runs import JobRefused, JobRun, JobService, JobServiceUnavailable
from delegation.orchestration.step_input import MalformedStep, Step, execution_name
from delegation.tasks.errors import LeaseLost, TaskNotFound
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.transitions import held_by
from delegation.tasks.work.behaviors import Behaviors
from delegation.tasks.work.external_jobs import INLINE, SPARK
from delegation.tasks.work.lease_keeper import renew_every
from delegation.tasks.work.service import TaskService
from delegation.timestamps import isoformat

AFTER_DEADLINE: Final = timedelta(seconds=10)
"""An attempt inside a Lambda is lost this long after the invocation's deadline (DESIGN §4)."""
HAND_OVER_BEFORE: Final = timedelta(seconds=60)
"""An inline run starts no batch later than this before its deadline, or than a fifth of its time if that is less."""
MAX_TURNS: Final = 1_500
"""Heartbeats of one execution, over all its attempts: about nine events each, far below Step Functions' 25,000."""
ATTEMPTS_AN_EXECUTION: Final = 250
"""After as many attempts the next dispatch goes on: about 28 events each, of a parent that waits for its children."""
_SHORTEST_WAIT: Final = 5
_LONGEST_WAIT: Final = 60


def wait_seconds(age: timedelta, lost_timeout: timedelta) -> int:
    """The wait before the next heartbeat of a job of some age: 5 s, growing to 60 s, less where a lease is short.

    Progress is noted four times in a short lease (`runs.HeldRun`): a look as often finds every lease renewed in time.
    """
    usual = min(max(age.total_seconds() / 10, _SHORTEST_WAIT), _LONGEST_WAIT)
    return max(int(min(usual, lost_timeout.total_seconds() / 4)), 1)


def last_sign_of_life(run: JobRun, task: Task, now: datetime) -> datetime | None:
    """When a job was last known to move: now while it waits to start, then its start and the progress that it notes.

    None for one that has shown nothing in this attempt.
    """
    if run.is_waiting:
        return now
    since = task.lease_acquired_ts
    signs = [sign for sign in (run.started_at, task.progress_ts) if sign is not None and since and sign > since]
    return min(max(signs), now) if signs else None


class Steps:
    """Every step over the task service; `behaviors` and `jobs` only where a step works with them.

    `kinds` are the task types that this deployment knows; others are left to a newer one.
    """

    def __init__(
        self,
        tasks: TaskService,
        kinds: frozenset[str],
        *,
        behaviors: Behaviors | None = None,
        jobs: JobService | None = None,
    ) -> None:
        self._tasks = tasks
        self._kinds = kinds
        self._behaviors = behaviors or Behaviors([])
        self._jobs = jobs

    def acquire(self, step: Step, deadline: datetime) -> dict[str, Any]:
        """Take the lease for this execution, or find out whom to leave the task to.

        For Prepare too, which has as long as this step and then need not renew it: a write less in every life.
        """
        prepared = deadline + max(deadline - self._tasks.clock(), timedelta(0))
        try:
            task = self._tasks.get(step.task_id)
            if task.task_type not in self._kinds:
                return step.to("stop")
            task = self._tasks.acquire(step.task_id, step.execution, _until(prepared), task=task)
        except TaskNotFound:
            return step.to("stop")
        if task.lease_owner == step.execution:
            return replace(step, attempt=task.attempt_count).to("prepare")
        return self._wait_or_stop(step, task)

    def prepare(self, step: Step, deadline: datetime) -> dict[str, Any]:
        """Choose the engine; an attempt that fails here is given back by the behavior."""
        try:
            task = self._tasks.heartbeat(step.task_id, step.attempt, _until(deadline))
        except LeaseLost:
            return step.to("complete")
        if task.job_run_id is not None:
            # A continuation: this attempt's job runs already, and StartJob finds it.
            return step.to(SPARK)
        return step.to(self._behaviors[task.task_type].prepare(task) or "complete")

    def run_inline(self, step: Step, deadline: datetime) -> dict[str, Any]:
        """Do the work in this invocation."""
        try:
            task = self._tasks.heartbeat(step.task_id, step.attempt, _until(deadline), engine=INLINE)
        except LeaseLost:
            return step.to("complete")
        margin = min(HAND_OVER_BEFORE, (deadline - self._tasks.clock()) / 5)
        self._behaviors[task.task_type].run(task, hand_over_at=deadline - margin)
        return step.to("complete")

    def start_job(self, step: Step) -> dict[str, Any]:
        """Start this attempt's job run, once all runs of former attempts have ended."""
        try:
            task = held_by(self._tasks.get(step.task_id), step.attempt)
            former = [run for run in self._jobs_.active(f"{step.task_id}-") if run.name != step.job]
            for run in former:
                self._jobs_.cancel(run.id)
            if former:
                self._tasks.heartbeat(step.task_id, step.attempt, self._lasting, engine=SPARK)
                return step.to("start-again", wait_seconds=_SHORTEST_WAIT)
            arguments = ["--task-id", step.task_id, "--attempt", str(step.attempt)]
            # A known one is not started again: a continuation comes a day later, and no client token lasts for ever.
            run_id = task.job_run_id or self._jobs_.start(step.job, arguments)
            self._tasks.heartbeat(step.task_id, step.attempt, self._lasting, engine=SPARK, job_run_id=run_id)
        except LeaseLost:
            self._end_own(step)
            return step.to("complete")
        except JobRefused as refused:
            self.give_back(step, AttemptError(refused.code, str(refused), ErrorClass.PERMANENT))
            return step.to("complete")
        return step.to("heartbeat", wait_seconds=_SHORTEST_WAIT)

    def heartbeat(self, step: Step) -> dict[str, Any]:
        """Renew the lease if the job waits to start, or as far as its last sign of life; a hung job is lost.

        A lease that lasts well beyond the next look is left as it is, as a worker leaves it (`leases.renew_every`).
        """
        step = replace(step, turn=step.turn + 1)
        task = self._tasks.get(step.task_id)
        if not task.is_held or task.attempt_count != step.attempt:
            return step.to("complete")
        if task.lease_owner != step.execution:
            return self._continued(step, task)
        run = self._jobs_.get(task.job_run_id) if task.job_run_id else None
        if run is None or run.has_ended:
            return step.to("complete")
        if task.cancel_requested and run.is_waiting:
            self._cancel(run)  # one that runs sees the request itself, and tells what it did
        now = self._tasks.clock()
        try:
            sign = last_sign_of_life(run, task, now)
            if sign is not None and self._is_to_be_renewed(task, now):
                task = self._tasks.heartbeat(step.task_id, step.attempt, lambda _now: self._lasting(sign))
            if task.lost_not_before is not None and now >= task.lost_not_before:
                self._cancel(run)
                self._tasks.presume_lost(step.task_id)
                return step.to("complete")
            if step.turn >= MAX_TURNS:
                self._tasks.hand_to_next_execution(
                    step.task_id, step.attempt, step.execution, lambda n: execution_name(step.task_id, n)
                )
                return step.to("continue")
        except LeaseLost:
            return step.to("complete")
        return step.to("heartbeat", wait_seconds=self._wait_seconds(task, now))

    def complete(self, step: Step) -> dict[str, Any]:
        """Read the attempt's outcome; one that ended without any is given back."""
        task = self._tasks.find(step.task_id)
        if task is None:
            return step.to("stop")
        if task.is_held and task.attempt_count == step.attempt:
            task = self.give_back(step, self._why_it_ended(task))
        match task.status:
            case Status.SUCCESS:
                return step.to("succeeded")
            case Status.FAILURE:
                return step.to("failed")
            case Status.SUBMITTED if task.recurrence_seconds is not None:
                return step.to("stop")  # the sweeper starts the next run: an execution's history has an end
            case Status.RETRY_SCHEDULED if task.attempt_count % ATTEMPTS_AN_EXECUTION == 0:
                return step.to("stop")
            case _:
                return self._wait_or_stop(step, task)

    def make_due(self, step: Step) -> dict[str, Any]:
        """Give the task back if this execution still holds it, so that the sweeper finds it due.

        Raises JobServiceUnavailable while its job cannot be ended; at last the lease runs out, and the sweeper ends it.
        """
        task = self._tasks.find(step.task_id)
        if task is None:
            return step.to("stop")
        if task.is_held and task.lease_owner == step.execution:
            if not self._tasks.end_external_jobs(task):
                raise JobServiceUnavailable(f"a job run of task {step.task_id} may go on")
            error = AttemptError("EXECUTION_INTERRUPTED", "a step of the state machine failed", ErrorClass.TRANSIENT)
            self.give_back(replace(step, attempt=task.attempt_count), error)
        return step.to("due")

    def _end_own(self, step: Step) -> None:
        """End a job that was started too late: who found this attempt lost may have looked for it before."""
        try:
            runs = self._jobs_.active(step.job)
        except JobRefused:
            return  # as in `_cancel`
        for run in runs:
            if run.name == step.job:
                self._cancel(run)

    def _cancel(self, run: JobRun) -> None:
        """End a job before its attempt is over: the next may be one that looks for no former jobs."""
        try:
            self._jobs_.cancel(run.id)
        except JobRefused:
            return  # what it still does is refused by its attempt number

    @property
    def _jobs_(self) -> JobService:
        if self._jobs is None:
            raise MalformedStep("this function has no job service")
        return self._jobs

    def _continued(self, step: Step, task: Task) -> dict[str, Any]:
        """A heartbeat repeated after the attempt was handed on: the queue may not have taken the message."""
        if step.turn < MAX_TURNS or task.lease_owner != execution_name(step.task_id, task.dispatch_count):
            return step.to("stop")
        self._tasks.send_again(task)
        return step.to("continue")

    def _is_to_be_renewed(self, task: Task, now: datetime) -> bool:
        """Whether the next look may come later than a renewal is due; one that is early costs a write for nothing."""
        if task.recheck_not_before is None:
            return True
        lease = self._tasks.lease
        due = task.recheck_not_before - lease.clock_drift - renew_every(lease)
        return now + timedelta(seconds=self._wait_seconds(task, now)) >= due

    def _wait_seconds(self, task: Task, now: datetime) -> int:
        age = now - task.lease_acquired_ts if task.lease_acquired_ts else timedelta(0)
        return wait_seconds(age, self._tasks.lease.lost_timeout)

    def _lasting(self, now: datetime) -> Lease:
        return Lease.lasting(self._tasks.lease.lost_timeout, now)

    def give_back(self, step: Step, error: AttemptError) -> Task:
        """Return the step's attempt; the task as it is then, also when another process has it."""
        try:
            return self._tasks.give_back(step.task_id, step.attempt, error)
        except LeaseLost:
            return self._tasks.get(step.task_id)

    def _why_it_ended(self, task: Task) -> AttemptError:
        run = self._jobs_.get(task.job_run_id) if task.job_run_id and self._jobs is not None else None
        if run is None:
            return AttemptError("ATTEMPT_ENDED", "the attempt ended without an outcome", ErrorClass.TRANSIENT)
        text = f"job run {run.id} ended as {run.state} without an outcome. {run.details}".strip()
        return AttemptError("JOB_FAILED", text, ErrorClass.TRANSIENT)

    @staticmethod
    def _wait_or_stop(step: Step, task: Task) -> dict[str, Any]:
        """Waits are rounded up to whole seconds: Step Functions truncates, and would be back before the task is due.

        AWS Step Functions developer guide, "Wait workflow state": "considers the time value up to seconds".
        """
        if task.next_scheduled_run_ts is None:
            return step.to("stop")
        rounded_up = (task.next_scheduled_run_ts + timedelta(seconds=1, microseconds=-1)).replace(microsecond=0)
        return step.to("wait", wait_until=isoformat(rounded_up))


def _until(deadline: datetime) -> Callable[[datetime], Lease]:
    return lambda now: Lease.until(deadline + AFTER_DEADLINE, now)
