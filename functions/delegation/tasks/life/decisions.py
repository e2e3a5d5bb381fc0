"""What becomes of a task when somebody claims, reconciles, cancels or repeats it: values in, versions out, no I/O.

A decision returns the same task to change nothing, one with the same version to rewrite the head, one with the next
version to make it, or several versions to make them all in one write.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from delegation.tasks.life import outcomes
from delegation.tasks.life import transitions as t
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import WAITING, Status, Task
from delegation.tasks.life.outcomes import AttemptError
from delegation.tasks.life.policy import DispatchPolicy, Policies

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
    """Make `owner` the holder if the task is to be had.

    One whose holder is lost is retried on the spot, if `ended_attempt` says that nothing of that attempt runs any more.
    The owner of a task still held keeps its attempt, with the lease renewed.
    """
    if outcomes.is_lost(task, now) and task.attempt_count != ended_attempt:
        return task
    found = outcomes.after_loss(task, now, policies)
    claimed = _claimed(found, owner, now, lease(now))
    return claimed if found is task or claimed is found else (found, claimed)


def _claimed(task: Task, owner: str, now: datetime, lease: Lease) -> Task:
    if task.is_held:
        return t.renew(task, task.attempt_count, lease) if task.lease_owner == owner else task
    if task.next_scheduled_run_ts is None or now < task.next_scheduled_run_ts:
        return task
    if task.cancel_requested and not task.children:
        return cancelled(task, now)
    return t.acquire(task, owner, now, lease)


def reconcile(task: Task, now: datetime, policies: Policies, *, ended_attempt: int | None) -> Task:
    """Presume a due task lost, give up dispatching it, or count one more dispatch; loss and dispatch are one step.

    A task that is not due (any more) stays, and so does a lost one while something of its attempt may still run.
    """
    if task.due_at is None or now < task.due_at:
        return task
    if outcomes.is_lost(task, now) and task.attempt_count != ended_attempt:
        return task
    found = outcomes.after_loss(task, now, policies)
    if not awaits_dispatch(found):
        return found
    if found.next_scheduled_run_ts is not None and now < found.next_scheduled_run_ts:
        return found
    if policies.dispatch.exhausted(found):
        reason = f"{found.dispatch_count - found.dispatch_base} dispatches led to nothing"
        return t.fail(found, now, code=t.DISPATCH_FAILED, summary=reason) if found is task else found
    return dispatch(found, now, policies.dispatch)


def dispatch(task: Task, now: datetime, policy: DispatchPolicy) -> Task:
    """Count one more dispatch of a waiting task; others stay."""
    return t.dispatched(task, due_at=policy.next_look(task, now)) if awaits_dispatch(task) else task


def cancel(task: Task, now: datetime) -> Task:
    """FAILURE (`CANCELLED`) for a waiting task, a request to stop for a held one or a parent; terminal tasks stay."""
    if task.is_terminal or task.cancel_requested:
        return task
    if task.is_held or task.children:
        return task.evolve(cancel_requested=True)
    return cancelled(task, now)


def cancelled(task: Task, now: datetime) -> Task:
    """The end of a task that a person cancelled."""
    return t.fail(task, now, code=t.CANCELLED, summary="cancelled on request")


def succeed(task: Task, attempt: int, now: datetime, summary: str, **results: object) -> Decision:
    """SUCCESS of an attempt, through RUNNING where that was never written; a repeat after a lost answer stays."""
    if task.status is Status.SUCCESS and task.attempt_count == attempt:
        return task
    running = t.start(task, attempt, now)
    done = t.succeed(running, attempt, now, summary=summary, **results)  # type: ignore[arg-type]
    return done if running is task else (running, done)


def give_back(
    task: Task, attempt: int, error: AttemptError, now: datetime, policies: Policies, *, wait: timedelta | None
) -> Task:
    """The end of an attempt with an error; a repeat after a lost answer stays."""
    # A cancelled task ends as that, whatever the error was.
    if task.attempt_count == attempt and not task.is_held and task.error_code in {error.code, t.CANCELLED}:
        return task
    return outcomes.after_error(t.held_by(task, attempt), error, now, policies, wait=wait)


def recurs(task: Task) -> bool:
    """Whether a run that ended is followed by another."""
    return task.is_terminal and task.recurrence_seconds is not None and task.error_code != t.CANCELLED


def awaits_dispatch(task: Task) -> bool:
    """Whether nobody holds the task and somebody should."""
    return task.status in WAITING
