"""What follows an attempt that ends without success. Pure functions."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from delegation.tasks.errors import redacted
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import HandOvers, KilledAttempts, Status, Task
from delegation.tasks.life.policy import MAX_EXCUSED, Policies

_MOST: Final = 50
"""How many details are compared one by one, to bound the record."""

MEASURED: Final = "measured"
"""The detail with the measured size of the work, for the error of a task whose attempts are killed."""
ABOVE_A_FUNCTION: Final = "above_a_function"
"""The detail of a task that is larger than a function was measured for."""

State = dict[str, int | float | str]
"""A task's stored progress by name: numbers, and digests of anything else."""


def got_ahead(task: Task, before_text: str | None, *, by_texts: bool = True) -> tuple[bool, str | None]:
    """Return whether the task advanced since the state before, and the state to store now. Progress is what the next
    attempt finds: details, reports, children, a result, effects. A number counts only if it is higher, because repeated
    work reports the same numbers. Without `by_texts` changed texts do not count, because each attempt may note its own
    start time. A new `progress_ts` does not count."""
    before: State = json.loads(before_text or "{}")
    now = state_of(task)
    counted = {
        name: value for name, value in now.items() if by_texts or name not in before or not isinstance(value, str)
    }
    ahead = any(
        value != 0 if (known := before.get(name)) is None else _further(known, value) != known
        for name, value in counted.items()
    )
    kept = {name: _further(before.get(name), value) for name, value in now.items()}
    state = {name: value for name, value in {**before, **kept}.items() if value != 0}
    return ahead, json.dumps(state, sort_keys=True, separators=(",", ":")) if state else None


def state_of(task: Task) -> State:
    """Return the progress that a task's next attempt finds."""
    reported = {} if task.progress is None else {"progress.done": task.progress.done}
    details = {name: value for name, value in task.details.items() if name not in (MEASURED, ABOVE_A_FUNCTION)}
    fields = {**dict(sorted(_leaves(details, ""))), **dict(sorted(_leaves(task.reported, "reported."))), **reported}
    names = list(fields)
    state: State = {name: _measured(fields[name]) for name in names[:_MOST]}
    if names[_MOST:]:
        state["…"] = _digest([fields[name] for name in names[_MOST:]])
    state["children"] = len(task.family.children) + (task.family.child_ordinal or 0)
    state["result"] = int(task.pending_result is not None)
    state["effects"] = int(task.effects_began_ts is not None)
    return state


def _leaves(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner


def _measured(value: Any) -> int | float | str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else _digest(value)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _further(before: float | str | None, now: float | str) -> float | str:
    if before is None or isinstance(before, str) or isinstance(now, str):
        return now
    return max(before, now)


class ErrorClass(StrEnum):
    """How the retry policy treats an error (docs/architecture/tasks.md)."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    THROTTLED = "throttled"
    INTERRUPTED = "interrupted"  # the attempt ended without an outcome of its work
    REFUSED = "refused"  # nothing of the attempt was started
    LOST = "lost"
    HANDED_OVER = "handed-over"
    WAITING = "waiting"
    PAUSED = "paused"  # an operator paused the task


_FREE: Final = frozenset({ErrorClass.LOST, ErrorClass.HANDED_OVER, ErrorClass.WAITING, ErrorClass.PAUSED})
"""Errors that are no failure of the work: even a synchronous task is retried, at once or after a given wait."""
_EXCUSED: Final = frozenset({ErrorClass.WAITING, ErrorClass.REFUSED, ErrorClass.PAUSED})
START_REFUSED: Final = "START_REFUSED"
"""The code of an attempt for which no function could be started."""
JOB_NOT_STARTED: Final = "JOB_NOT_STARTED"
"""The code of an attempt for which the job service started no job."""
LONGEST_REFUSAL: Final = timedelta(minutes=5)
"""The longest wait after a refused start: the functions of an account become available within minutes."""
LONGEST_OUTAGE_WAIT: Final = timedelta(minutes=15)
"""The same for a job that was not started: the job service may be unavailable for hours."""
MOST_JOBS_REFUSED: Final = 200
"""How many attempts without a job are excused per submission, about two days of them; further ones count."""
_LONGEST_TEXT: Final = 20_000
"""Characters of an error: more than is shown; with a result it still fits into an item."""
_JOB: Final = "spark"
"""The engine whose attempts have a job's memory and time (`work.hooks`)."""
_PARKED: Final = "error:"
"""Prefix of a pending result that is an error; a JSON result never starts with it."""


@dataclass(frozen=True, slots=True)
class AttemptError:
    """Why an attempt ended: an error code, a text without secrets, and its class. Texts have at most 20,000 characters,
    with lone surrogates escaped."""

    code: str
    summary: str
    kind: ErrorClass
    extended: str | None = None
    after_children: bool = False  # the task has no child left to wait for
    killed: bool = False  # the attempt is known to have run out of memory or time

    def __post_init__(self) -> None:
        for name in ("code", "summary", "extended"):
            text = getattr(self, name)
            if text is not None:
                storable = text[:_LONGEST_TEXT].encode(errors="backslashreplace").decode()
                object.__setattr__(self, name, storable)


def after_error(
    task: Task, error: AttemptError, now: datetime, policies: Policies, *, wait: timedelta | None = None
) -> Task:
    """Return a held task after its attempt's `error`: RETRY_SCHEDULED, or FAILURE without attempts left. The next
    attempt is due after the policy's backoff, after `wait` if given, or at once if the work did not fail. A cancelled
    task fails whatever the error; a parent fails only after its children have ended."""
    if error.killed and task.engine != _JOB:
        ahead, state = got_ahead(task, task.killed.state, by_texts=False)
        task = task.evolve(killed=KilledAttempts(count=1 if ahead else task.killed.count + 1, state=state))
    if error.kind is ErrorClass.HANDED_OVER and wait is None:
        task, error = _handed_over(task, error)
    excuse = _is_excused(task, error)
    wait = _wait_after(task, error, policies) if wait is None else wait
    if error.kind is not ErrorClass.WAITING or (task.cancel_requested and not task.family.children):
        children_first = bool(task.family.children) and not error.after_children
        if task.cancel_requested and children_first:
            return _retried(task, error, now, policies, wait=wait, excuse=True)
        if task.cancel_requested:
            return t.fail(task, now, code=t.CANCELLED, summary="cancelled on request", extended=error.summary)
        is_final = _is_final(task, error, policies, excuse=excuse)
        if not is_final and past_deadline(task, now + wait):
            is_final, error = True, _overdue(task, error)
        if is_final and children_first:
            return _failed_before_its_children(task, error, now, policies)
        if is_final:
            return t.fail(task, now, code=error.code, summary=error.summary, extended=error.extended)
    return _retried(task, error, now, policies, wait=wait, excuse=excuse)


def _handed_over(task: Task, error: AttemptError) -> tuple[Task, AttemptError]:
    """Count a hand-over, from zero if the task advanced since the last one. An attempt that waits for a stated time is
    not counted."""
    ahead, state = got_ahead(task, task.hand_overs.state)
    number = 0 if ahead else task.hand_overs.count + 1
    if number > MAX_EXCUSED:
        error = replace(error, summary=f"{error.summary}; {number} hand-overs in a row made no progress")
    return task.evolve(hand_overs=HandOvers(count=number, state=state)), error


def past_deadline(task: Task, now: datetime) -> bool:
    """Return whether a task must end because of its deadline; never after its work has changed something."""
    return task.deadline_ts is not None and task.effects_began_ts is None and now >= task.deadline_ts


def deadline_text(task: Task) -> str:
    return f"the work was not done by its deadline, {task.deadline_ts:%Y-%m-%dT%H:%M:%SZ}"


def _overdue(task: Task, error: AttemptError) -> AttemptError:
    text = f"{deadline_text(task)}; the last attempt ended with {error.code}: {error.summary}"
    return AttemptError(t.DEADLINE_EXCEEDED, text, ErrorClass.PERMANENT)


def _is_final(task: Task, error: AttemptError, policies: Policies, *, excuse: bool) -> bool:
    """Return whether no attempt follows. A synchronous task that fails before its work had effects is not retried."""
    no_failure = error.kind in _FREE or error.kind is ErrorClass.REFUSED
    untouched = task.synchronous and task.effects_began_ts is None and not no_failure
    exhausted = not excuse and policies.retry(task.task_type).exhausted(task)
    return untouched or error.kind is ErrorClass.PERMANENT or exhausted or _may_not_run_again(task, error, policies)


def _may_not_run_again(task: Task, error: AttemptError, policies: Policies) -> bool:
    """Return whether the work may have run without an outcome and its type never runs twice."""
    if task.task_type not in policies.fail_when_lost:
        return False
    unclear = error.kind in {ErrorClass.INTERRUPTED, ErrorClass.REFUSED}
    return error.kind is ErrorClass.LOST or (unclear and has_begun(task))


def has_begun(task: Task) -> bool:
    """Return whether the work of the present attempt may have started: the task is RUNNING or has an engine."""
    return task.status is Status.RUNNING or task.engine is not None


def _is_excused(task: Task, error: AttemptError) -> bool:
    """Return whether the attempt does not count against the retry limit."""
    match error.kind:
        case ErrorClass.THROTTLED:
            return task.throttled_count < MAX_EXCUSED
        case ErrorClass.HANDED_OVER:
            return task.hand_overs.count <= MAX_EXCUSED
        case ErrorClass.REFUSED if error.code == JOB_NOT_STARTED:
            return task.starts_refused < MOST_JOBS_REFUSED
        case kind:
            return kind in _EXCUSED


def _failed_before_its_children(task: Task, error: AttemptError, now: datetime, policies: Policies) -> Task:
    """Keep the first error as the pending result; further attempts only wait for the children."""
    if task.pending_result is None:
        extended = None if error.extended is None else redacted(error.extended)
        task = task.evolve(pending_result=_PARKED + json.dumps([error.code, redacted(error.summary), extended]))
    return _retried(task, error, now, policies, wait=timedelta(0), excuse=True)


def _wait_after(task: Task, error: AttemptError, policies: Policies) -> timedelta:
    if error.kind in _FREE:
        return timedelta(0)
    policy = policies.retry(task.task_type)
    if error.kind is ErrorClass.REFUSED:
        longest = LONGEST_OUTAGE_WAIT if error.code == JOB_NOT_STARTED else LONGEST_REFUSAL
        return min(policy.backoff(task.starts_refused + 1), longest)
    # An excused attempt does not count against the limit; the backoff still grows with it.
    throttled = task.throttled_count if error.kind is ErrorClass.THROTTLED else 0
    return policy.backoff(max(task.unexcused_attempts, 1) + throttled)


def _retried(
    task: Task, error: AttemptError, now: datetime, policies: Policies, *, wait: timedelta, excuse: bool
) -> Task:
    throttled, refused = error.kind is ErrorClass.THROTTLED, error.kind is ErrorClass.REFUSED
    return t.schedule_retry(
        task,
        now,
        at=now + wait,
        grace=policies.dispatch.grace,
        code=error.code,
        summary=error.summary,
        extended=error.extended,
        excuse=excuse,
        throttled=throttled,
        refused=refused,
        noted=error.kind is not ErrorClass.WAITING,
    )


def is_lost(task: Task, now: datetime) -> bool:
    return task.is_held and task.lease.lost_not_before is not None and now >= task.lease.lost_not_before


def after_loss(task: Task, now: datetime, policies: Policies) -> Task:
    """Return a held task after the loss of its attempt; unchanged before `lost_not_before`."""
    if not is_lost(task, now):
        return task
    since = (
        f"the lease of {task.lease.owner} ended at {task.lease.lost_not_before:%Y-%m-%dT%H:%M:%SZ} without an outcome"
    )
    error = AttemptError(t.LOST, since, ErrorClass.LOST, killed=_counts_as_killed(task))
    return after_error(task, error, now, policies)


def _counts_as_killed(task: Task) -> bool:
    """Return whether a task's size explains the loss of its attempt; a deployment may have ended a small one's."""
    return ABOVE_A_FUNCTION in task.details


def excused_loss(task: Task, attempt: int) -> Task:
    """Excuse, once, the last attempt of a task that was found lost but never started."""
    if task.is_held or task.is_terminal or task.attempt_count != attempt:
        return task
    if task.error_code != t.LOST or task.engine is not None:
        return task
    if task.family.children and (task.cancel_requested or task.pending_result is not None):
        return task  # excused when it was found lost: the task only waits for its children
    return task.evolve(
        attempts_excused=task.attempts_excused + 1,
        starts_refused=task.starts_refused + 1,
        error_code=START_REFUSED,
        killed=task.killed.evolve(count=max(task.killed.count - _counts_as_killed(task), 0)),
    )


def parked_error(pending_result: str | None) -> AttemptError | None:
    """Return the error with which a parent ends after its children; None if its work succeeded or is not done."""
    if pending_result is None or not pending_result.startswith(_PARKED):
        return None
    code, summary, extended = json.loads(pending_result.removeprefix(_PARKED))
    return AttemptError(code, summary, ErrorClass.PERMANENT, extended, after_children=True)
