"""Every change of a task, as a pure function of the task, an event and the time. The status changes are those of the
Delegation Service proposal, Persistence, and docs/architecture/tasks.md; only they raise `version`. The writer sets
`revision` and `nonce`."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from delegation.tasks.errors import IllegalTransition, LeaseLost, redacted
from delegation.tasks.life.model import (
    HELD,
    AdoptedChildren,
    Caller,
    HandOvers,
    KilledAttempts,
    LanePlace,
    Status,
    Task,
    TaskLease,
)
from delegation.tasks.life.policy import Lease

S = Status
ARROWS: Final[dict[Status, frozenset[Status]]] = {
    S.SUBMITTED: frozenset({S.ACQUIRING_RESOURCES, S.RUNNING, S.FAILURE}),
    S.ACQUIRING_RESOURCES: frozenset({S.RUNNING, S.RETRY_SCHEDULED, S.FAILURE}),
    S.RUNNING: frozenset({S.SUCCESS, S.RETRY_SCHEDULED, S.FAILURE}),
    S.RETRY_SCHEDULED: frozenset({S.ACQUIRING_RESOURCES, S.RUNNING, S.FAILURE}),
    S.SUCCESS: frozenset({S.SUBMITTED}),
    S.FAILURE: frozenset({S.SUBMITTED}),
}

LOST: Final = "LOST"
CANCELLED: Final = "CANCELLED"
HANDED_OVER: Final = "HANDED_OVER"
DISPATCH_FAILED: Final = "DISPATCH_FAILED"
BAD_SCHEDULE: Final = "BAD_SCHEDULE"
RETIRED: Final = "RETIRED"
DEADLINE_EXCEEDED: Final = "DEADLINE_EXCEEDED"

CHECK_QUEUED: Final = timedelta(days=7)
"""When the sweeper checks a queued task; admission does not depend on it."""
REST: Final = timedelta(hours=1)
"""How long after its end a task starts a new series of repeats."""
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_RESULT_LIMIT: Final = 32_768
_SUMMARY_LIMIT: Final = 1_024


def transition(task: Task, target: Status, now: datetime, **fields: Any) -> Task:
    """Return the task one version later in status `target`, with `fields` set; raises IllegalTransition."""
    if target not in ARROWS[task.status]:
        raise IllegalTransition(task.task_id, task.status, target)
    return task.evolve(status=target, version=task.version + 1, last_status_change_ts=now, **fields)


def held_by(task: Task, attempt: int) -> Task:
    """Return the task if this attempt holds it, else raise LeaseLost (the check of the fencing token)."""
    if task.status not in HELD or task.attempt_count != attempt:
        raise LeaseLost(task.task_id, attempt=attempt, current=task.attempt_count, status=task.status)
    return task


def acquire(task: Task, owner: str, now: datetime, lease: Lease) -> Task:
    """Make `owner` the holder of a waiting task's next attempt, which has no engine and no job run yet."""
    return transition(
        task,
        Status.ACQUIRING_RESOURCES,
        now,
        attempt_count=task.attempt_count + 1,
        lease=TaskLease(
            owner=owner,
            acquired_ts=now,
            lost_not_before=lease.lost_not_before,
            recheck_not_before=lease.recheck_not_before,
        ),
        next_scheduled_run_ts=None,
        due_at=lease.lost_not_before,
        dispatches=task.dispatches.answered(),
        engine=None,
        job_run_id=None,
        family=task.family.evolve(child_ordinal=None),
    )


def renew(task: Task, attempt: int, lease: Lease) -> Task:
    """Move the lease's deadlines, never backwards; return the same task if none moves. Raises LeaseLost."""
    held_by(task, attempt)
    held = task.lease
    lost = max(lease.lost_not_before, held.lost_not_before or lease.lost_not_before)
    recheck = max(lease.recheck_not_before, held.recheck_not_before or lease.recheck_not_before)
    if (lost, recheck) == (held.lost_not_before, held.recheck_not_before):
        return task
    return task.evolve(lease=held.evolve(lost_not_before=lost, recheck_not_before=recheck), due_at=lost)


def start(task: Task, attempt: int, now: datetime, *, effects: bool = False) -> Task:
    """Start the attempt's main work, with `effects` that last; a repeat changes nothing. Raises LeaseLost."""
    held_by(task, attempt)
    began = task.effects_began_ts or (now if effects else None)
    if task.status is Status.RUNNING:
        return task if began == task.effects_began_ts else task.evolve(effects_began_ts=began)
    return transition(task, Status.RUNNING, now, effects_began_ts=began)


def succeed(
    task: Task, attempt: int, now: datetime, *, summary: str, details: Mapping[str, Any] = NOTHING, **results: Any
) -> Task:
    """Return the task with its work done. Raises LeaseLost."""
    held_by(task, attempt)
    return transition(
        task.with_details(details),
        Status.SUCCESS,
        now,
        due_at=None,
        error_code=None,
        result_summary=_short(summary),
        lease=task.lease.ended(),
        eta_ts=None,
        **results,
    )


def fail(task: Task, now: datetime, *, code: str, summary: str, extended: str | None = None) -> Task:
    """Return the task as FAILURE, from any status that is not terminal; no automatic attempt follows."""
    return transition(
        task,
        Status.FAILURE,
        now,
        due_at=None,
        next_scheduled_run_ts=None,
        error_code=code,
        result_summary=_short(redacted(summary)),
        result_extended=_bounded(task, now, code, summary if extended is None else extended),
        lease=task.lease.ended(),
        eta_ts=None,
    )


def schedule_retry(
    task: Task,
    now: datetime,
    *,
    at: datetime,
    grace: timedelta,
    code: str,
    summary: str,
    extended: str | None = None,
    excuse: bool = False,
    throttled: bool = False,
    refused: bool = False,
    noted: bool = True,
) -> Task:
    """Return a held task that waits until `at`; `excuse` keeps the attempt from counting, `noted` records the error. A
    task that continues at once stays admitted; any other gives up its place."""
    admission = task.admission if at <= now else task.admission.evolve(admitted_ts=None)
    return transition(
        task,
        Status.RETRY_SCHEDULED,
        now,
        next_scheduled_run_ts=at,
        admission=admission,
        due_at=at + (CHECK_QUEUED if admission.lane is not None and admission.admitted_ts is None else grace),
        attempts_excused=task.attempts_excused + (1 if excuse else 0),
        throttled_count=task.throttled_count + (1 if throttled else 0),
        starts_refused=task.starts_refused + (1 if refused else 0),
        error_code=code,
        result_summary=_short(redacted(summary)),
        result_extended=_bounded(task, now, code, extended or summary) if noted else task.result_extended,
        lease=task.lease.ended(),
        eta_ts=None,
    )


def resubmit(
    task: Task,
    now: datetime,
    *,
    payload: str,
    synchronous: bool,
    grace: timedelta,
    restarted: Mapping[str, Any] | None,
    at: datetime | None = None,
    deadline_ts: datetime | None = None,
    payload_version: int | None = None,
    requested_by: Caller | None = None,
    repeats: int | None = None,
) -> Task:
    """Submit a terminal task again with a fresh retry budget: for a retry, a repeated request, or recurrence.
    `restarted` are the details of a fresh start; None continues with the current ones. `at` is when it runs, now if
    None. `payload_version` is None for an unchanged payload. `requested_by` is None if no caller repeats it. `repeats`,
    the number of this repeat, is None unless a request is repeated."""
    fresh: dict[str, Any] = {"effects_began_ts": None, "progress_ts": None, "progress": None, "reported": {}}
    begun = {} if restarted is None else {"details": restarted, **fresh}
    return transition(
        task,
        Status.SUBMITTED,
        now,
        task_payload=payload,
        payload_version=payload_version or task.payload_version,
        received_timestamp=now,
        synchronous=synchronous,
        next_scheduled_run_ts=at or now,
        admission=task.admission.evolve(admitted_ts=None),
        due_at=(at or now) + (grace if task.admission.lane is None else CHECK_QUEUED),
        attempts_excused=task.attempt_count,
        throttled_count=0,
        starts_refused=0,
        hand_overs=HandOvers(),
        killed=KilledAttempts(),
        deadline_ts=deadline_ts,
        dispatches=task.dispatches.answered(),
        cancel_requested=False,
        requested_by=requested_by or task.requested_by,
        cancelled_by=None,
        repeats=repeats,
        error_code=None,
        result_summary=None,
        result_extended=None,
        result_location=None,
        pending_result=None,
        result_attempt=None,
        family=_without_children(task),
        **begun,
    )


def _without_children(task: Task) -> AdoptedChildren:
    """Return the family of a resubmitted task. After a FAILURE it finds the children without identity again."""
    family = task.family.evolve(children=(), child_ordinal=None)
    if not task.family.children:
        return family
    is_new_run = task.status is Status.SUCCESS or task.recurrence_seconds is not None
    runs = (family.runs_before or 0) + 1 if is_new_run else family.runs_before
    return family.evolve(attempts_before=task.attempt_count, runs_before=runs)


def adopt(task: Task, attempt: int, child: Task, *, nameless: bool) -> tuple[Task, Task]:
    """Return the parent, unchanged if possible, and the child to adopt for this attempt. Raises LeaseLost. A `nameless`
    child's id is derived from parent, run and ordinal, so the next attempt finds it."""
    held_by(task, attempt)
    family = task.family
    if task.task_id not in family.children:
        family = family.evolve(children=(*family.children, task.task_id))
    if nameless:
        ordinal = (family.child_ordinal or 0) + 1
        name = f"polaris-task:{child.task_type}:child:{task.task_id}:{family.runs_before or 0}:{ordinal}"
        family = family.evolve(child_ordinal=ordinal)
        child = child.evolve(task_id=str(uuid.uuid5(uuid.NAMESPACE_URL, name)))
    after = task if family is task.family else task.evolve(family=family)
    return after, child.evolve(parent_id=task.task_id)


def queued(task: Task, lane: str, now: datetime) -> Task:
    """Put a waiting task into a lane for its admission, from its next run on."""
    return task.evolve(admission=LanePlace(lane=lane), due_at=(task.next_scheduled_run_ts or now) + CHECK_QUEUED)


def admitted(task: Task, now: datetime, *, due_at: datetime) -> Task:
    """Let a queued task start, and count the dispatch that is about to be sent."""
    admission = task.admission.evolve(admitted_ts=now)
    return task.evolve(admission=admission, dispatches=task.dispatches.next(), due_at=due_at)


def _short(text: str) -> str:
    return text if len(text) <= _SUMMARY_LIMIT else text[: _SUMMARY_LIMIT - 1] + "…"


def _bounded(task: Task, now: datetime, code: str, text: str) -> str:
    """Append an error without secrets to the history, and cut the oldest text."""
    line = f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} attempt {task.attempt_count} {code}: {redacted(text)}"
    history = f"{task.result_extended}\n{line}" if task.result_extended else line
    return history[-_RESULT_LIMIT:]


def repeats_so_far(task: Task, now: datetime) -> int:
    """Return the number of repeats in the series that another repeat of a terminal task would continue."""
    return 0 if now - task.last_status_change_ts >= REST else task.repeats or 0


def is_repeat(task: Task, payload: str) -> bool:
    """Return whether running a terminal task again with this payload repeats it. A FAILURE is repeated with any
    payload, a SUCCESS only with the same: a different table with its id, such as a registered clone, is new work."""
    return task.status is Status.FAILURE or task.task_payload == payload
