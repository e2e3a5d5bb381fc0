"""Why a task is in its state, and what happens next, from its record and the time alone."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from delegation.cli.screens import asker_text, duration_text, full_text, outcome_text, plain, size_text
from delegation.tasks.stores.admission import QueuePlace
from delegation.timestamps import isoformat
from delegation.wire.operators import ShownPause
from delegation.wire.tasks import TaskRecord

_SWEEP: Final = timedelta(minutes=1)
"""How often the sweeper searches for tasks that are due or lost (docs/architecture/running.md)."""
_HELD: Final = frozenset({"ACQUIRING_RESOURCES", "RUNNING"})
_WAITING: Final = frozenset({"SUBMITTED", "RETRY_SCHEDULED"})
_CANCELLED: Final = "CANCELLED"
_DEADLINE: Final = "DEADLINE_EXCEEDED"


@dataclass(frozen=True, slots=True)
class Why:
    """The state of a task in sentences; `when` is the time of what happens next, `advice` what an operator can do."""

    task_id: str
    what: str
    status: str
    attempt: str
    holder: str
    progress: str
    last_error: str
    next: str
    when: datetime | None = None
    advice: str = ""

    def document(self) -> Mapping[str, Any]:
        return {**asdict(self), "when": None if self.when is None else isoformat(self.when)}


def explain(
    task: TaskRecord,
    now: datetime,
    pauses: Sequence[ShownPause] = (),
    waiting: QueuePlace | None = None,
    *,
    executed_by: str | None = None,
) -> Why:
    """Return why a task is in its status; `executed_by` is the id of another task that executed its plan."""
    pause = pause_over(task, pauses)
    waits = waiting or _waiting_by_record(task)
    if pause is not None:
        next_text, when, advice = _next_of_paused(task, pause, now)
    elif waits is not None and task.status in _WAITING and not task.cancel_requested:
        next_text, when, advice = _next_of_queued(task, waits, now)
    elif executed_by is not None and task.succeeded:
        next_text, when, advice = f"Nothing: the task {plain(executed_by)} executed the plan.", None, ""
    else:
        next_text, when, advice = _next(task, now)
    since = task.last_status_change_ts
    return Why(
        task_id=task.task_id,
        what=plain(f"{task.task_type} of {task.shown_table}" if task.table else task.task_type),
        status=task.status + (f" for {_ago(since, now)}, since {full_text(since)}" if since else ""),
        attempt=_attempt(task),
        holder=_holder(task, now),
        progress=_progress(task, now),
        last_error=_last_error(task),
        next=next_text,
        when=when,
        advice=advice,
    )


def pause_over(task: TaskRecord, pauses: Sequence[ShownPause]) -> ShownPause | None:
    """Return the pause that holds a task, None without one or for a task that has ended; one that stops comes first."""

    def covers(pause: ShownPause) -> bool:
        if pause.scope == "table":
            return pause.table == task.table
        return pause.scope == "all" or task.table is not None

    covering = [] if task.is_terminal else [pause for pause in pauses if covers(pause)]
    return min(covering, key=lambda pause: pause.mode == "drain", default=None)


def _next_of_paused(task: TaskRecord, pause: ShownPause, now: datetime) -> tuple[str, datetime | None, str]:
    why = f" ({plain(pause.reason)})" if pause.reason else ""
    who = f"{plain(pause.by.client_id)} {_ago(pause.since, now)} ago{why}"
    option = f" --table {plain(pause.table or '')}" if pause.scope == "table" else ""
    option = " --realm" if pause.scope == "realm" else option
    advice = f"When the reason no longer applies: `delegation resume{option}`."
    if task.status in _HELD and pause.mode == "drain":
        return f"Drained by {who}: the holder will finish its work. No other attempt will begin.", None, advice
    if task.status in _HELD:
        return (
            f"Paused by {who}: the holder will hand the task over within a minute. The attempt will not be counted.",
            None,
            advice,
        )
    return f"Nothing until the work is resumed. It was paused by {who}.", None, advice


def _next(task: TaskRecord, now: datetime) -> tuple[str, datetime | None, str]:
    if task.status in _WAITING:
        return _next_of_waiting(task, now)
    if task.status in _HELD:
        return _next_of_held(task, now)
    if task.status == "SUCCESS":
        if task.outlook is not None and task.outlook.next_step is not None:
            text = "Nothing by itself: the task is done, and a person decides what follows."
            if task.is_approved(now):
                text = "The next run will execute the approved plan."
            elif task.waiting_plan is not None:
                text = f"Nothing until a person approves the plan ({plain(task.waits)})."
            return text, None, plain(task.outlook.next_step)
        recurs = task.recurrence_seconds is not None or task.recurrence_cron is not None
        return ("The next run will be submitted when it is due." if recurs else "Nothing: the task is done."), None, ""
    if task.status == "FAILURE":
        return _next_of_failed(task)
    return (
        f"Unknown: this release does not know the status {task.status}.",
        None,
        "Use the command of the release that wrote the task.",
    )


def _waiting_by_record(task: TaskRecord) -> QueuePlace | None:
    """Return the lane, by its record, of a task that waits for a place, None if it waits for none."""
    following = None if task.outlook is None else task.outlook.next_attempt
    if following is None or not following.awaits_admission:
        return None
    return QueuePlace(following.lane or "that this release of the service does not name")


def _next_of_queued(task: TaskRecord, waiting: QueuePlace, now: datetime) -> tuple[str, datetime | None, str]:
    attempt, at = task.attempt_count + 1, task.next_scheduled_run_ts
    lane = plain(waiting.lane)
    if at is not None and at > now:
        return f"Attempt {attempt} will wait for a place in the lane {lane} from {full_text(at)} on.", at, ""
    text = f"Attempt {attempt} " + ("waits" if at is None else f"has waited {_ago(at, now)}")
    text += f" for a place in the lane {lane}"
    if waiting.place is not None:
        text += f", at position {waiting.place}"
    if waiting.reasons:
        text += f"; the lane's next task cannot start yet ({plain('; '.join(waiting.reasons))})"
    advice = f"`delegation tasks why {task.task_id} --direct` shows its position in the lane and what it waits for."
    return f"{text}.", at, "" if waiting.reasons else advice


def _next_of_waiting(task: TaskRecord, now: datetime) -> tuple[str, datetime | None, str]:
    attempt, at = task.attempt_count + 1, task.next_scheduled_run_ts
    if task.cancel_requested:
        return "The task was cancelled. It will end as FAILURE once its children have ended.", None, ""
    if at is not None and at > now:
        return f"Attempt {attempt} will start in {_until(at, now)}.", at, ""
    late = timedelta(0) if at is None else now - at
    if late <= 2 * _SWEEP:
        return (
            f"Attempt {attempt} will start when a worker or an execution takes the task, within a minute or two.",
            at,
            "",
        )
    since = duration_text(late.total_seconds())
    text = f"Attempt {attempt} has been due for {since}, but no dispatcher or worker takes the task."
    return text, at, "`delegation doctor` checks the queue and the sweeper."


def _next_of_held(task: TaskRecord, now: datetime) -> tuple[str, datetime | None, str]:
    lost = task.lost_not_before
    if lost is not None and lost <= now:
        text = f"The lease ended {_ago(lost, now)} ago without an outcome: the sweeper will end attempt "
        text += f"{task.attempt_count}"
        then = "as FAILURE (CANCELLED)" if task.cancel_requested else "and plan the next attempt"
        advice = "If this lasts longer than two minutes, `delegation doctor` checks what the sweeper needs."
        return f"{text} {then} within a minute.", lost + _SWEEP, advice
    if task.cancel_requested:
        return "The holder will stop at its next checkpoint. Then the task will end as FAILURE (CANCELLED).", lost, ""
    if task.eta_ts is not None and task.eta_ts > now:
        return f"At the present rate, the work will be done in about {_until(task.eta_ts, now)}.", task.eta_ts, ""
    begins = "The holder works and renews its lease"
    if task.status == "ACQUIRING_RESOURCES" and task.engine == "spark":
        job = "a job that is being submitted" if task.job_run_id is None else f"job run {plain(task.job_run_id)}"
        begins = f"Spark is starting: {job} waits for its workers, usually for a minute or two"
    if lost is not None:
        return (
            f"{begins}. Without a sign of life, another attempt will follow in {_until(lost, now)}.",
            lost,
            "",
        )
    return f"{begins}.", None, ""


def _next_of_failed(task: TaskRecord) -> tuple[str, datetime | None, str]:
    retry = f"`delegation tasks retry {task.task_id}`"
    if task.partly_deleted:
        text = "Nothing by itself. Files were deleted before the failure: the table is incomplete."
        return (
            text,
            None,
            f"Remove the cause, then finish the task with {retry}. Do not drop the table before the task is SUCCESS.",
        )
    if task.error_code == _CANCELLED:
        return "Nothing: the task was cancelled and changed nothing.", None, f"{retry} starts it again."
    return f"Nothing by itself: {_why_ended(task)}.", None, f"Remove the cause, then {retry}."


def _why_ended(task: TaskRecord) -> str:
    """Return why no attempt follows a failure, as far as the record shows: a code that came twice was tried again."""
    counted = task.attempt_count - task.attempts_excused
    code = re.escape(task.error_code or "")
    times = len(re.findall(rf"^\S+ attempt \d+ {code}: ", task.result_extended or "", re.MULTILINE))
    if task.error_code == _DEADLINE:
        return "the task's deadline has passed"
    if counted <= 1 and task.synchronous:
        return "a synchronous task that fails before its first delete is not tried again"
    if counted <= 1:
        return "the error is final: another attempt would end the same way"
    if times > 1:
        return f"{counted} attempts failed, and none is left"
    return f"no attempt is left after {counted} attempts, or the last error is final"


def _attempt(task: TaskRecord) -> str:
    if not task.attempt_count:
        return "none yet"
    parts = []
    if task.attempts_excused:
        parts.append(f"{task.attempts_excused} not counted against the limit")
    if task.throttled_count:
        parts.append(f"{task.throttled_count} throttled")
    if task.starts_refused:
        parts.append(f"{task.starts_refused} could not be started")
    return f"{task.attempt_count}" + (f" ({', '.join(parts)})" if parts else "")


def _holder(task: TaskRecord, now: datetime) -> str:
    if task.status not in _HELD:
        return "none"
    unnamed = "a synchronous request" if task.synchronous else "a worker or execution"
    name = unnamed if task.lease_owner is None else plain(task.lease_owner)
    since = f", for {_ago(task.lease_acquired_ts, now)}" if task.lease_acquired_ts else ""
    engine = f", {task.engine} engine" if task.engine else ""
    job = f", job run {task.job_run_id}" if task.job_run_id else ""
    return f"{name}{since}{engine}{job}"


def _progress(task: TaskRecord, now: datetime) -> str:
    if task.files_planned is None and not task.files_deleted and not task.progress:
        return "none reported"
    of = "" if task.files_planned is None else f" of {task.files_planned:,}"
    parts = [f"{task.files_deleted:,}{of} files, {size_text(task.bytes_deleted)}"]
    if task.files_failed:
        parts.append(f"{task.files_failed:,} failed")
    if task.files_per_second and not task.is_terminal:
        parts.append(f"{task.files_per_second:,} a second")
    if task.files_planned is None and not task.files_deleted and task.progress:
        parts = [plain(", ".join(f"{name} {value}" for name, value in task.progress.items()))]
    reported = f", reported {_ago(task.progress_ts, now)} ago" if task.progress_ts and not task.is_terminal else ""
    return ", ".join(parts) + reported


def _last_error(task: TaskRecord) -> str:
    if task.error_code is None:
        return "none"
    text = outcome_text(task)
    by = task.cancelled_by
    return f"{text}, by {asker_text(by)}" if by is not None and task.error_code == _CANCELLED else text


def _until(at: datetime, now: datetime) -> str:
    return f"{duration_text((at - now).total_seconds())}, at {full_text(at)}"


def _ago(since: datetime, now: datetime) -> str:
    # A clock that is behind the service's must not show a negative time.
    return duration_text(max(0.0, (now - since).total_seconds()))
