"""What a behavior declares of its tasks: when they recur, and how they are retried."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Final

from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import ErrorClass
from delegation.timestamps import LONGEST_DURATION
from polaris_common.errors import DelegationError

CURSOR: Final = "cursor"
"""The detail that states, as JSON, how far the work of a run came; SUCCESS removes it."""
FORGIVEN: Final = "children_forgiven"
"""The detail that lists children whose failure the work has read, so that it does not fail their parent."""
AWAITS: Final = "awaits_child"
"""The detail of a parent that waits, with the id of the child whose end wakes it."""
NEXT_PAYLOAD: Final = "next_payload"
"""The detail with the parameters that the next run of a recurring task takes, while the present run has others."""

_ZONE: Final = "CRON_TZ="


def bad_schedule(message: str) -> DelegationError:
    return DelegationError(message, code=t.BAD_SCHEDULE)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """How a task recurs: `every` interval after each end, or at the times of `cron`; with neither it does not. `cron`
    has five fields, in UTC or a zone: `CRON_TZ=Europe/Berlin 30 3 * * *`. Times that pass while a run lasts or nothing
    runs are skipped; a time that daylight saving skips or repeats runs once."""

    every: timedelta | None = None
    cron: str | None = None

    def __post_init__(self) -> None:
        if self.every is not None and self.cron is not None:
            raise bad_schedule("a task recurs by an interval or by a cron expression, not by both")
        if self.every is not None and self.every < timedelta(seconds=1):
            raise bad_schedule(f"every: {self.every} is shorter than a second")
        if self.every is not None and self.every % timedelta(seconds=1):
            raise bad_schedule(f"every: {self.every} is not in whole seconds")
        if self.every is not None and self.every > LONGEST_DURATION:
            raise bad_schedule(f"every: {self.every} is longer than {LONGEST_DURATION.days} days")
        if self.cron is not None:
            _next_time(self.cron, datetime(2000, 1, 1, tzinfo=UTC))

    def __bool__(self) -> bool:
        return self.every is not None or self.cron is not None

    @classmethod
    def of(cls, task: Task) -> "Recurrence":
        """Return how a stored task recurs; raises DelegationError (BAD_SCHEDULE) if this process cannot compute it."""
        seconds = task.recurrence_seconds
        try:
            every = None if seconds is None else timedelta(seconds=seconds)
        except OverflowError:
            raise bad_schedule(f"every: {seconds} s is longer than {LONGEST_DURATION.days} days") from None
        return cls(every, task.recurrence_cron)

    def next_run(self, now: datetime) -> datetime:
        """Return when the run after one that ended now begins; now for a task that does not recur."""
        if self.cron is not None:
            return _next_time(self.cron, now)
        return now + (self.every or timedelta(0))

    def fields(self) -> dict[str, Any]:
        seconds = None if self.every is None else int(self.every.total_seconds())
        return {"recurrence_seconds": seconds, "recurrence_cron": self.cron}


def _next_time(cron: str, after: datetime) -> datetime:
    """Return the first time of an expression after a moment, in UTC; raises DelegationError (BAD_SCHEDULE)."""
    # Most processes never compute a time.
    from delegation.cron import cron_times, zone_named  # noqa: PLC0415

    zone, _, expression = cron.removeprefix(_ZONE).partition(" ") if cron.startswith(_ZONE) else ("UTC", "", cron)
    try:
        return next(cron_times(expression, zone_named(zone), after))
    except ValueError as error:
        raise bad_schedule(f"cron: {cron!r}: {error}") from None


def rescheduled(task: Task, wanted: Task, now: datetime, *, moved: bool) -> Task:
    """Return an existing task without outcome, submitted again as `wanted`; unchanged if nothing differs. A submission
    with a schedule replaces the schedule and parameters, from the next run on if one has begun. One with a time
    (`moved`) replaces the time of a task that has not begun."""
    if task.is_terminal or not (wanted.is_recurring or moved):
        return task
    changed = task
    if wanted.is_recurring and _recurs_otherwise(task, wanted):
        changed = changed.evolve(**Recurrence.of(wanted).fields())
    if task.status is not Status.SUBMITTED:
        return _with_next_payload(changed, wanted) if wanted.is_recurring else changed
    if wanted.task_payload != task.task_payload:
        changed = changed.evolve(task_payload=wanted.task_payload)
    at = wanted.next_scheduled_run_ts if moved else _brought_forward(task, changed, now)
    if at is None or at == task.next_scheduled_run_ts:
        return changed
    waiting = changed.evolve(next_scheduled_run_ts=at, due_at=at)
    return waiting if task.admission.lane is None else t.queued(waiting, task.admission.lane, now)


def with_schedule_of(first: Task, again: Task, *, same_work: bool) -> Task:
    """Return a task submitted again after its outcome, with the new submission's recurrence. It continues at its cursor
    only for the same work."""
    stale = (NEXT_PAYLOAD,) if same_work else (NEXT_PAYLOAD, CURSOR, FORGIVEN)
    changes = Recurrence.of(first).fields() if first.is_recurring else {}
    return again.with_details(dict.fromkeys(stale), **changes)


def _brought_forward(task: Task, changed: Task, now: datetime) -> datetime | None:
    """Return when the next run begins after a change of the recurrence; a task that is due stays due."""
    present = task.next_scheduled_run_ts
    if not _recurs_otherwise(task, changed) or present is None or present <= now:
        return present
    following = Recurrence.of(changed).next_run(now)
    return following if changed.recurrence_cron is not None else min(present, following)


def _recurs_otherwise(task: Task, other: Task) -> bool:
    """Return whether two tasks recur in different ways, also where that of a stored one is none that can be."""
    fields = attrgetter("recurrence_seconds", "recurrence_cron")
    return fields(task) != fields(other)


def _with_next_payload(task: Task, wanted: Task) -> Task:
    payload = None if wanted.task_payload == task.task_payload else wanted.task_payload
    return task if task.details.get(NEXT_PAYLOAD) == payload else task.with_details({NEXT_PAYLOAD: payload})


def next_payload(ended: Task) -> str:
    """Return the parameters of the run after one that ended."""
    payload: str = ended.details.get(NEXT_PAYLOAD, ended.task_payload)
    return payload


def next_details(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details of the run after one that ended."""
    return {name: value for name, value in details.items() if name != NEXT_PAYLOAD}


def is_wanted(head: Task | None, every: timedelta | None, now: datetime) -> bool:
    """Return whether a recurring task of the service must be submitted: absent, or ended an interval ago. Such a task
    ends only by cancellation or failure, and is needed anyway."""
    if head is None:
        return True
    return head.is_terminal and every is not None and now - head.last_status_change_ts >= every


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, how fast and after which errors attempts are retried. None follows `delegation.retry.default.*`;
    `delegation.retry.TYPE.*` overrides everything. With `on` only these errors are retried, otherwise all except
    `never` and each DelegationError that is not `retryable`."""

    attempts: int | None = None
    backoff: timedelta | None = None
    multiplier: float | None = None
    longest: timedelta | None = None
    jitter: bool | None = None
    on: tuple[type[Exception], ...] = ()
    never: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"attempts: {self.attempts} is less than 1")
        if self.multiplier is not None and not 1 <= self.multiplier < math.inf:
            raise ValueError(f"multiplier: {self.multiplier} is not a number of at least 1")
        for name in ("backoff", "longest"):
            wait = getattr(self, name)
            if wait is not None and not timedelta(0) <= wait <= LONGEST_DURATION:
                raise ValueError(f"{name}: {wait} is not between nothing and {LONGEST_DURATION.days} days")

    def fields(self) -> Mapping[str, Any]:
        declared = {
            "max_attempts": self.attempts,
            "initial_backoff": self.backoff,
            "backoff_multiplier": self.multiplier,
            "max_backoff": self.longest,
            "jitter": self.jitter,
        }
        return {name: value for name, value in declared.items() if value is not None}

    def error_class(self, error: Exception) -> ErrorClass:
        """Return whether another attempt may help after this error of the work."""
        if self.on:
            retried = isinstance(error, self.on) and not isinstance(error, self.never)
        elif isinstance(error, DelegationError):
            retried = error.retryable and not isinstance(error, self.never)
        else:
            retried = not isinstance(error, self.never)
        return ErrorClass.TRANSIENT if retried else ErrorClass.PERMANENT


PLAIN_RETRY: Final = Retry()
"""Retries as the properties have them, after every error that another attempt may mend."""
