"""When a task is retried and how long a lease lasts, by the property names of the Delegation Service proposal."""

import difflib
import math
import random
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from delegation.tasks.life import notifications as notices
from delegation.tasks.life.lanes import PREFIX as CAPS
from delegation.tasks.life.lanes import Caps
from delegation.tasks.life.model import Task
from delegation.tasks.life.notifications import NotificationPolicy
from delegation.timestamps import parse_duration
from polaris_common.backoff import exponential
from polaris_common.errors import DelegationError

STORE_MAINTENANCE: Final = "STORE_MAINTENANCE"
"""The type of the recurring task that MaintenancePolicy configures."""
_LOST_TIMEOUT: Final = "delegation.task.lease.lost-timeout-duration"
_CLOCK_DRIFT: Final = "delegation.task.lease.clock-drift-duration"
_GRACE: Final = "delegation.dispatch.grace-duration"
_RETENTION: Final = "delegation.maintenance.task-retention-duration"
_INTERVAL: Final = "delegation.maintenance.interval-duration"
_LEAST_RETENTION: Final = timedelta(days=91)
"""Longer than Step Functions keeps an execution's name and than an idempotency record outlives its task."""
LONGEST_DRIFT: Final = timedelta(seconds=10)
"""By how much a lease inside a Lambda function outlasts the function's deadline, at which the attempt hands over."""
_DEADLINE: Final = re.compile(r"delegation\.task\.([A-Za-z][\w.-]*)\.deadline-duration", re.ASCII)
_DEFAULT: Final = "default"
_RETRY: Final = re.compile(r"delegation\.retry\.([A-Za-z][\w.-]*)\.([a-z-]+)", re.ASCII)
MAX_EXCUSED: Final = 20
"""The most throttled attempts that are excused, and the most hand-overs in a row without progress."""


class InvalidProperty(DelegationError):
    """A property has an unknown name or a bad value; the service does not start with it."""

    code = "INVALID_PROPERTY"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name


def duration_property(name: str, value: str) -> timedelta:
    """Return the duration in a property's value. Raises InvalidProperty."""
    try:
        return parse_duration(value)
    except ValueError as error:
        raise InvalidProperty(name, str(error)) from error


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast a task is retried; defaults of the Delegation Service proposal, Task Retry."""

    max_attempts: int = 5
    initial_backoff: timedelta = timedelta(seconds=30)
    backoff_multiplier: float = 2.0
    max_backoff: timedelta = timedelta(hours=1)
    jitter: bool = False

    def exhausted(self, task: Task) -> bool:
        """Return whether the attempt that just ended was the last one allowed."""
        return task.unexcused_attempts >= self.max_attempts

    def backoff(self, failures: int, *, draw: Callable[[], float] = random.random) -> timedelta:
        """Return the wait after `failures` ≥ 1 failed attempts; with jitter, a random part of it."""
        first, longest = self.initial_backoff.total_seconds(), self.max_backoff.total_seconds()
        wait = timedelta(seconds=exponential(failures, first, longest, multiplier=self.backoff_multiplier))
        return wait * draw() if self.jitter else wait


@dataclass(frozen=True, slots=True)
class LeasePolicy:
    """How long a holder without a heartbeat keeps its lease, and how far clocks may differ."""

    lost_timeout: timedelta = timedelta(hours=1)
    clock_drift: timedelta = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class DispatchPolicy:
    """When a dispatch that started no attempt is repeated, and after how many the task fails."""

    grace: timedelta = timedelta(seconds=60)
    max_backoff: timedelta = timedelta(hours=1)
    max_dispatches: int = 20

    def due_after(self, moment: datetime) -> datetime:
        """Return when the sweeper dispatches a task that waits until `moment`."""
        return moment + self.grace

    def next_check(self, task: Task, now: datetime) -> datetime:
        """Return when to check the task after the dispatch that is about to be counted."""
        doublings: int = 2 ** min(task.dispatches.unanswered, 16)
        return now + min(self.grace * doublings, self.max_backoff)

    def counted(self, task: Task, now: datetime) -> Task:
        """Count a dispatch that is about to be sent. If it is lost, the sweeper repeats it at the next check."""
        return task.evolve(dispatches=task.dispatches.next(), due_at=self.next_check(task, now))

    def exhausted(self, task: Task) -> bool:
        """Return whether the task must fail because too many dispatches in a row started no attempt."""
        return task.dispatches.unanswered >= self.max_dispatches


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """How long terminal tasks are kept, and how often store maintenance runs."""

    retention: timedelta = timedelta(days=100)  # Step Functions reserves the name of an execution for 90 days
    interval: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies of a deployment. A lost attempt of a task type in `fail_when_lost` is not retried. Without `limits`
    every task is dispatched at once. `deadlines` are the properties' by task type, "default" for other types;
    `declared_deadlines` are those of behaviors."""

    default: RetryPolicy
    by_type: Mapping[str, RetryPolicy]
    lease: LeasePolicy = LeasePolicy()
    dispatch: DispatchPolicy = DispatchPolicy()
    fail_when_lost: frozenset[str] = frozenset()
    deadlines: Mapping[str, timedelta] = field(default_factory=dict)
    declared_deadlines: Mapping[str, timedelta] = field(default_factory=dict)
    maintenance: MaintenancePolicy = MaintenancePolicy()
    limits: Caps | None = None
    notifications: NotificationPolicy = field(default_factory=NotificationPolicy)
    configured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The fields of retry policies that properties set for single task types."""

    def declaring(self, declared: Mapping[str, Mapping[str, Any]]) -> "Policies":
        """Return policies with fields that code declares by task type. Fields set by properties override them."""
        by_type = dict(self.by_type)
        for task_type, fields in declared.items():
            by_type[task_type] = replace(self.default, **{**fields, **self.configured.get(task_type, {})})
            _require_growing(task_type, by_type[task_type])
        return replace(self, by_type=by_type)

    def retry(self, task_type: str) -> RetryPolicy:
        return self.by_type.get(task_type, self.default)

    def deadline(self, task_type: str, start: datetime, *, own: timedelta | None = None) -> datetime | None:
        """Return the deadline of a task that may run from `start`; `own` is its behavior's declaration if known."""
        declared = own or self.declared_deadlines.get(task_type)
        duration = self.deadlines.get(task_type) or declared or self.deadlines.get(_DEFAULT)
        return None if duration is None else start + duration

    def channels(self, callback: str | None = None) -> tuple[str, ...]:
        """Return the channels that a task's end notifies, with that of the callback which its request picked."""
        picked = () if callback is None else (notices.callback_channel(callback),)
        return (notices.EVENT, *picked) if self.notifications.events else picked

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "Policies":
        """Return the policies of these properties. Raises InvalidProperty for an unknown name or a wrong value."""
        lease, dispatch, maintenance = LeasePolicy(), DispatchPolicy(), MaintenancePolicy()
        overrides: dict[str, dict[str, Any]] = {}
        deadlines: dict[str, timedelta] = {}
        limited = {name: value for name, value in properties.items() if name.startswith(CAPS)}
        notified = {name: value for name, value in properties.items() if name.startswith(notices.PREFIX)}
        apart = limited.keys() | notified.keys()
        for name, value in ((name, value) for name, value in properties.items() if name not in apart):
            if name == _LOST_TIMEOUT:
                lease = replace(lease, lost_timeout=_duration(name, value))
            elif name == _CLOCK_DRIFT:
                lease = replace(lease, clock_drift=_duration(name, value))
            elif name == _GRACE:
                dispatch = replace(dispatch, grace=_duration(name, value))
            elif name == _RETENTION:
                maintenance = replace(maintenance, retention=_retention(name, value))
            elif name == _INTERVAL:
                maintenance = replace(maintenance, interval=_duration(name, value, least=timedelta(seconds=1)))
            elif match := _DEADLINE.fullmatch(name):
                deadlines[match[1]] = _duration(name, value)
            elif match := _RETRY.fullmatch(name):
                field, parsed = _retry_field(name, match[2], value)
                overrides.setdefault(match[1], {})[field] = parsed
            else:
                raise InvalidProperty(name, "is not a property of this service")
        _require_safe(lease)
        default = replace(RetryPolicy(), **overrides.pop("default", {}))
        by_type = {task_type: replace(default, **changes) for task_type, changes in overrides.items()}
        for task_type, policy in {"default": default, **by_type}.items():
            _require_growing(task_type, policy)
        limits = Caps.from_properties(limited, InvalidProperty)
        return cls(
            default,
            by_type,
            lease,
            dispatch,
            deadlines=deadlines,
            maintenance=maintenance,
            limits=limits,
            notifications=NotificationPolicy.from_properties(notified, InvalidProperty),
            configured=overrides,
        )


def _require_safe(lease: LeasePolicy) -> None:
    if lease.lost_timeout <= 2 * lease.clock_drift:
        raise InvalidProperty(_LOST_TIMEOUT, f"must be longer than twice {_CLOCK_DRIFT}")
    if lease.clock_drift > LONGEST_DRIFT:
        raise InvalidProperty(
            _CLOCK_DRIFT,
            f"must be at most {LONGEST_DRIFT.seconds}s. An attempt stops this long before its lease ends, and with a "
            "longer time a Lambda function could not hand over its attempt. Synchronize the clocks instead",
        )


def _require_growing(task_type: str, policy: RetryPolicy) -> None:
    if policy.max_backoff < policy.initial_backoff:
        raise InvalidProperty(
            f"delegation.retry.{task_type}.max-backoff-duration", "is shorter than the initial backoff"
        )


def unknown_types(properties: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Return the unknown task types in retry properties, by property name."""
    named = {name: match[1] for name in properties if (match := _RETRY.fullmatch(name))}
    return {name: task_type for name, task_type in named.items() if task_type != "default" and task_type not in known}


def require_known_types(properties: Mapping[str, str], known: Collection[str]) -> None:
    """Raise InvalidProperty for a retry property of an unknown task type without a dot. Names like `acme.report` belong
    to behaviors that a deployment adds."""
    for name, task_type in unknown_types(properties, known).items():
        if "." not in task_type:
            near = difflib.get_close_matches(task_type.upper(), sorted(known), n=1)
            hint = f"did you mean {near[0]}?" if near else f"the known types are {', '.join(sorted(known))}."
            added = "If a behavior adds this type, put a dot into its name, or add it to delegation:added-task-types"
            raise InvalidProperty(name, f"there is no task type {task_type}; {hint} {added}")


def _retention(name: str, value: str) -> timedelta:
    parsed = _duration(name, value)
    if parsed < _LEAST_RETENTION:
        raise InvalidProperty(
            name,
            f"{value!r} is shorter than {_LEAST_RETENTION.days}d. Step Functions keeps the name of an execution for 90 "
            "days: a task that is removed earlier and submitted again could not be dispatched",
        )
    return parsed


def _duration(name: str, value: str, *, least: timedelta | None = None) -> timedelta:
    parsed = duration_property(name, value)
    if least is not None and parsed < least:
        raise InvalidProperty(name, f"{value!r} is shorter than {least.total_seconds():.0f}s")
    return parsed


def _retry_field(name: str, key: str, value: str) -> tuple[str, object]:
    match key:
        case "initial-backoff-duration" | "max-backoff-duration":
            return key.removesuffix("-duration").replace("-", "_"), _duration(name, value)
        case "max-attempts":
            if not re.fullmatch(r"[1-9]\d{0,5}", value):
                raise InvalidProperty(name, f"{value!r} is not a positive whole number")
            return "max_attempts", int(value)
        case "backoff-multiplier":
            if not re.fullmatch(r"\d+(\.\d+)?", value) or not 1 <= float(value) < math.inf:
                raise InvalidProperty(name, f"{value!r} is not a number of at least 1")
            return "backoff_multiplier", float(value)
        case "jitter":
            if value not in {"true", "false"}:
                raise InvalidProperty(name, f"{value!r} is neither true nor false")
            return "jitter", value == "true"
        case _:
            raise InvalidProperty(name, "is not a property of this service")


def base_properties() -> dict[str, str]:
    """Return the part of the proposal's example configuration that belongs to no task type (Task Retry)."""
    return {
        _LOST_TIMEOUT: "1h",
        "delegation.retry.default.max-attempts": "5",
        "delegation.retry.default.initial-backoff-duration": "30s",
        "delegation.retry.default.backoff-multiplier": "2.0",
        "delegation.retry.default.max-backoff-duration": "1h",
    }


@dataclass(frozen=True, slots=True)
class Lease:
    """When the holder is presumed lost, and until when others need not check the task."""

    lost_not_before: datetime
    recheck_not_before: datetime

    @classmethod
    def until(cls, lost_not_before: datetime, now: datetime) -> "Lease":
        """Return a lease that ends at a given time; others check the task half way."""
        return cls(lost_not_before, now + (lost_not_before - now) / 2)

    @classmethod
    def lasting(cls, duration: timedelta, now: datetime) -> "Lease":
        return cls.until(now + duration, now)


def execution_of(owner: str | None, task_id: str) -> bool:
    """Return whether a lease holder is an execution of the state machine, whose name starts with its task's id."""
    return owner is not None and owner.startswith(f"{task_id}-")


def is_same_lease(task: Task, held: Task) -> bool:
    """Return whether a task has, or last had, the lease that `held` was read with: attempt, time and owner. The attempt
    number alone is ambiguous: a task that was removed and submitted again counts from one. An execution that continues
    another's attempt continues its lease."""
    if (task.attempt_count, task.lease.acquired_ts) != (held.attempt_count, held.lease.acquired_ts):
        return False
    if task.lease.owner is None or task.lease.owner == held.lease.owner:
        return True
    return execution_of(task.lease.owner, task.task_id) and execution_of(held.lease.owner, task.task_id)
