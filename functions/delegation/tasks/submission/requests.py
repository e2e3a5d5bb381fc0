"""What is submitted and when it runs: a behavior with parameters, the options, and the schedule that they make."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypedDict, TypeVar

from pydantic import BaseModel

from delegation.tasks.life.declared.recurrence import Recurrence, bad_schedule
from delegation.tasks.work.behaviors import Behavior
from delegation.timestamps import LONGEST_DURATION

V_co = TypeVar("V_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Call(Generic[V_co]):
    """A behavior with the parameters of one task; `V_co` is what its function returns."""

    behavior: Behavior[Any, Any]
    parameters: BaseModel


@dataclass(frozen=True, slots=True)
class Parent:
    """The attempt that a child is submitted for."""

    task_id: str
    attempt: int


class Options(TypedDict, total=False):
    """What a submission may say beside the parameters.

    The task runs `at` a time or after a `delay`, else now. With `every` or `cron` it recurs. Submissions with the same
    `key` are the same task. With `rerun` one that succeeded runs again. With `parent` it is a child, which ends before
    its parent.
    """

    at: datetime | None
    delay: timedelta | None
    key: str | None
    every: timedelta | None
    cron: str | None
    rerun: bool
    parent: Parent | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """The first run, now if `at` is None, and how the task recurs; `is_explicit` if the submission names a time."""

    at: datetime | None
    recurrence: Recurrence
    is_explicit: bool

    @classmethod
    def of(cls, behavior: Behavior[Any, Any], options: Options, now: datetime) -> "Schedule":
        """Return the schedule of a submission; raises DelegationError (BAD_SCHEDULE).

        The declared one counts if none is given.

        A task with an interval first runs now, one with a cron expression at its next time.
        """
        at, delay = options.get("at"), options.get("delay")
        if at is not None and delay is not None:
            raise bad_schedule("a task runs at a time or after a delay: give one of both")
        if at is not None and at.tzinfo is None:
            raise bad_schedule(f"at: {at} has no time zone")
        if delay is not None and delay < timedelta(0):
            raise bad_schedule(f"delay: {delay} is negative")
        if delay is not None and delay > LONGEST_DURATION:
            raise bad_schedule(f"delay: {delay} is longer than {LONGEST_DURATION.days} days")
        if at is not None and abs(at - now) > LONGEST_DURATION:
            raise bad_schedule(f"at: {at} is more than {LONGEST_DURATION.days} days from now")
        given = Recurrence(options.get("every"), options.get("cron"))
        recurrence = given or Recurrence(behavior.every, behavior.cron)
        if at is None and delay is not None:
            at = now + delay
        explicit = at is not None
        if at is None and recurrence.cron is not None:
            at = recurrence.next_run(now)
        return cls(at, recurrence, explicit)
