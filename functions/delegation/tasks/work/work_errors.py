"""Runs attempts, and records how an error ends them. Of errors of the work the type, message and place are recorded,
without secrets."""

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePath
from typing import Any, Final

from delegation.errors import RunCancelled, RunHandedOver, RunPaused, RunStopped, RunTimedOut
from delegation.tasks.errors import (
    AwaitedTaskFailed,
    LeaseLost,
    RunPostponed,
    StoreRefused,
    TaskError,
    TaskNotFound,
    redacted,
)
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.transitions import NOTHING, held_by
from delegation.tasks.pauses import PAUSED_WAIT
from delegation.tasks.work.service import TaskService
from polaris_common.errors import DelegationError

logger = logging.getLogger(__name__)
UNEXPECTED_ERROR: Final = "UNEXPECTED_ERROR"
_FRAMES: Final = 12
_CAUSES: Final = 4
_LONGEST: Final = 4_000
"""Characters of one attempt's traceback, so that the history of a task has room for several."""


@dataclass(frozen=True, slots=True)
class AttemptEnding:
    """The error with which an attempt ends, and the wait until the next one if policies do not decide it."""

    error: AttemptError
    wait: timedelta | None = None

    @property
    def is_the_drivers(self) -> bool:
        """Whether neither the work nor an operator ended the attempt, but what its driver did for it failed."""
        return self.error.kind is ErrorClass.INTERRUPTED


@dataclass(frozen=True, slots=True)
class AttemptRunner:
    """Runs the attempts of purges, drops, upkeep and functions, and records how they end. `ending` translates what
    ended an attempt. Without the lease nothing is recorded. Errors for the attempt's driver are raised: those of the
    store, and of `ending`."""

    tasks: TaskService
    ending: Callable[[Task, Exception | RunStopped], AttemptEnding]

    def prepare(self, task: Task, choose: Callable[[], str]) -> str | None:
        """Return the engine that `choose` returns; None if it raised what ended the attempt, which is recorded."""
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
        """Return the task of a job that begins; raise LeaseLost if the attempt does not hold it any more."""
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
        except (Exception, RunStopped) as error:  # the work is foreign code; what it raises is recorded on its task
            found = self.ending(task, error)
            if found.is_the_drivers:
                raise
            return end_attempt(self.tasks, task, found)

    def succeed(
        self, task: Task, summary: str, details: Mapping[str, Any] = NOTHING, fields: Mapping[str, Any] = NOTHING
    ) -> Task:
        """Record the success of an attempt, with details of the work's own and fields of the record."""
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
    """Return how an attempt ends that `error` ended; `classify` is asked about errors of the work itself. If `traced`,
    the place of an error of the work is recorded. A lost lease has no ending: its process records nothing."""
    failed = failed_work if traced else _untraced
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
    """Return the error of an attempt whose work raised `error`; the code of a DelegationError is kept."""
    known = isinstance(error, DelegationError | RunStopped)
    code = error.code if isinstance(error, DelegationError | RunStopped) else UNEXPECTED_ERROR
    summary = redacted(str(error) if known else described(error))
    return AttemptError(code, summary, kind, f"{summary}\n{where(error)}")


def _untraced(error: Exception | RunStopped, kind: ErrorClass) -> AttemptError:
    code = error.code if isinstance(error, DelegationError | RunStopped) else UNEXPECTED_ERROR
    return AttemptError(code, str(error), kind)


def described(error: BaseException) -> str:
    """Return the type of an error and its message, as the last line of a Python traceback has them."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def where(error: BaseException) -> str:
    """Return the calls that led to an error and to its causes, innermost last: file, line, function; no values."""
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
