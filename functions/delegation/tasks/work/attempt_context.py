"""An attempt as its work sees it: checkpoints, progress reports, the lease that is renewed meanwhile, and how an error
ends it. Contexts of authors' functions (`tasks.authoring`) and of work with a plan (`removal.task_attempt`) are such
attempts. Of an error of the work, type, message and place are recorded, without secrets."""

import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any, Final, Never

from delegation.errors import RunCancelled, RunHandedOver, RunPaused, RunStopped, RunTimedOut
from delegation.tasks.errors import (
    AwaitedTaskFailed,
    DeadlineExceeded,
    LeaseLost,
    RunPostponed,
    StoreRefused,
    TaskError,
    TaskNotFound,
    redacted,
)
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass, deadline_text, past_deadline
from delegation.tasks.life.policy import Lease, LeasePolicy, is_same_lease
from delegation.tasks.life.progress import advanced, bad_report, merged
from delegation.tasks.life.transitions import NOTHING, held_by
from delegation.tasks.pauses import PAUSED_WAIT
from delegation.tasks.work.service import TaskService
from polaris_common.errors import DelegationError, ErrorScope

CHECK_EVERY: Final = timedelta(seconds=1)
REPORT_EVERY: Final = timedelta(seconds=2)
ALIVE_EVERY: Final = timedelta(seconds=30)
"""How often progressing work without a report writes `progress_ts`, without which its lease is not renewed."""


def fence_of(
    clock: Callable[[], datetime], task: Task, margin: timedelta, monotonic: Callable[[], float]
) -> float | None:
    """Return when, on the monotonic clock, a held task's lease ends less a margin; None if the task is not held."""
    at = monotonic()  # first: a pause between the two readings makes the result earlier, never later
    if task.lease.lost_not_before is None:
        return None
    return at + (task.lease.lost_not_before - clock() - margin).total_seconds()


class AttemptContext:
    """One attempt in this process. The head is read at most once a second while the lease lasts, and written at most
    every two. The work fences itself: it stops when the lease last read ends by the monotonic clock, less the clock
    drift, whatever the wall clock shows. Work that progresses writes `progress_ts` every 30 seconds, or four times in a
    shorter lease. Checkpoints may come from several threads, which share one read."""

    def __init__(
        self,
        tasks: TaskService,
        task: Task,
        *,
        hand_over_at: datetime | None,
        monotonic: Callable[[], float],
        timeout: timedelta | None = None,
    ) -> None:
        """`timeout` is how long the attempt may work, None without a limit."""
        self.tasks = tasks.holding(task)
        self.task = self._leased = task
        self.task_id = task.task_id
        self.attempt = task.attempt_count
        self._hand_over_at = hand_over_at
        self._monotonic = monotonic
        self._alive_every = min(ALIVE_EVERY, tasks.policies.lease.lost_timeout / 4).total_seconds()
        self._lock = threading.RLock()
        self._checked = float("-inf")
        self._reported = self._began = monotonic()
        self._timeout = timeout
        self._unwritten: dict[str, Any] = {}
        self.settled: set[str] = set()
        """The children whose outcomes the work has read."""
        self.forgiven: set[str] = set()
        """Those of them whose failure does not fail the work."""
        self._fenced_at = float("-inf")
        self._update(task)

    def seconds(self) -> float:
        """Return the time of the attempt's monotonic clock."""
        return self._monotonic()

    def checkpoint(self, *, moved: bool = True) -> None:
        """Check, before each piece of work, that it may start. Raises LeaseLost, RunCancelled, DeadlineExceeded,
        RunHandedOver, RunPaused or RunTimedOut if not. Pauses are read at most every 20 seconds (`ReadPauses`). Waiting
        work passes whether what it waits for has `moved` since the last call: a hanging attempt must not write
        `progress_ts`."""
        with self._lock:
            now = self._monotonic()
            # The lease may have been renewed since the last read.
            if now - self._checked >= CHECK_EVERY.total_seconds() or now >= self._fenced_at:
                self._update(self.tasks.reads.get(self.task_id))
                self._checked = self._monotonic()
            # Before the checks: this write may take longer than the lease.
            if moved and self._monotonic() - self._reported >= self._alive_every:
                self._note()
            task = self.task
            if not task.is_held or not is_same_lease(task, self._leased) or self._monotonic() >= self._fenced_at:
                raise LeaseLost(self.task_id, attempt=self.attempt, current=task.attempt_count, status=task.status)
            if task.cancel_requested:
                raise RunCancelled(self.task_id)
            if past_deadline(task, self.tasks.clock()):
                raise DeadlineExceeded(self.task_id, deadline_text(task))
            if self.tasks.is_draining:
                raise RunHandedOver(self.task_id)
            pause = self.tasks.pauses.work(task)
            if pause is not None:
                raise RunPaused(self.task_id, pause.text)
            if self._hand_over_at is not None and self.tasks.clock() >= self._hand_over_at:
                raise RunHandedOver(self.task_id)
            if self._timeout is not None and self._monotonic() - self._began >= self._timeout.total_seconds():
                raise RunTimedOut(self.task_id, self._timeout.total_seconds())

    def report(
        self,
        *,
        done: int | None = None,
        total: int | None = None,
        unit: str | None = None,
        message: str | None = None,
        eta: datetime | None = None,
        details: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> None:
        """Report progress and the work's own `details`. Omitted values stay; a detail that is None is removed. Writes
        at most every two seconds; an earlier report goes with the next one or the outcome. Raises LeaseLost, and at
        every call DelegationError (BAD_REPORT) for what cannot be stored."""
        for name in unknown:
            raise bad_report(f"{name}: a report has no such member. Put the value into the map `details`")
        with self._lock:
            given = {"done": done, "total": total, "unit": unit, "message": message}
            before = self._unwritten
            progress = advanced(before.get("progress", self.task.progress), given)
            reported = merged(before.get("reported", self.task.reported), details)
            self._unwritten = {**before, "progress": progress, "reported": reported}
            if eta is not None:
                self._unwritten["eta_ts"] = eta
            if self._monotonic() - self._reported >= REPORT_EVERY.total_seconds():
                self._note()

    def note_progress(self, details: Mapping[str, Any], *, eta: datetime | None) -> None:
        """Write details of the behavior's own record, as `report` writes its own. Raises LeaseLost."""
        with self._lock:
            if self._monotonic() - self._reported >= REPORT_EVERY.total_seconds():
                self._note(details, eta_ts=eta)

    @property
    def unwritten(self) -> dict[str, Any]:
        """Reports not yet written, as fields of the task, for the write of the outcome."""
        return {name: value for name, value in self._unwritten.items() if name != "eta_ts"}

    def write(self, change: Callable[[], Task]) -> Task:
        with self._lock:
            self._update(change())
            return self.task

    def _note(self, details: Mapping[str, Any] = NOTHING, **fields: Any) -> None:
        now = self.tasks.clock()
        more = {**self._unwritten, **fields}
        self._update(self.tasks.leases.note(self.task_id, self.attempt, details=details, progress_ts=now, **more))
        self._unwritten = {}
        self._reported = self._monotonic()

    def _update(self, task: Task) -> None:
        self.task = task
        fence = fence_of(self.tasks.clock, task, self.tasks.policies.lease.clock_drift, self._monotonic)
        if fence is not None:
            self._fenced_at = fence


logger = logging.getLogger(__name__)
_LEAST_PAUSE: Final = timedelta(milliseconds=20)


class WorkOutlivedLease(TaskError):
    """An attempt's lease ended and its work did not stop; the process has to end to stop it in time."""

    code = "WORK_OUTLIVED_LEASE"
    scope = ErrorScope.SERVICE

    def __init__(self, task: Task) -> None:
        super().__init__(f"attempt {task.attempt_count} of task {task.task_id} did not stop when its lease ended")
        self.task_id = task.task_id


DoneWithin = Callable[["Future[Any]", float], bool]
"""Waits a number of seconds for work to end, with a result or an error; returns whether it ended."""


def done_within(work: "Future[Any]", seconds: float) -> bool:
    return bool(wait([work], timeout=seconds).done)


def renew_every(lease: LeasePolicy) -> timedelta:
    """Return a pause with which one renewal may fail before `recheck_not_before` (half a lease), less the drift."""
    return max((lease.lost_timeout / 2 - lease.clock_drift) / 2, _LEAST_PAUSE)


class LeaseKeeper:
    """Renews the lease of one attempt while its work runs. An attempt fences itself a clock drift before its lease ends
    (AttemptContext); work that has not stopped half a drift later raises WorkOutlivedLease. Another thread renews,
    because a call to an unreachable store may outlast the lease. The lease of work that wrote no `progress_ts` for a
    whole lease is not renewed: a hung attempt is lost."""

    def __init__(
        self, tasks: TaskService, task: Task, monotonic: Callable[[], float], waits: DoneWithin = done_within
    ) -> None:
        self._tasks = tasks.holding(task)
        self._task = task
        self._monotonic = monotonic
        self._waits = waits
        self._lease = tasks.policies.lease
        self._fence = self._monotonic()
        self._move_fence(task)

    def watch(self, work: "Future[Any]") -> None:
        """Return when the work has ended. Raises WorkOutlivedLease if it continues without a lease."""
        renewing = threading.Thread(target=self._run, args=(work,), name=f"lease-{self._task.task_id}", daemon=True)
        renewing.start()
        while not self._waits(work, max(self._fence - self._monotonic(), 0)):
            if self._monotonic() >= self._fence:
                raise WorkOutlivedLease(self._task)
        renewing.join()

    def _run(self, work: "Future[Any]") -> None:
        every = renew_every(self._lease)
        pause = every
        while not self._waits(work, pause.total_seconds()):
            try:
                self._move_fence(self._renew())
                pause = every
            except (LeaseLost, TaskNotFound):
                return  # the work's next checkpoint stops it, and its writes are refused
            except TaskError as error:
                pause = max(every / 4, _LEAST_PAUSE)
                fields = {"action": "renew", "task_id": self._task.task_id, "error_code": error.code}
                logger.warning("an attempt's lease was not renewed; the process tries again", extra=fields)

    def _renew(self) -> Task:
        """Renew the lease for its full time after the last progress, which checkpoints record."""
        seen = self._tasks.reads.get(self._task.task_id)
        sign = max(filter(None, (self._task.lease.acquired_ts, seen.progress_ts)))

        def lease(_now: datetime) -> Lease:
            return Lease.lasting(self._lease.lost_timeout, sign)

        return self._tasks.leases.heartbeat(self._task.task_id, self._task.attempt_count, lease)

    def _move_fence(self, task: Task) -> None:
        fence = fence_of(self._tasks.clock, task, self._lease.clock_drift / 2, self._monotonic)
        self._fence = self._fence if fence is None else fence


UNEXPECTED_ERROR: Final = "UNEXPECTED_ERROR"
_FRAMES: Final = 12
_CAUSES: Final = 4
_LONGEST: Final = 4_000
"""Characters of one attempt's traceback, so that the history of a task has room for several."""


@dataclass(frozen=True, slots=True)
class AttemptEnding:
    """The error with which an attempt ends, and the wait until the next one, None if policies decide."""

    error: AttemptError
    wait: timedelta | None = None

    @property
    def is_the_drivers(self) -> bool:
        """Whether the attempt's driver failed, and not the work or an operator."""
        return self.error.kind is ErrorClass.INTERRUPTED


@dataclass(frozen=True, slots=True)
class AttemptRunner:
    """Runs the attempts of purges, drops, upkeep and functions, and records how they end. `ending` translates what
    ended an attempt. Without the lease nothing is recorded. Errors for the attempt's driver are raised: those of the
    store, and of `ending`."""

    tasks: TaskService
    ending: Callable[[Task, Exception | RunStopped], AttemptEnding]

    def prepare(self, task: Task, choose: Callable[[], str]) -> str | None:
        """Return the engine that `choose` returns. None if it raised what ended the attempt, which is recorded."""
        try:
            return choose()
        except (LeaseLost, TaskNotFound):
            return None
        except TaskError:
            raise
        except (DelegationError, RunStopped) as error:
            end_attempt(self.tasks, task, self.ending(task, error))
            return None

    def begin_job(self, task_id: str, attempt: int) -> Task:
        """Return the task of a job that starts. Raises LeaseLost if the attempt no longer holds it."""
        task = held_by(self.tasks.reads.get(task_id), attempt)
        joined = self.tasks.types.labels(task).correlation_id
        fields = {"action": "job", "task_id": task_id, "attempt": attempt, "correlation_id": joined}
        logger.info("job began", extra=fields)
        return task

    def run(self, task: Task, work: Callable[[], Task]) -> Task:
        """Do the work of a held task, and return the task after it."""
        try:
            return work()
        except LeaseLost:
            return self.tasks.reads.get(task.task_id)
        except (Exception, RunStopped) as error:  # the work is foreign code; its error is recorded on the task
            ending = self.ending(task, error)
            if ending.is_the_drivers:
                raise
            return end_attempt(self.tasks, task, ending)

    def succeed(
        self, task: Task, summary: str, details: Mapping[str, Any] = NOTHING, fields: Mapping[str, Any] = NOTHING
    ) -> Task:
        """Record the success of an attempt, with the work's own details and fields of the record."""
        leases = self.tasks.holding(task).leases
        return leases.succeed(task.task_id, task.attempt_count, summary, details=details, **fields)


def end_attempt(tasks: TaskService, task: Task, ending: AttemptEnding) -> Task:
    """End the attempt of a task as it was read, and return the task; a former holder records nothing."""
    with suppress(LeaseLost):
        return tasks.holding(task).leases.end_attempt(task.task_id, task.attempt_count, ending.error, wait=ending.wait)
    return tasks.reads.get(task.task_id)


def ending_of(
    error: Exception | RunStopped, classify: Callable[[Exception], ErrorClass], *, traced: bool = True
) -> AttemptEnding:
    """Return how `error` ends an attempt; `classify` decides the class of the work's own errors. With `traced`, the
    place of an error of the work is recorded. A lost lease has no ending: its process records nothing."""

    def failed(error: Exception | RunStopped, kind: ErrorClass) -> AttemptError:
        return failed_work(error, kind) if traced else AttemptError(_code_of(error), str(error), kind)

    match error:
        case RunPaused():
            return AttemptEnding(AttemptError(error.code, str(error), ErrorClass.PAUSED), PAUSED_WAIT)
        case RunHandedOver():
            return AttemptEnding(AttemptError(error.code, str(error), ErrorClass.HANDED_OVER))
        case RunPostponed():
            return AttemptEnding(AttemptError(error.code, str(error), ErrorClass.WAITING), error.wait)
        case RunCancelled():
            return AttemptEnding(AttemptError(error.code, str(error), ErrorClass.PERMANENT))
        case RunTimedOut():
            return AttemptEnding(failed(error, ErrorClass.TRANSIENT))
        case AwaitedTaskFailed() | StoreRefused():
            return AttemptEnding(failed(error, ErrorClass.PERMANENT))
        case TaskError() | RunStopped():
            return AttemptEnding(AttemptError(error.code, str(error), ErrorClass.INTERRUPTED))
        case _:
            return AttemptEnding(failed(error, classify(error)))


def failed_work(error: Exception | RunStopped, kind: ErrorClass) -> AttemptError:
    """Return the attempt's error for work that raised `error`; the code of a DelegationError is kept."""
    is_known = isinstance(error, DelegationError | RunStopped)
    summary = redacted(str(error) if is_known else described(error))
    return AttemptError(_code_of(error), summary, kind, f"{summary}\n{where(error)}")


def _code_of(error: Exception | RunStopped) -> str:
    return error.code if isinstance(error, DelegationError | RunStopped) else UNEXPECTED_ERROR


def described(error: BaseException) -> str:
    """Return the type and message of an error, like the last line of a Python traceback."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def where(error: BaseException) -> str:
    """Return the calls that led to an error and its causes, innermost last: file, line, function; no values."""
    return redacted("\n".join(_lines(error)))[:_LONGEST]


def _lines(error: BaseException) -> Iterator[str]:
    current: BaseException | None = error
    for depth in range(_CAUSES):
        if current is None:
            return
        if depth:
            yield f"caused by {described(current)}"
        for frame in traceback.extract_tb(current.__traceback__)[-_FRAMES:]:
            yield f"  at {'/'.join(PurePath(frame.filename).parts[-2:])}:{frame.lineno} in {frame.name}"
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
