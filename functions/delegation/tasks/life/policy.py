"""When a task is retried and how long a lease lasts, configured by the Delegation Service proposal's property names."""

import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar, Final

from delegation.backoff import exponential
from delegation.errors import DelegationError
from delegation.tasks.life.model import Task
from delegation.timestamps import parse_duration

_LOST_TIMEOUT: Final = "delegation.task.lease.lost-timeout-duration"
_CLOCK_DRIFT: Final = "delegation.task.lease.clock-drift-duration"
_GRACE: Final = "delegation.dispatch.grace-duration"
_RETENTION: Final = "delegation.maintenance.task-retention-duration"
_INTERVAL: Final = "delegation.maintenance.interval-duration"
_LEAST_RETENTION: Final = timedelta(hours=1)
"""Longer than an idempotency record outlives its task, because a replay may still read the task."""
_DEADLINE: Final = re.compile(r"delegation\.task\.([A-Za-z][\w.-]*)\.deadline-duration")
_DEFAULT: Final = "default"
_RETRY: Final = re.compile(r"delegation\.retry\.(default|[A-Z][A-Z_]*)\.([a-z-]+)")
MAX_EXCUSED: Final = 20
"""At most this many throttled attempts are excused, and this many hand-overs in a row without progress."""


class InvalidProperty(DelegationError):
    """A configured property has an unknown name or a bad value; the service does not start with it."""

    code: ClassVar[str] = "INVALID_PROPERTY"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name


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

    def next_check(self, task: Task, now: datetime) -> datetime:
        """Return when to check the task after the dispatch that is about to be counted."""
        doublings: int = 2 ** min(task.dispatch_count - task.dispatch_base, 16)
        return now + min(self.grace * doublings, self.max_backoff)

    def exhausted(self, task: Task) -> bool:
        """Return whether so many dispatches in a row started no attempt that the task must fail."""
        return task.dispatch_count - task.dispatch_base >= self.max_dispatches


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """How long terminal tasks are kept, and how often store maintenance runs."""

    retention: timedelta = timedelta(days=100)  # Step Functions reserves the name of an execution for 90 days
    interval: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies of one deployment; a lost attempt of a task type in `fail_when_lost` is not retried.

    `deadlines` are those of the properties by task type, "default" for types without one; `declared_deadlines` are
    those of behaviors.
    """

    default: RetryPolicy
    by_type: Mapping[str, RetryPolicy]
    lease: LeasePolicy = LeasePolicy()
    dispatch: DispatchPolicy = DispatchPolicy()
    fail_when_lost: frozenset[str] = frozenset()
    deadlines: Mapping[str, timedelta] = field(default_factory=dict)
    declared_deadlines: Mapping[str, timedelta] = field(default_factory=dict)
    maintenance: MaintenancePolicy = MaintenancePolicy()

    def retry(self, task_type: str) -> RetryPolicy:
        """Return the policy of one task type."""
        return self.by_type.get(task_type, self.default)

    def deadline(self, task_type: str, start: datetime, *, own: timedelta | None = None) -> datetime | None:
        """Return when a task that may run from `start` has to be done; `own` is its behavior's declaration if known."""
        declared = own or self.declared_deadlines.get(task_type)
        duration = self.deadlines.get(task_type) or declared or self.deadlines.get(_DEFAULT)
        return None if duration is None else start + duration

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "Policies":
        """Return policies from property names and values; raises InvalidProperty for one that is unknown or wrong."""
        lease, dispatch, maintenance = LeasePolicy(), DispatchPolicy(), MaintenancePolicy()
        overrides: dict[str, dict[str, object]] = {}
        deadlines: dict[str, timedelta] = {}
        for name, value in properties.items():
            if name == _LOST_TIMEOUT:
                lease = replace(lease, lost_timeout=_duration(name, value))
            elif name == _CLOCK_DRIFT:
                lease = replace(lease, clock_drift=_duration(name, value))
            elif name == _GRACE:
                dispatch = replace(dispatch, grace=_duration(name, value))
            elif name == _RETENTION:
                maintenance = replace(maintenance, retention=_duration(name, value, least=_LEAST_RETENTION))
            elif name == _INTERVAL:
                maintenance = replace(maintenance, interval=_duration(name, value, least=timedelta(seconds=1)))
            elif match := _DEADLINE.fullmatch(name):
                deadlines[match[1]] = _duration(name, value)
            elif match := _RETRY.fullmatch(name):
                field, parsed = _retry_field(name, match[2], value)
                overrides.setdefault(match[1], {})[field] = parsed
            else:
                raise InvalidProperty(name, "is not a property of this service")
        if lease.lost_timeout <= 2 * lease.clock_drift:
            raise InvalidProperty(_LOST_TIMEOUT, "must be longer than twice the clock drift")
        default = replace(RetryPolicy(), **overrides.pop("default", {}))  # type: ignore[arg-type]
        by_type = {kind: replace(default, **changes) for kind, changes in overrides.items()}  # type: ignore[arg-type]
        for kind, policy in {"default": default, **by_type}.items():
            if policy.max_backoff < policy.initial_backoff:
                raise InvalidProperty(f"delegation.retry.{kind}.max-backoff-duration", "is below the initial backoff")
        return cls(default, by_type, lease, dispatch, deadlines=deadlines, maintenance=maintenance)


def _duration(name: str, value: str, *, least: timedelta | None = None) -> timedelta:
    try:
        parsed = parse_duration(value)
    except ValueError as error:
        raise InvalidProperty(name, str(error)) from error
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


def default_properties() -> dict[str, str]:
    """Return the proposal's example configuration (Delegation Service proposal, Task Retry)."""
    return {
        _LOST_TIMEOUT: "1h",
        "delegation.retry.default.max-attempts": "5",
        "delegation.retry.default.initial-backoff-duration": "30s",
        "delegation.retry.default.backoff-multiplier": "2.0",
        "delegation.retry.default.max-backoff-duration": "1h",
        "delegation.retry.TABLE_PURGE.max-attempts": "10",
        "delegation.retry.TABLE_PURGE.initial-backoff-duration": "1m",
    }
