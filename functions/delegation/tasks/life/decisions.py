"""Decides what happens to a task that is claimed, reconciled, cancelled or retried. Pure functions. A decision is the
same task (no change), a rewritten head of the same version, the next version, or several versions for one write."""

from collections.abc import Callable
from datetime import datetime, timedelta

from delegation.tasks.life import outcomes
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import WAITING, Caller, Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import DispatchPolicy, Lease, Policies
from polaris_common.errors import counted

Decision = Task | tuple[Task, ...]


def claim(
    task: Task,
    owner: str,
    now: datetime,
    policies: Policies,
    lease: Callable[[datetime], Lease],
    *,
    ended_attempt: int | None,
) -> Decision:
    """Make `owner` the holder of a task that is waiting and due, or whose attempt is lost. A lost attempt is retried at
    once if `ended_attempt` is its number: nothing of it still runs. The current holder keeps its attempt, and its lease
    is renewed."""
    if outcomes.is_lost(task, now) and task.attempt_count != ended_attempt:
        return task
    freed = outcomes.after_loss(task, now, policies)
    claimed = _claimed(freed, owner, now, lease(now))
    return claimed if freed is task or claimed is freed else (freed, claimed)


def _claimed(task: Task, owner: str, now: datetime, lease: Lease) -> Task:
    if task.is_held:
        return t.renew(task, task.attempt_count, lease) if task.lease.owner == owner else task
    if task.next_scheduled_run_ts is None or now < task.next_scheduled_run_ts or task.is_queued:
        return task
    if task.cancel_requested and not task.family.children:
        return cancelled(task, now)
    if outcomes.past_deadline(task, now) and not task.family.children:
        return overdue(task, now)
    return t.acquire(task, owner, now, lease)


def reconcile(
    task: Task, now: datetime, policies: Policies, *, ended_attempt: int | None, paused: bool = False
) -> Task:
    """Presume a due task lost, fail it after too many dispatches, or count one more dispatch, also after a loss.
    Nothing changes for a task that is not due, a lost one whose attempt may still run, or a waiting one that is
    `paused`."""
    if task.due_at is None or now < task.due_at:
        return task
    if outcomes.is_lost(task, now) and task.attempt_count != ended_attempt:
        return task
    freed = outcomes.after_loss(task, now, policies)
    if paused or freed.status not in WAITING:
        return freed
    if freed is task and outcomes.past_deadline(task, now) and not task.family.children:
        return overdue(task, now)
    return _dispatched_again(task, freed, now, policies)


def _dispatched_again(task: Task, freed: Task, now: datetime, policies: Policies) -> Task:
    """Return a waiting task (`freed` after a loss, else unchanged) with one more dispatch if one is due."""
    if freed.is_queued:
        return freed.evolve(due_at=now + t.CHECK_QUEUED) if freed is task else freed
    if freed.next_scheduled_run_ts is not None and now < freed.next_scheduled_run_ts:
        return freed
    if policies.dispatch.exhausted(freed):
        unanswered = counted(freed.dispatches.unanswered, "dispatch", "dispatches")
        reason = f"{unanswered} started no attempt. Check the executions of the state machine"
        return t.fail(freed, now, code=t.DISPATCH_FAILED, summary=reason) if freed is task else freed
    if freed is task and freed.admission.lane is not None:
        return _queued_again(freed, now, policies.dispatch)
    return dispatch(freed, now, policies.dispatch)


def _queued_again(task: Task, now: datetime, policy: DispatchPolicy) -> Task:
    """Queue an admitted task again if its dispatch started no attempt, which frees its place. Its dispatches are as far
    apart as without limits; each keeps the place for the dispatch grace."""
    so_far = task.dispatches.unanswered
    last = task.evolve(dispatches=task.dispatches.evolve(count=task.dispatches.count - 1)) if so_far else task
    at = max(policy.next_check(last, now) - policy.grace, now)
    return t.queued(task.evolve(next_scheduled_run_ts=at), task.admission.lane or "", now)


def dispatch(task: Task, now: datetime, policy: DispatchPolicy) -> Task:
    """Count one more dispatch of a task that waits for it; return any other task, also a queued one, unchanged."""
    if task.status not in WAITING or task.is_queued:
        return task
    return policy.counted(task, now)


def admit(task: Task, now: datetime, policy: DispatchPolicy, *, paused_for: timedelta | None = None) -> Task:
    """Start a queued task whose time has come and count its dispatch; return other tasks unchanged. A paused one waits
    for `paused_for` more, so that others of its lane come first."""
    if not task.is_queued or task.next_scheduled_run_ts is None or now < task.next_scheduled_run_ts:
        return task
    if paused_for is not None:
        return task.evolve(next_scheduled_run_ts=now + paused_for, due_at=now + t.CHECK_QUEUED)
    return t.admitted(task, now, due_at=now + policy.grace)


def cancel(task: Task, now: datetime, by: Caller | None = None) -> Task:
    """Fail a waiting task (`CANCELLED`); request a held one or a parent to stop; return a terminal one unchanged."""
    if task.is_terminal or task.cancel_requested:
        return task
    if task.is_held or task.family.children:
        return task.evolve(cancel_requested=True, cancelled_by=by)
    return cancelled(task.evolve(cancelled_by=by), now)


def hasten(task: Task, code: str, now: datetime) -> Task:
    """Make a task due now that waits for its next attempt after the error `code`; return other tasks unchanged."""
    at = task.next_scheduled_run_ts
    if task.status is not Status.RETRY_SCHEDULED or task.error_code != code or at is None or at <= now:
        return task
    return task.evolve(next_scheduled_run_ts=now, due_at=now + t.CHECK_QUEUED if task.is_queued else now)


def cancelled(task: Task, now: datetime) -> Task:
    return t.fail(task, now, code=t.CANCELLED, summary="cancelled on request")


def overdue(task: Task, now: datetime) -> Task:
    """Return the FAILURE of a waiting task that is past its deadline."""
    return t.fail(task, now, code=t.DEADLINE_EXCEEDED, summary=outcomes.deadline_text(task))


def succeed(task: Task, attempt: int, now: datetime, summary: str, **results: object) -> Decision:
    """Return the SUCCESS of an attempt, through RUNNING if that was not written; the same task on a repeat."""
    if task.status is Status.SUCCESS and task.attempt_count == attempt:
        return task
    running = t.start(task, attempt, now)
    done = t.succeed(running, attempt, now, summary=summary, **results)  # type: ignore[arg-type]
    return done if running is task else (running, done)


def end_attempt(
    task: Task, attempt: int, error: AttemptError, now: datetime, policies: Policies, *, wait: timedelta | None
) -> Task:
    """End an attempt with an error; return the same task if that attempt already ended with it."""
    # A cancelled task ends as CANCELLED, whatever the error was.
    if task.attempt_count == attempt and not task.is_held and task.error_code in {error.code, t.CANCELLED}:
        return task
    return outcomes.after_error(t.held_by(task, attempt), error, now, policies, wait=wait)


def release(task: Task, attempt: int, reason: str, now: datetime, policies: Policies) -> Task:
    """End an attempt as lost before its lease is over; raises LeaseLost unless that attempt holds the task."""
    return outcomes.after_error(t.held_by(task, attempt), AttemptError(t.LOST, reason, ErrorClass.LOST), now, policies)


def recurs(task: Task) -> bool:
    """Return whether a new run follows a run that ended."""
    return task.is_terminal and task.is_recurring and task.error_code not in {t.CANCELLED, t.RETIRED, t.BAD_SCHEDULE}
