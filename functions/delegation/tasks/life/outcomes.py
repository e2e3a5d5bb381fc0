"""What follows when an attempt ends without success: one table of decisions, no I/O."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import MAX_EXCUSED, Policies
from delegation.tasks.life.redaction import redacted


class ErrorClass(StrEnum):
    """How the policy treats an error (issue of reliable tasks; DESIGN §2)."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    THROTTLED = "throttled"
    LOST = "lost"
    HANDED_OVER = "handed-over"
    WAITING = "waiting"


_FREE: Final = frozenset({ErrorClass.LOST, ErrorClass.HANDED_OVER, ErrorClass.WAITING})
"""What is no error of the work: tried again at once (or after a stated wait), also by a synchronous task."""
_EXCUSED: Final = frozenset({ErrorClass.HANDED_OVER, ErrorClass.WAITING})
_PARKED: Final = "error:"
"""Begins a pending result that is an error; a result is JSON, which never begins so."""


@dataclass(frozen=True, slots=True)
class AttemptError:
    """Why an attempt ended: a machine-readable code, a text without secrets, and its class.

    `after_children` says that no child of the task is left to wait for.
    """

    code: str
    summary: str
    kind: ErrorClass
    extended: str | None = None
    after_children: bool = False


def after_error(
    task: Task, error: AttemptError, now: datetime, policies: Policies, *, wait: timedelta | None = None
) -> Task:
    """A held task after its attempt ended with `error`: RETRY_SCHEDULED, or FAILURE when no attempt is left.

    The next attempt is due after the policy's backoff, at once when nothing went wrong with the work, or after `wait`.

    A cancelled task is FAILURE whatever the error. A parent is only after its children: until then its error is parked
    beside what would be its result, and further attempts look after them without doing the work again.

    A synchronous task that errs before its work had effects is FAILURE at once (DESIGN §3, "Failing before the first
    delete"): its caller is told that it failed and that all is untouched.
    """
    retry = policies.retry(task.task_type)
    cancelling = task.cancel_requested and error.kind is not ErrorClass.WAITING
    children_first = bool(task.children) and not error.after_children and error.kind is not ErrorClass.WAITING
    has_to_see_to_children = cancelling and children_first
    if cancelling and not has_to_see_to_children:
        return t.fail(task, now, code=t.CANCELLED, summary="cancelled on request", extended=error.summary)
    untouched = task.synchronous and task.effects_began_ts is None and error.kind not in _FREE
    throttled = error.kind is ErrorClass.THROTTLED
    excuse = has_to_see_to_children or error.kind in _EXCUSED or (throttled and task.throttled_count < MAX_EXCUSED)
    over = untouched or error.kind is ErrorClass.PERMANENT or (not excuse and retry.exhausted(task))
    if over and children_first and not cancelling:
        task = task if task.pending_result is not None else task.evolve(pending_result=_parked(error))
        wait, excuse = timedelta(0), True
    elif over and not has_to_see_to_children:
        return t.fail(task, now, code=error.code, summary=error.summary, extended=error.extended)
    if wait is None:
        # Excused attempts leave the count of the others flat; the wait grows with them all the same.
        failures = max(task.unexcused_attempts, 1) + (task.throttled_count if throttled else 0)
        wait = timedelta(0) if error.kind in _FREE else retry.backoff(failures)
    return t.schedule_retry(
        task,
        now,
        at=now + wait,
        grace=policies.dispatch.grace,
        code=error.code,
        summary=error.summary,
        excuse=excuse,
        throttled=throttled,
        noted=error.kind is not ErrorClass.WAITING,
    )


def is_lost(task: Task, now: datetime) -> bool:
    """Whether the holder of a task is to be presumed lost."""
    return task.is_held and task.lost_not_before is not None and now >= task.lost_not_before


def after_loss(task: Task, now: datetime, policies: Policies) -> Task:
    """A held task whose holder is presumed lost; the task unchanged while `lost_not_before` lies ahead."""
    if not is_lost(task, now):
        return task
    since = f"{task.lease_owner} was last believed until {task.lost_not_before:%Y-%m-%dT%H:%M:%SZ}"
    for_good = task.task_type in policies.fail_when_lost
    if for_good and not task.children:
        return t.fail(task, now, code=t.LOST, summary=since)
    kind = ErrorClass.PERMANENT if for_good else ErrorClass.LOST
    return after_error(task, AttemptError(t.LOST, since, kind), now, policies)


def _parked(error: AttemptError) -> str:
    extended = None if error.extended is None else redacted(error.extended)
    return _PARKED + json.dumps([error.code, redacted(error.summary), extended])


def parked_error(pending_result: str | None) -> AttemptError | None:
    """The error that a parent ends with once its children have, None where its work succeeded or is not done."""
    if pending_result is None or not pending_result.startswith(_PARKED):
        return None
    code, summary, extended = json.loads(pending_result.removeprefix(_PARKED))
    return AttemptError(code, summary, ErrorClass.PERMANENT, extended, after_children=True)
