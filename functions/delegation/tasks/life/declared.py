"""What is declared for a task type: its recurrence, its retries, and one value with all that submitting, storing,
counting and showing its tasks needs. `TaskTypes` are a deployment's; `wiring.types` lists them. Code for all types uses
this value and names no type."""

import importlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import BaseModel

from delegation.metrics import Metric
from delegation.tasks.life import transitions as t
from delegation.tasks.life.lanes import Traits, TraitsOf
from delegation.tasks.life.model import Labels, LabelsOf, Status, Task
from delegation.tasks.life.outcomes import ErrorClass
from delegation.timestamps import LONGEST_DURATION
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.tasks.options import RequestForm


CURSOR: Final = "cursor"
"""The detail with a run's progress as JSON; SUCCESS removes it."""
FORGIVEN: Final = "children_forgiven"
"""The detail that lists children whose failure the work has handled, so that it does not fail their parent."""
AWAITS: Final = "awaits_child"
"""The detail of a waiting parent: the id of the child whose end wakes it."""
NEXT_PAYLOAD: Final = "next_payload"
"""The detail with the parameters of a recurring task's next run, while the present run has others."""

_ZONE: Final = "CRON_TZ="


def bad_schedule(message: str) -> DelegationError:
    return DelegationError(message, code=t.BAD_SCHEDULE)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """How a task recurs: an interval `every` after each end, or at the times of `cron`; with neither it does not.
    `cron` has five fields, in UTC or a zone: `CRON_TZ=Europe/Berlin 30 3 * * *`. Times that pass during a run or an
    outage are skipped. A time that daylight saving skips or repeats runs once."""

    every: timedelta | None = None
    cron: str | None = None

    def __post_init__(self) -> None:
        if self.every is not None and self.cron is not None:
            raise bad_schedule("set an interval or a cron expression, not both")
        if self.every is not None and self.every < timedelta(seconds=1):
            raise bad_schedule(f"every: {self.every} is shorter than a second")
        if self.every is not None and self.every % timedelta(seconds=1):
            raise bad_schedule(f"every: {self.every} is not a whole number of seconds")
        if self.every is not None and self.every > LONGEST_DURATION:
            raise bad_schedule(f"every: {self.every} is longer than {LONGEST_DURATION.days} days")
        if self.cron is not None:
            _next_time(self.cron, datetime(2000, 1, 1, tzinfo=UTC))

    def __bool__(self) -> bool:
        return self.every is not None or self.cron is not None

    @classmethod
    def of(cls, task: Task) -> "Recurrence":
        """Return how a stored task recurs. Raises DelegationError (BAD_SCHEDULE) if this process cannot compute it."""
        seconds = task.recurrence_seconds
        try:
            every = None if seconds is None else timedelta(seconds=seconds)
        except OverflowError:
            raise bad_schedule(f"every: {seconds} s is longer than {LONGEST_DURATION.days} days") from None
        return cls(every, task.recurrence_cron)

    def next_run(self, now: datetime) -> datetime:
        """Return when the next run starts after one that ended now; now for a task that does not recur."""
        if self.cron is not None:
            return _next_time(self.cron, now)
        return now + (self.every or timedelta(0))

    def fields(self) -> dict[str, Any]:
        seconds = None if self.every is None else int(self.every.total_seconds())
        return {"recurrence_seconds": seconds, "recurrence_cron": self.cron}


def _next_time(cron: str, after: datetime) -> datetime:
    """Return the first time of an expression after a moment, in UTC. Raises DelegationError (BAD_SCHEDULE)."""
    # Most processes never compute a time.
    from delegation.cron import cron_times, zone_named  # noqa: PLC0415

    zone, _, expression = cron.removeprefix(_ZONE).partition(" ") if cron.startswith(_ZONE) else ("UTC", "", cron)
    try:
        return next(cron_times(expression, zone_named(zone), after))
    except ValueError as error:
        raise bad_schedule(f"cron: {cron!r}: {error}") from None


def rescheduled(task: Task, wanted: Task, now: datetime, *, moved: bool) -> Task:
    """Return an existing task without outcome, submitted again as `wanted`; unchanged if nothing differs. A submission
    with a schedule replaces schedule and parameters, from the next run on if one is in progress. With `moved` it
    replaces the time of a task that has not started."""
    if task.is_terminal or not (wanted.is_recurring or moved):
        return task
    changed = task
    if wanted.is_recurring and _recurs_otherwise(task, wanted):
        changed = changed.evolve(**Recurrence.of(wanted).fields())
    if task.status is not Status.SUBMITTED:
        if not wanted.is_recurring:
            return changed
        payload = None if wanted.task_payload == task.task_payload else wanted.task_payload
        return (
            changed if changed.details.get(NEXT_PAYLOAD) == payload else changed.with_details({NEXT_PAYLOAD: payload})
        )
    if wanted.task_payload != task.task_payload:
        changed = changed.evolve(task_payload=wanted.task_payload)
    at = wanted.next_scheduled_run_ts if moved else _brought_forward(task, changed, now)
    if at is None or at == task.next_scheduled_run_ts:
        return changed
    waiting = changed.evolve(next_scheduled_run_ts=at, due_at=at)
    return waiting if task.admission.lane is None else t.queued(waiting, task.admission.lane, now)


def with_schedule_of(first: Task, again: Task, *, same_work: bool) -> Task:
    """Return a task submitted again after its outcome, with the new submission's recurrence. It keeps its cursor only
    for the same work."""
    stale = (NEXT_PAYLOAD,) if same_work else (NEXT_PAYLOAD, CURSOR, FORGIVEN)
    changes = Recurrence.of(first).fields() if first.is_recurring else {}
    return again.with_details(dict.fromkeys(stale), **changes)


def _brought_forward(task: Task, changed: Task, now: datetime) -> datetime | None:
    """Return when the next run starts after a change of the recurrence; a task that is due stays due."""
    present = task.next_scheduled_run_ts
    if not _recurs_otherwise(task, changed) or present is None or present <= now:
        return present
    following = Recurrence.of(changed).next_run(now)
    return following if changed.recurrence_cron is not None else min(present, following)


def _recurs_otherwise(task: Task, other: Task) -> bool:
    """Return whether two tasks recur in different ways. A stored schedule may be one that cannot be computed."""
    fields = attrgetter("recurrence_seconds", "recurrence_cron")
    return fields(task) != fields(other)


def next_payload(ended: Task) -> str:
    """Return the parameters of the run after one that ended."""
    payload: str = ended.details.get(NEXT_PAYLOAD, ended.task_payload)
    return payload


def next_details(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details of the run after one that ended."""
    return {name: value for name, value in details.items() if name != NEXT_PAYLOAD}


def is_wanted(head: Task | None, every: timedelta | None, now: datetime) -> bool:
    """Return whether the service must submit its recurring task: it is absent, or ended an interval ago. Such a task
    ends only by cancellation or failure, and is needed anyway."""
    if head is None:
        return True
    return head.is_terminal and every is not None and now - head.last_status_change_ts >= every


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, how fast and after which errors attempts are retried. None uses `delegation.retry.default.*`;
    `delegation.retry.TYPE.*` overrides everything. With `on` only these errors are retried. Otherwise all are, except
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
                raise ValueError(f"{name}: {wait} is not between 0 and {LONGEST_DURATION.days} days")

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
        """Return how the policy treats this error of the work."""
        if self.on:
            retried = isinstance(error, self.on) and not isinstance(error, self.never)
        elif isinstance(error, DelegationError):
            retried = error.retryable and not isinstance(error, self.never)
        else:
            retried = not isinstance(error, self.never)
        return ErrorClass.TRANSIENT if retried else ErrorClass.PERMANENT


PLAIN_RETRY: Final = Retry()
"""Retries as the properties configure them, after every retryable error."""


def named(reference: str) -> Any:
    """Return the object named `module:name`, importing its module."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


_form = cache(named)


class KnownTypes(dict[str, int]):
    """Task types, each with the newest version of its payload that the deployment reads."""


def runs(task_types: Collection[str], task: Task) -> bool:
    """Return whether a task's type and payload version are known. A plain collection knows version 1."""
    if task.task_type not in task_types:
        return False
    newest = task_types[task.task_type] if isinstance(task_types, KnownTypes) else 1
    return task.payload_version <= newest


class DetailRules(Protocol):
    """What happens to a task's details when it is submitted again."""

    def resumes(self, task: Task) -> bool:
        """Return whether a resubmitted FAILURE continues where it stopped and keeps its details."""

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the details of a task that starts from the beginning; those of a newer release must be kept."""


class KeptDetails:
    """DetailRules that keep all details: any of them may belong to a newer release."""

    def resumes(self, task: Task) -> bool:
        return task.effects_began_ts is not None

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        return details


@dataclass(frozen=True, slots=True)
class Measured:
    """A task's progress from its details: `done` of `total` things, and `per_second` now."""

    done: int
    total: int | None
    unit: str
    per_second: int | None = None


def _unmeasured(_task: Task) -> None: ...


def _no_result(_task: Task) -> None: ...


def _no_receipt(_task: Task) -> None: ...


def _no_next_step(_task: Task) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskType:
    """One task type, by the name that its tasks are stored under.

    `labels` are what lists and pauses find a task by, None if its payload has none. `traits` decide its admission.
    `counted` are the details in the line of an end, each with the metric that sums it, if any. `retry` are the defaults
    of `delegation.retry.NAME.*`. Housekeeping never waits for a place behind callers' tasks and counts against no cap.
    `payload_version` is the newest that this release reads. `requests` names the form of its requests as `module:form`,
    None if no request may submit one. `measured` returns a task's progress, `execution_result` the SUCCESS in the
    answer to a waiting caller, `receipt_key` the receipt's key in the plan bucket, `next_step` what a person must
    decide after the end, with commands. `properties` is the prefix of the type's own properties. The service itself
    submits a type that `is_own`. `runner` names the function, as `module:function`, that makes the type's behaviors in
    a process that runs tasks; `waited_for` the one for a process whose caller waits. Without it another type's behavior
    runs it. `forecast` names the function that forecasts a plan's cost as JSON. A job run may write to `folders` of the
    record bucket besides its task's own. A type that `needs_jars` loads the deployment's.
    """

    name: str
    payload_version: int = 1
    labels: LabelsOf | None = None
    traits: TraitsOf | None = None
    details: DetailRules = field(default_factory=KeptDetails)
    counted: Mapping[str, Metric | None] = field(default_factory=dict)
    retry: Mapping[str, str] = field(default_factory=dict)
    is_housekeeping: bool = False
    is_own: bool = False
    properties: str | None = None
    runner: str | None = None
    waited_for: str | None = None
    forecast: str | None = None
    folders: tuple[str, ...] = ()
    needs_jars: bool = False
    requests: str | None = None
    measured: Callable[[Task], Measured | None] = _unmeasured
    execution_result: Callable[[Task], BaseModel | None] = _no_result
    receipt_key: Callable[[Task], str | None] = _no_receipt
    next_step: Callable[[Task], str | None] = _no_next_step

    def run_by(self, runner: str, *, waited_for: str | None = None) -> "TaskType":
        return replace(self, runner=runner, waited_for=waited_for or runner)

    def forecast_by(self, forecast: str) -> "TaskType":
        return replace(self, forecast=forecast)


class TaskTypes(dict[str, TaskType]):
    """The task types of a deployment by name. A task of any other type belongs to a newer deployment."""

    def __init__(self, types: Iterable[TaskType] = ()) -> None:
        super().__init__((task_type.name, task_type) for task_type in types)

    def of(self, task: Task) -> TaskType:
        """Return a task's type; for an unlisted name one without any knowledge."""
        return self.get(task.task_type) or TaskType(name=task.task_type)

    def labels(self, task: Task) -> Labels:
        """Return what a task's type reads from its payload: target, correlation id of the request, realm."""
        labels_of = self.of(task).labels
        return Labels() if labels_of is None else labels_of(task.task_payload)

    def labelled(self, task: Task) -> Task:
        """Return a task with the digests of its labels; unchanged if its type has none."""
        labels_of = self.of(task).labels
        return task if labels_of is None else task.evolve(**labels_of(task.task_payload).keys())

    def traits(self, task: Task) -> Traits:
        traits_of = self.of(task).traits
        return Traits() if traits_of is None else traits_of(task.task_payload)

    def restarted(self, task: Task, *, resumes: bool | None = None) -> Mapping[str, Any] | None:
        """Return the details with which a resubmitted task starts, None if it continues where it stopped. Its type's
        rules decide unless `resumes` is given."""
        rules = self.of(task).details
        resumes = rules.resumes(task) if resumes is None else resumes
        return None if resumes else rules.restarted(task.details)

    @property
    def counted(self) -> Mapping[str, Metric | None]:
        """The details that the lines of ends show, for all types."""
        return {name: metric for task_type in self.values() for name, metric in task_type.counted.items()}

    @property
    def known(self) -> KnownTypes:
        """The types, each with the newest version of its payloads that this release reads."""
        return KnownTypes({name: task_type.payload_version for name, task_type in self.items()})

    @property
    def own(self) -> frozenset[str]:
        """The types whose tasks the service submits itself."""
        return frozenset(name for name, task_type in self.items() if task_type.is_own)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of properties that belong to one type."""
        return tuple(task_type.properties for task_type in self.values() if task_type.properties is not None)

    @property
    def forms(self) -> "Sequence[RequestForm]":
        """The forms of the requests that callers may send, in the order of the types."""
        return [_form(task_type.requests) for task_type in self.values() if task_type.requests is not None]

    @property
    def forms_by_operation(self) -> "Mapping[str, RequestForm]":
        """The forms by operation name, in the order of the types."""
        return {name: form for form in self.forms for name in form.operations}

    @property
    def retry_properties(self) -> Mapping[str, str]:
        return {
            f"delegation.retry.{task_type.name}.{name}": value
            for task_type in self.values()
            for name, value in task_type.retry.items()
        }


NO_TYPES: Final = TaskTypes()
"""For a process that only moves tasks: nothing is known of any."""
