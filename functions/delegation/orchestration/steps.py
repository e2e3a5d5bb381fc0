"""The steps of the state machine; each may be repeated safely and returns the whole input of the next state."""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delegation.errors import RunPaused
from delegation.orchestration.failures import (
    StateFailure,
    Step,
    execution_name,
    has_no_job,
    job_not_started,
    malformed_step,
)
from delegation.orchestration.job_runs import JobRefused, JobRun, JobService, JobServiceUnavailable
from delegation.tasks.errors import (
    LeaseLost,
    TaskNotFound,
)
from delegation.tasks.life.declared import runs
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import (
    JOB_NOT_STARTED,
    START_REFUSED,
    AttemptError,
    ErrorClass,
    has_begun,
    past_deadline,
)
from delegation.tasks.life.policy import Lease
from delegation.tasks.life.transitions import held_by
from delegation.tasks.pauses import PAUSED, PAUSED_WAIT
from delegation.tasks.work.attempt_context import renew_every
from delegation.tasks.work.behaviors import Behaviors
from delegation.tasks.work.hooks import INLINE, SPARK
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.writes import other_lease
from delegation.timestamps import isoformat

logger = logging.getLogger(__name__)
AFTER_DEADLINE: Final = timedelta(seconds=10)
"""How long the lease of an attempt inside a Lambda outlasts the invocation's deadline."""
HAND_OVER_BEFORE: Final = timedelta(seconds=60)
"""How long before its deadline an inline run hands over; a fifth of its time if that is less."""
MAX_TURNS: Final = 1_500
"""Heartbeats of one execution, over all its attempts: about nine events each, of Step Functions' 25,000."""
ATTEMPTS_PER_EXECUTION: Final = 250
"""Attempts of one execution, for a parent that waits for its children: about 28 events each."""
REFUSALS_BORNE: Final = 10
"""Refused starts of one task from which on each fails its execution: Lambda refuses for longer than a peak lasts."""
GONE_AFTER: Final = timedelta(minutes=5)
"""How long after its start or last progress a job run counts as running although the job service does not know it."""
FORMER_ENDS_WITHIN: Final = timedelta(minutes=30)
"""How long an attempt waits for the end of a former attempt's job, which it cancelled."""
_SHORTEST_WAIT: Final = 5
_LONGEST_WAIT: Final = 60


def wait_seconds(age: timedelta, lost_timeout: timedelta) -> int:
    """Return the wait before a job's next heartbeat: 5 s, growing with its age to 60 s. At most a quarter of the lease,
    because AttemptContext notes progress that often in a short lease."""
    usual = min(max(age.total_seconds() / 10, _SHORTEST_WAIT), _LONGEST_WAIT)
    return max(int(min(usual, lost_timeout.total_seconds() / 4)), 1)


def last_sign_of_life(run: JobRun, task: Task, now: datetime) -> datetime | None:
    """Return when a job last showed progress: now while it waits to start, later its start or noted progress. None for
    a job that has shown none in this attempt."""
    if run.is_waiting:
        return now
    since = task.lease.acquired_ts
    signs = [sign for sign in (run.started_at, task.progress_ts) if sign is not None and since and sign > since]
    return min(max(signs), now) if signs else None


def is_gone(task: Task, now: datetime, lost_timeout: timedelta) -> bool:
    """Return whether a job run unknown to the job service is gone: no sign of life for a grace period, at most half a
    lease. A lease starts with the run's start or last progress."""
    signs = [task.progress_ts, task.lease.lost_not_before and task.lease.lost_not_before - lost_timeout]
    last = max((sign for sign in signs if sign is not None), default=now)
    return now - last >= min(GONE_AFTER, lost_timeout / 2)


class Steps:
    """The steps over the task service; `behaviors` and `jobs` are needed only for some steps. This deployment runs
    `task_types` (`life.declared`); others are left to a newer one."""

    def __init__(
        self,
        tasks: TaskService,
        task_types: Collection[str],
        *,
        behaviors: Behaviors | None = None,
        jobs: JobService | None = None,
    ) -> None:
        self._tasks = tasks
        self._task_types = task_types
        self._behaviors = behaviors or Behaviors([])
        self._jobs = jobs

    def acquire(self, step: Step, deadline: datetime) -> dict[str, Any]:
        """Acquire the lease for this execution; wait or stop if that is not possible. The lease also covers Prepare,
        which takes as long: that saves a write."""
        prepared = deadline + max(deadline - self._tasks.clock(), timedelta(0))
        try:
            task = self._tasks.reads.get(step.task_id)
            paused = task.lease.owner != step.execution and self._tasks.pauses.start(task) is not None
            if paused or not runs(self._task_types, task):
                return step.to("stop")  # the sweeper dispatches it when it is resumed
            task = self._tasks.leases.acquire(step.task_id, step.execution, _until(prepared), task=task)
        except TaskNotFound:
            return step.to("stop")
        if task.lease.owner == step.execution:
            joined = self._tasks.types.labels(task).correlation_id
            return replace(step, attempt=task.attempt_count, correlation_id=joined).to("prepare")
        return self._wait_or_stop(step, task)

    def prepare(self, step: Step, deadline: datetime) -> dict[str, Any]:
        """Choose the engine; the behavior ends an attempt that fails here."""
        try:
            task = self._held(step).leases.heartbeat(step.task_id, step.attempt, _until(deadline))
        except LeaseLost:
            return step.to("complete")
        # Work that has started hands itself over: this step may be the late one of two calls.
        if not has_begun(task) and self._hands_over_paused(step, task):
            return step.to("complete")
        if task.job_run_id is not None:
            # An earlier execution started this attempt's job; StartJob finds it.
            return step.to(SPARK)
        return step.to(self._behaviors[task.task_type].prepare(task) or "complete")

    def run_inline(self, step: Step, deadline: datetime) -> dict[str, Any]:
        try:
            task = self._held(step).leases.heartbeat(step.task_id, step.attempt, _until(deadline), engine=INLINE)
        except LeaseLost:
            return step.to("complete")
        margin = min(HAND_OVER_BEFORE, (deadline - self._tasks.clock()) / 5)
        self._behaviors[task.task_type].run(task, hand_over_at=deadline - margin)
        return step.to("complete")

    def start_job(self, step: Step) -> dict[str, Any]:
        """Start this attempt's job run, after cancelling the runs of former attempts and waiting for their end."""
        from delegation.orchestration.job_runs import folders_of  # noqa: PLC0415 - no other step needs it

        try:
            task = held_by(self._tasks.reads.get(step.task_id), step.attempt)
            if task.lease.owner != step.execution:
                raise other_lease(task, step.execution)
            if task.job_run_id is None and self._hands_over_paused(step, task, may_have_job=True):
                return step.to("complete")
            # A first attempt has no former one, so any list will do.
            as_of = datetime.min.replace(tzinfo=UTC) if step.attempt == 1 else None
            active = self._job_service.active(f"{step.task_id}-", as_of=as_of)
            former = [run for run in active if run.name != step.job]
            for run in former:
                self._job_service.cancel(run.id)
            if former:
                return self._wait_for_former(step, task, former[0])
            arguments = ["--task-id", step.task_id, "--attempt", str(step.attempt)]
            # Not started again if known: a later execution may come after the client token has expired, and an earlier
            # call may have started it in a former application, to which the token does not apply.
            known = task.job_run_id or next((run.id for run in active if run.name == step.job), None)
            of_type = self._tasks.types.of(task)
            folders = folders_of(task, of_type.folders)
            run_id = known or self._job_service.start(step.job, arguments, folders, with_jars=of_type.needs_jars)
            self._held(step).leases.heartbeat(
                step.task_id, step.attempt, self._lasting, engine=SPARK, job_run_id=run_id
            )
        except LeaseLost:
            self._cancel_own(step)
            return step.to("complete")
        except JobRefused as refused:
            self.end_attempt(step, AttemptError(refused.code, str(refused), ErrorClass.PERMANENT))
            return step.to("complete")
        return step.to("heartbeat", wait_seconds=_SHORTEST_WAIT)

    def _wait_for_former(self, step: Step, task: Task, run: JobRun) -> dict[str, Any]:
        """Start again later. End the attempt of a task that is cancelled or overdue, or after FORMER_ENDS_WITHIN."""
        now = self._tasks.clock()
        waited = now - (task.lease.acquired_ts or now)
        if task.cancel_requested or past_deadline(task, now) or waited >= FORMER_ENDS_WITHIN:
            minutes = int(waited.total_seconds() // 60)
            text = (
                f"job run {run.id} of an earlier attempt is still {run.state}, {minutes} minutes after its cancellation"
            )
            self.end_attempt(step, AttemptError("FORMER_JOB_ACTIVE", text, ErrorClass.TRANSIENT))
            return step.to("complete")
        self._held(step).leases.heartbeat(step.task_id, step.attempt, self._lasting, engine=SPARK)
        return step.to("start-again", wait_seconds=self._wait_seconds(task, now))

    def heartbeat(self, step: Step) -> dict[str, Any]:
        """Renew the lease while the job waits to start, later from its last sign of life; a hung job is lost. A lease
        that lasts well beyond the next heartbeat is not renewed (`renew_every`)."""
        step = replace(step, turn=step.turn + 1)
        task = self._tasks.reads.get(step.task_id)
        if not task.is_held or task.attempt_count != step.attempt:
            return step.to("complete")
        if task.lease.owner != step.execution:
            return self._hand_over_again(step, task)
        now = self._tasks.clock()
        run = self._run_of(task, now)
        if run is None or run.has_ended:
            return step.to("complete")
        if run.is_waiting and (task.cancel_requested or past_deadline(task, now)):
            self._cancel(run)  # a running job notices both by itself and reports what it deleted
        if run.is_waiting and self._tasks.pauses.work(task) is not None:
            self._cancel(run)  # a running job notices that too
            self._hands_over_paused(step, task)
            return step.to("complete")
        try:
            sign = last_sign_of_life(run, task, now)
            if sign is not None and self._needs_renewal(task, now):
                task = self._held(step).leases.heartbeat(step.task_id, step.attempt, lambda _now: self._lasting(sign))
            if task.lease.lost_not_before is not None and now >= task.lease.lost_not_before:
                self._cancel(run)
                self._tasks.dispatching.presume_lost(step.task_id)
                return step.to("complete")
            if step.turn >= MAX_TURNS:
                self._tasks.leases.hand_to_next_execution(
                    step.task_id, step.attempt, step.execution, lambda n: execution_name(step.task_id, n)
                )
                return step.to("continue")
        except LeaseLost:
            return step.to("complete")
        return step.to("heartbeat", wait_seconds=self._wait_seconds(task, now))

    def _hands_over_paused(self, step: Step, task: Task, *, may_have_job: bool = False) -> bool:
        """End the attempt if its task is paused, so that the pause costs nothing. `may_have_job`: an earlier call may
        have started its job without storing the id. A job hands itself over."""
        pause = self._tasks.pauses.work(task)
        if pause is None or (may_have_job and any(run.name == step.job for run in self._job_service.active(step.job))):
            return False
        error = AttemptError(PAUSED, str(RunPaused(task.task_id, pause.text)), ErrorClass.PAUSED)
        self.end_attempt(step, error, wait=PAUSED_WAIT)
        return True

    def _run_of(self, task: Task, now: datetime) -> JobRun | None:
        """Return the task's job run, None if it is gone: unknown to the service after GONE_AFTER. The state of an
        unreadable run is unknown; only its progress shows that it works."""
        if task.job_run_id is None:
            return None
        unknown = JobRun(task.job_run_id, f"{task.task_id}-{task.attempt_count}", "UNKNOWN")
        try:
            run = self._job_service.get(task.job_run_id)
        except (JobRefused, JobServiceUnavailable) as error:
            fields = {"task_id": task.task_id, "job_run_id": task.job_run_id, "error_code": error.code}
            logger.warning("the state of a job run cannot be read: %s", error, extra=fields)
            return unknown
        return run if run is not None or is_gone(task, now, self._tasks.policies.lease.lost_timeout) else unknown

    def complete(self, step: Step) -> dict[str, Any]:
        """Read the attempt's outcome; an attempt that ended without one is recorded as failed."""
        task = self._tasks.reads.find(step.task_id)
        if task is None:
            return step.to("stop")
        if task.is_held and task.attempt_count == step.attempt and task.lease.owner == step.execution:
            task = self.end_attempt(step, self._reason(task))
        elif task.engine == SPARK:
            self._tasks.writes.report_partly_done(task)  # a job leaves that to the step that reads its outcome
        if task.admission.lane is not None and (task.is_terminal or task.is_queued):
            self._tasks.messages.wake(step.task_id)  # its place is free for another task
        match task.status:
            case Status.SUCCESS:
                return step.to("succeeded")
            case Status.FAILURE:
                return step.to("failed")
            case Status.SUBMITTED if task.is_recurring:
                return step.to("stop")  # the sweeper starts the next run, because an execution's history is limited
            case Status.RETRY_SCHEDULED if task.attempt_count % ATTEMPTS_PER_EXECUTION == 0:
                return step.to("stop")
            case _:
                return self._wait_or_stop(step, task)

    def make_due(self, step: Step) -> dict[str, Any]:
        """End the attempt if this execution still holds it, so that the sweeper finds the task due. An attempt whose
        invocation may still work is held until its lease ends. One that was never started is excused, also if it was
        found lost meanwhile; `refused` then ends the execution normally, the first REFUSALS_BORNE times. Raises
        JobServiceUnavailable while its job, if any, cannot be ended; after the lease the sweeper ends both."""
        task = self._tasks.reads.find(step.task_id)
        if task is None:
            return step.to("stop")
        failure = StateFailure(step.following, step.error)
        if task.is_held and task.lease.owner == step.execution:
            if failure.may_still_work:
                return step.to("due")
            without_job = failure.is_refused_job and has_no_job(task)
            if not self._tasks.dispatching.end_external_jobs(task) and not without_job:
                run = f"job run {task.job_run_id}" if task.job_run_id else "a job run"
                raise JobServiceUnavailable(
                    f"{run} of task {step.task_id} could not be ended. The step is retried. When the lease has ended, "
                    "the sweeper ends the job run"
                )
            task = self._tasks.reads.get(step.task_id)  # the job may have started its work before it ended
            task = self.end_attempt(replace(step, attempt=task.attempt_count), failure.attempt_error(task))
        elif failure.is_refused_start and not failure.may_have_started_a_job and step.attempt:
            task = self._tasks.dispatching.excuse_refused_start(step.task_id, step.attempt)
        refused = failure.is_refused_start or failure.is_refused_job
        excused = refused and not task.is_held and task.error_code in {START_REFUSED, JOB_NOT_STARTED}
        return step.to("refused" if excused and task.starts_refused < REFUSALS_BORNE else "due")

    def give_up_start(self, step: Step) -> Task:
        """End an attempt whose job the service does not start, excused, unless it has a job; for drivers without
        MakeDue."""
        task = self._tasks.reads.get(step.task_id)
        if task.attempt_count != step.attempt or not has_no_job(task):
            return task
        return self.end_attempt(step, job_not_started())

    def _cancel_own(self, step: Step) -> None:
        """Cancel a job started after its attempt was lost, which the sweeper may have missed. The job of an attempt
        that another execution continues is left alone."""
        task = self._tasks.reads.find(step.task_id)
        if task is not None and task.is_held and task.attempt_count == step.attempt:
            return
        try:
            runs = self._job_service.active(step.job)
        except JobRefused:
            return  # see `_cancel`
        for run in runs:
            if run.name == step.job:
                self._cancel(run)

    def _cancel(self, run: JobRun) -> None:
        """Cancel a job before its attempt ends: the next attempt may run inline and would not cancel it."""
        try:
            self._job_service.cancel(run.id)
        except JobRefused:
            return  # the fencing token has its writes refused

    def _held(self, step: Step) -> TaskService:
        """Return the service for this execution, perhaps a former one of an attempt that another continues."""
        return self._tasks.holding_as(step.execution)

    @property
    def _job_service(self) -> JobService:
        if self._jobs is None:
            raise malformed_step("this process has no job service. Set DELEGATION_EMR_APPLICATION_ID")
        return self._jobs

    def _hand_over_again(self, step: Step, task: Task) -> dict[str, Any]:
        """Answer a heartbeat repeated after the hand-over: the message may not have been sent."""
        if step.turn < MAX_TURNS or task.lease.owner != execution_name(step.task_id, task.dispatches.count):
            return step.to("stop")
        self._tasks.messages.send_again(task)
        return step.to("continue")

    def _needs_renewal(self, task: Task, now: datetime) -> bool:
        """Return whether the lease must be renewed before the next heartbeat; earlier would be a needless write."""
        if task.lease.recheck_not_before is None:
            return True
        lease = self._tasks.policies.lease
        due = task.lease.recheck_not_before - lease.clock_drift - renew_every(lease)
        return now + timedelta(seconds=self._wait_seconds(task, now)) >= due

    def _wait_seconds(self, task: Task, now: datetime) -> int:
        age = now - task.lease.acquired_ts if task.lease.acquired_ts else timedelta(0)
        return wait_seconds(age, self._tasks.policies.lease.lost_timeout)

    def _lasting(self, now: datetime) -> Lease:
        return Lease.lasting(self._tasks.policies.lease.lost_timeout, now)

    def end_attempt(self, step: Step, error: AttemptError, *, wait: timedelta | None = None) -> Task:
        try:
            return self._held(step).leases.end_attempt(step.task_id, step.attempt, error, wait=wait)
        except LeaseLost:
            return self._tasks.reads.get(step.task_id)

    def _reason(self, task: Task) -> AttemptError:
        run = self._ended_run(task.job_run_id) if task.job_run_id and self._jobs is not None else None
        if run is None:
            text = (
                "the attempt's process ended without an outcome. The task is retried if it has attempts left. The log "
                "of the function or job run has the reason"
            )
            return AttemptError("ATTEMPT_ENDED", text, ErrorClass.INTERRUPTED)
        text = f"job run {run.id} ended as {run.state} without an outcome. {run.details}".strip()
        return AttemptError("JOB_FAILED", text, ErrorClass.INTERRUPTED)

    def _ended_run(self, run_id: str) -> JobRun | None:
        try:
            run = self._job_service.get(run_id)
        except JobRefused:
            return None
        if run is not None and not run.has_ended:
            self._cancel(run)
        return run

    @staticmethod
    def _wait_or_stop(step: Step, task: Task) -> dict[str, Any]:
        """Round the wait up to a second: Step Functions truncates (its Developer Guide, "Wait workflow state")."""
        if task.next_scheduled_run_ts is None or task.is_queued:
            return step.to("stop")
        rounded_up = (task.next_scheduled_run_ts + timedelta(seconds=1, microseconds=-1)).replace(microsecond=0)
        return step.to("wait", wait_until=isoformat(rounded_up))


def _until(deadline: datetime) -> Callable[[datetime], Lease]:
    return lambda now: Lease.until(deadline + AFTER_DEADLINE, now)
