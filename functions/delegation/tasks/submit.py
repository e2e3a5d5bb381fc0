"""`Tasks`: submit a behavior's parameters; get a task id and a handle, which waits for the outcome. Workers run it."""

import hashlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Generic, TypedDict, TypeVar, Unpack, overload

from pydantic import BaseModel

from delegation.tasks.calls import illegal_parameters, stored_json
from delegation.tasks.errors import AwaitedTaskFailed, TaskError
from delegation.tasks.life.declared import Recurrence, bad_schedule
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.service import TaskService
from delegation.timestamps import LONGEST_DURATION
from polaris_common.backoff import pauses

P = TypeVar("P", bound=BaseModel)
M = TypeVar("M", bound=BaseModel)
R = TypeVar("R")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Call(Generic[V_co]):
    """A behavior with the parameters of one task; `V_co` is the type that its function returns."""

    behavior: Behavior[Any, Any]
    parameters: BaseModel


@dataclass(frozen=True, slots=True)
class Parent:
    """The attempt that submits a child."""

    task_id: str
    attempt: int


class Options(TypedDict, total=False):
    """Options of a submission. The task runs `at` a time or after a `delay`, else now. With `every` or `cron` it
    recurs. Submissions with the same `key` are one task. With `rerun` one that succeeded runs again. With `parent` it
    is a child, which ends before its parent."""

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
        """Return a submission's schedule, by default the declared one. A task with an interval first runs now, one with
        a cron expression at its next time. Raises DelegationError (BAD_SCHEDULE)."""
        at, delay = options.get("at"), options.get("delay")
        if at is not None and delay is not None:
            raise bad_schedule("set either `at` or `delay`, not both")
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


FIRST_PAUSE: Final = 0.05
USUAL_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 60.0
"""The longest wait: an outcome can come early, by a cancellation for example."""
_ROWS: Final = 100
"""How many versions back the last outcome of a recurring task is searched."""


def pause_after(head: Task, growing: float, now: datetime) -> float:
    """Return the seconds until the next read of a task without outcome; `growing` is the pause without hints. A task
    that waits for its time is read at that time. A held one is not expected to change before its recheck time
    (Asynchronous & reliable tasks proposal, Design). Until then the pause doubles, as short work ends earlier: the
    outcome is seen after at most twice its time, or a minute late."""
    if head.next_scheduled_run_ts is not None and head.next_scheduled_run_ts > now:
        return min(max((head.next_scheduled_run_ts - now).total_seconds(), FIRST_PAUSE), LONGEST_PAUSE)
    if head.lease.recheck_not_before is not None and head.lease.recheck_not_before > now:
        return min(growing, max((head.lease.recheck_not_before - now).total_seconds(), USUAL_PAUSE))
    return min(growing, USUAL_PAUSE)


class Waiting:
    """One wait for the first terminal version of a task from `since_version` on."""

    def __init__(self, tasks: TaskService, task_id: str, since_version: int, timeout: timedelta | None) -> None:
        self._reads, self._clock = tasks.reads, tasks.clock
        self._task_id = task_id
        self._since = since_version
        self._end = None if timeout is None else self._clock() + timeout
        self._growing: Iterator[float] = pauses(FIRST_PAUSE, LONGEST_PAUSE)

    def check(self) -> tuple[Task | None, float]:
        """Return the outcome, or None and the seconds until the next check. Raises TimeoutError, TaskNotFound."""
        head = self._reads.get(self._task_id)
        outcome = self._reads.outcome(self._task_id, self._since, head=head)
        now = self._clock()
        if outcome is not None:
            return outcome, 0.0
        pause = pause_after(head, next(self._growing), now)
        if self._end is None:
            return None, pause
        if now >= self._end:
            raise TimeoutError(f"task {self._task_id} has no outcome yet. Wait longer")
        return None, min(pause, (self._end - now).total_seconds())


def wait(waiting: Waiting, sleep: Callable[[float], None] = time.sleep) -> Task:
    while True:
        outcome, pause = waiting.check()
        if outcome is not None:
            return outcome
        sleep(pause)


async def wait_async(waiting: Waiting) -> Task:
    """Wait for the outcome; the store is read in a thread."""
    import asyncio  # noqa: PLC0415 - functions that only submit never wait

    while True:
        outcome, pause = await _in_thread(waiting.check)
        if outcome is not None:
            return outcome
        await asyncio.sleep(pause)


async def _in_thread(call: Callable[[], R]) -> R:
    import asyncio  # noqa: PLC0415 - see wait_async

    return await asyncio.to_thread(call)


@dataclass(frozen=True, slots=True)
class Returned(Generic[V]):
    value: V


class Handle(Generic[V]):
    """A task by its id, to be awaited. Every method reads the store and raises TaskNotFound for a deleted task."""

    def __init__(
        self, tasks: TaskService, behavior: Behavior[Any, Any], task_id: str, since_version: int | None = None
    ) -> None:
        """With `since_version`, the version of a submission, only that submission's outcome counts."""
        self._tasks = tasks
        self._behavior = behavior
        self._since = since_version
        self.task_id = task_id

    @property
    def asynchronous(self) -> "AsyncHandle[V]":
        return AsyncHandle(self)

    def get(self) -> Task:
        return self._tasks.reads.get(self.task_id)

    def children(self) -> tuple[str, ...]:
        return self._tasks.reads.children(self.task_id)

    def __await__(self) -> Generator[Any, None, V]:
        return self.asynchronous.wait().__await__()

    def outcome(self, *, head: Task | None = None) -> Task | None:
        """Return the terminal version that is the outcome, None without one; see `peek`."""
        head = head or self.get()
        if self._since is not None:
            return self._tasks.reads.outcome(self.task_id, self._since, head=head)
        return head if head.is_terminal else self._last_run(head)

    def peek(self, *, head: Task | None = None) -> Returned[V] | AwaitedTaskFailed | None:
        """Return the outcome, None without one; of a recurring task the last run's. A fresh `head` saves a read."""
        outcome = self.outcome(head=head)
        if outcome is None:
            return None
        try:
            return Returned(self.value_of(outcome))
        except AwaitedTaskFailed as failed:
            return failed

    def result(self) -> V:
        """Return what the task returned. Raises AwaitedTaskFailed for FAILURE, TaskError (NO_OUTCOME_YET)."""
        outcome = self.outcome()
        if outcome is None:
            raise TaskError(
                f"task {self.task_id} is {self.get().status} and has no outcome yet. Wait for the outcome",
                code="NO_OUTCOME_YET",
                retryable=True,
                task_id=self.task_id,
            )
        return self.value_of(outcome)

    def cancel(self, *, by: Caller | None = None) -> Task:
        """Cancel the task: a waiting one ends now, a running one at its next checkpoint. Returns the task."""
        return self._tasks.operators.cancel(self.task_id, by=by)

    def wait(self, timeout: timedelta | None = None, *, sleep: Callable[[float], None] = time.sleep) -> V:
        """Block until the outcome; return or raise as `result`. Raises TimeoutError after `timeout`."""
        return self.value_of(wait(self.waiting(timeout), sleep))

    def waiting(self, timeout: timedelta | None) -> Waiting:
        """Return a wait for the outcome of the submission, or of the present run."""
        return Waiting(self._tasks, self.task_id, self._since or self.get().version, timeout)

    def _last_run(self, head: Task) -> Task | None:
        """Return the end of a recurring task's last run; the submission of the next run follows it."""
        if not head.is_recurring:
            return None
        for row in reversed(self._tasks.reads.versions(self.task_id, after=max(head.version - _ROWS, 0), limit=_ROWS)):
            if row.is_terminal:
                return row
        return None

    def value_of(self, outcome: Task) -> V:
        """Return what a terminal version returned. Raises AwaitedTaskFailed for FAILURE."""
        if outcome.status is Status.FAILURE:
            raise AwaitedTaskFailed(self.task_id, outcome.error_code or "", outcome.result_summary or "")
        value: Any = self._behavior.read_result(self._tasks.reads.with_result(outcome))
        returned: V = value
        return returned


class AsyncHandle(Generic[V]):
    """A Handle whose methods are coroutines; the store is read in threads."""

    def __init__(self, handle: Handle[V]) -> None:
        self._handle = handle
        self.task_id = handle.task_id

    async def get(self) -> Task:
        return await _in_thread(self._handle.get)

    async def result(self) -> V:
        return await _in_thread(self._handle.result)

    async def cancel(self, *, by: Caller | None = None) -> Task:
        return await _in_thread(lambda: self._handle.cancel(by=by))

    async def wait(self, timeout: timedelta | None = None) -> V:  # noqa: ASYNC109 - the task's own time, not asyncio's
        waiting = await _in_thread(lambda: self._handle.waiting(timeout))
        outcome = await wait_async(waiting)
        return await _in_thread(lambda: self._handle.value_of(outcome))


@dataclass(frozen=True, slots=True)
class Submitted(Generic[V]):
    """The result of `submit`; `is_new` is False if it attached to an existing task. The `handle` has this submission's
    outcome, to be awaited, polled or ignored."""

    task_id: str
    is_new: bool
    handle: Handle[V]


class Tasks:
    """Submits tasks. Raises StoreUnavailable if nothing was stored, OutcomeUnknown if that is not known."""

    def __init__(self, service: TaskService) -> None:
        self._service = service

    @overload
    def submit(self, behavior: Call[V], **options: Unpack[Options]) -> Submitted[V]: ...
    @overload
    def submit(self, behavior: Behavior[P, M], parameters: P, **options: Unpack[Options]) -> Submitted[M]: ...

    def submit(
        self, behavior: Behavior[Any, Any] | Call[Any], parameters: Any = None, **options: Unpack[Options]
    ) -> Submitted[Any]:
        """Store a task with these parameters, or attach to the existing one with the same key or computed id.

        Another schedule or other parameters change a recurring task, from the next run on if one is in progress;
        without a key or computed id its parameters identify it. A task that ended in FAILURE is submitted again; one
        that succeeded is complete. A child without a key or computed id is identified by its parent and its place among
        such children, so that the parent's next attempt finds it. Raises DelegationError: BAD_SCHEDULE for an
        impossible schedule or a child that recurs, WAITS_FOR_ITSELF for a child that awaits its parent,
        ILLEGAL_PARAMETERS for parameters that are no JSON value, such as NaN.
        """
        call = behavior if isinstance(behavior, Call) else Call(behavior, parameters)
        (first,), moved = self._prepared([call], options)
        task, is_new = self._service.submission.create(first, rerun=options.get("rerun", False), moved=moved)
        return Submitted(task.task_id, is_new, Handle(self._service, call.behavior, task.task_id, task.version))

    def submit_all(self, calls: Sequence[Call[V]], **options: Unpack[Options]) -> list[Submitted[V]]:
        """Submit many tasks as `submit` does, with a write for every 40; all have the same `options`, without key.
        Tasks stored before an error stay; the same call finds those with a computed id again."""
        rerun = options.get("rerun", False)
        prepared, moved = self._prepared(calls, options)
        stored = self._service.submission.create_all(prepared, rerun=rerun, moved=moved)
        submitted: list[Submitted[V]] = []
        for call, (task, is_new) in zip(calls, stored, strict=True):
            handle: Handle[V] = Handle(self._service, call.behavior, task.task_id, task.version)
            submitted.append(Submitted(task.task_id, is_new, handle))
        return submitted

    def submit_children(
        self, calls: Sequence[Call[Any]], options: Options, known: Mapping[str, Task]
    ) -> list[tuple[Task, Task]]:
        """Store children of the parent in `options`, or attach to existing ones; return each as wanted and as stored.
        Those in `known`, adopted by a former attempt, stay unchanged, even after a FAILURE."""
        firsts, moved = self._prepared(calls, options)
        missing = [first for first in firsts if first.task_id not in known]
        created = (
            self._service.submission.create_all(missing, rerun=options.get("rerun", False), moved=moved)
            if missing
            else []
        )
        stored = dict(known) | {task.task_id: task for task, _ in created}
        return [(first, stored[first.task_id]) for first in firsts]

    def _prepared(self, calls: Sequence[Call[Any]], options: Options) -> tuple[list[Task], bool]:
        """Return first versions, adopted by their parent if there is one; and whether they name a time."""
        made = [self._unadopted(call.behavior, call.parameters, options) for call in calls]
        firsts, moved = [first for first, _ in made], any(when.is_explicit for _, when in made)
        parent = options.get("parent")
        if parent is None or not firsts:
            return firsts, moved
        nameless = [call.behavior.identify is None and options.get("key") is None for call in calls]
        return self._service.leases.adopt_all(
            parent.task_id, parent.attempt, list(zip(firsts, nameless, strict=True))
        ), moved

    def handle(self, behavior: Behavior[Any, Any], task_id: str) -> Handle[Any]:
        """Return a handle of a task; nothing is read."""
        return Handle(self._service, behavior, task_id)

    def _unadopted(
        self, behavior: Behavior[Any, Any], parameters: BaseModel, options: Options
    ) -> tuple[Task, Schedule]:
        when = Schedule.of(behavior, options, self._service.clock())
        parent, key = options.get("parent"), options.get("key")
        if parent is not None and when.recurrence:
            raise bad_schedule(
                f"{behavior.task_type} recurs and never ends, so no parent can wait for it. Submit it without a parent"
            )
        payload = stored_json(parameters, partial(illegal_parameters, behavior.task_type))
        if when.recurrence and key is None and behavior.identify is None:
            # Otherwise each start of a process would add a task that never ends.
            key = f"recurring:{hashlib.sha256(payload.encode()).hexdigest()}"
        first = self._service.submission.first(
            task_id=behavior.task_id(parameters, key),
            task_type=behavior.task_type,
            payload=payload,
            at=when.at,
            deadline=behavior.deadline,
            payload_version=behavior.version,
            **when.recurrence.fields(),
        )
        return first, when
