"""A task's progress and next attempt, as pure functions of its record and the time."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import zip_longest
from typing import Any, Final

from delegation.tasks.errors import ChildrenPending
from delegation.tasks.life.declared import Measured, TaskTypes
from delegation.tasks.life.lanes import Lane
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import is_lost
from delegation.tasks.life.transitions import HANDED_OVER
from delegation.timestamps import isoformat
from delegation.wire.tasks import LastError, NextAttempt, Outlook, WorkProgress, WorkRate

_NO_ERRORS: Final = frozenset({HANDED_OVER, ChildrenPending.code})
"""Codes of attempts that another attempt continues."""
_ENTRY: Final = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) attempt (\d{1,18}) (\w+): ", re.ASCII | re.MULTILINE)
"""The start of an error in a record's `result_extended` (`transitions.fail`)."""
_LONGEST_MESSAGE: Final = 1_024


def outlook_of(task: Task, now: datetime, types: TaskTypes) -> dict[str, Any]:
    measured = types.of(task).measured(task)
    runs = task.status is Status.RUNNING and not is_lost(task, now)
    rate = _rate(task, measured, now)
    outlook = Outlook(
        as_of=now,
        progress=_progress(task, measured),
        rate=rate,
        eta_ts=task.eta_ts if runs and task.eta_ts is not None and task.eta_ts > now else None,
        next_attempt=_next_attempt(task, now),
        next_step=types.of(task).next_step(task),
        last_error=_last_error(task),
    )
    json: dict[str, Any] = _as_json(outlook.model_dump())
    return json


def estimate_of(task: Task, forecast: Mapping[str, Any], now: datetime, types: TaskTypes) -> dict[str, Any]:
    """Return the forecast of a task's plan with what remains now (wire.responses.Estimate). The rest proceeds at the
    measured rate of a running task, else at the forecast's."""
    measured = types.of(task).measured(task)
    deleted = 0 if measured is None else measured.done
    done = measured is not None and task.status is Status.SUCCESS
    left = 0 if done else max(forecast["files"] - deleted, 0)
    rate = _rate(task, measured, now)
    per_second = (None if rate is None else rate.per_second) or forecast["keys_per_second"]
    return {
        "task_id": task.task_id,
        "task_status": task.status,
        **{name: value for name, value in forecast.items() if name != "format"},
        "files_left": left,
        "seconds_left": round(left / per_second, 1),
    }


def _rate(task: Task, measured: Measured | None, now: datetime) -> WorkRate | None:
    """Return the rate of running work, None if unknown."""
    runs = task.status is Status.RUNNING and not is_lost(task, now)
    if measured is None or measured.per_second is None or not runs:
        return None
    return WorkRate(per_second=measured.per_second, unit=measured.unit)


def _progress(task: Task, measured: Measured | None) -> WorkProgress | None:
    """Return what the work reported, else what its type measures, once the total is known."""
    if task.progress is not None:
        done, total = task.progress.done, task.progress.total
        unit, message = task.progress.unit, task.progress.message
    elif measured is not None and measured.total is not None:
        done, total, unit, message = measured.done, measured.total, measured.unit, None
    else:
        return None
    percent = percent_of(done, total)
    return WorkProgress(
        done=done, total=total, unit=unit, percent=percent, message=message, reported_ts=task.progress_ts
    )


def percent_of(done: int | None, total: int | None) -> float | None:
    """Return the finished part in percent, rounded down to a tenth; None without a total."""
    if done is None or not total:
        return None
    return math.floor(1000 * min(done, total) / total) / 10 if done < total else 100.0


def _next_attempt(task: Task, now: datetime) -> NextAttempt | None:
    """Return the next attempt; for a held task only once its holder is presumed lost."""
    at = task.lease.lost_not_before if is_lost(task, now) else task.next_scheduled_run_ts
    if at is None:
        return None
    seconds = round(max(0.0, (at - now).total_seconds()), 3)
    lane = Lane.parse(task.admission.lane).words if task.is_queued and task.admission.lane is not None else None
    number = task.attempt_count + 1
    return NextAttempt(number=number, at=at, seconds=seconds, awaits_admission=task.is_queued, lane=lane)


def _last_error(task: Task) -> LastError | None:
    """Return the last error of the present submission; a hand-over is none."""
    if task.status is Status.SUCCESS:
        return None
    entries = [entry for entry in _errors(task.result_extended or "") if entry.code not in _NO_ERRORS]
    last = entries[-1] if entries else None
    if task.error_code is None or task.error_code in _NO_ERRORS:
        return last
    message = task.result_summary or ""
    if last is not None and last.code == task.error_code:
        return last.model_copy(update={"message": message or last.message})
    return LastError(code=task.error_code, message=message)


def _errors(history: str) -> Iterator[LastError]:
    """Yield the errors of a record's history, oldest first."""
    starts = [match for match in _ENTRY.finditer(history) if _moment(match[1]) is not None]
    for start, following in zip_longest(starts, starts[1:]):
        end = len(history) if following is None else following.start()
        message = history[start.end() : end].strip()[:_LONGEST_MESSAGE]
        yield LastError(code=start[3], message=message, at=_moment(start[1]), attempt=int(start[2]))


def _as_json(value: Any) -> Any:
    """Return values as JSON has them, with times in the format of a record."""
    if isinstance(value, dict):
        return {name: _as_json(member) for name, member in value.items()}
    return isoformat(value) if isinstance(value, datetime) else value


def _moment(text: str) -> datetime | None:
    """Return a time of a history; None for an error text that only looks like one."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
