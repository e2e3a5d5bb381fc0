"""The input of the state machine's states, and what a state's error means for the attempt; no I/O. Sources: AWS Step
Functions Developer Guide, "Handling errors in Step Functions workflows" (names of errors); AWS Lambda Developer Guide,
"Lambda function scaling" (a throttled invocation does not start the function)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from delegation.tasks.errors import TaskError
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import JOB_NOT_STARTED, START_REFUSED, AttemptError, ErrorClass
from polaris_common.errors import DelegationError


def malformed_step(message: str) -> DelegationError:
    return DelegationError(message, code="MALFORMED_STEP")


@dataclass(frozen=True, slots=True)
class Step:
    """The state of an execution: the task, the numbers of its dispatch and attempt, and the heartbeats counted.
    `holder` is set for a worker that runs the same steps without an execution (JobEngine). `following` is the answer
    that led to the state, `correlation_id` that of the task's request, known from Acquire on, and `error` the name of
    the state's error, for MakeDue."""

    task_id: str
    n: int
    attempt: int = 0
    turn: int = 0
    holder: str | None = None
    following: str | None = None
    correlation_id: str | None = None
    error: str | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> "Step":
        """Read a state's input. DelegationError (MALFORMED_STEP) names the field."""
        numbers = {name: event.get(name, 0) for name in ("n", "attempt", "turn")}
        for name, value in numbers.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise malformed_step(f"{name}: must be a non-negative integer")
        try:
            task_id = str(UUID(str(event.get("task_id"))))
        except ValueError:
            raise malformed_step("task_id: must be a UUID") from None
        failed = event.get("failed")
        error = failed.get("Error") if isinstance(failed, Mapping) else None
        joined = _text(event.get("correlation_id"))
        return cls(task_id, **numbers, following=_text(event.get("next")), correlation_id=joined, error=_text(error))

    @property
    def execution(self) -> str:
        """The execution's name, which is also the lease holder's."""
        return self.holder or execution_name(self.task_id, self.n)

    @property
    def job(self) -> str:
        """The name and client token of the attempt's job run."""
        return f"{self.task_id}-{self.attempt}"

    def to(self, following: str, **more: Any) -> dict[str, Any]:
        """Return the answer with which the state machine continues at `following`."""
        state = {"task_id": self.task_id, "n": self.n, "attempt": self.attempt, "turn": self.turn}
        joined = {} if self.correlation_id is None else {"correlation_id": self.correlation_id}
        return {**state, **joined, "next": following, **more}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def execution_name(task_id: str, n: int) -> str:
    """Return the name by which Step Functions deduplicates dispatches (at most 80 characters)."""
    return f"{task_id}-{n}"


_REFUSED: Final = "Lambda.TooManyRequestsException"
_NO_JOB_SERVICE: Final = "JobServiceUnavailable"
_DIED: Final = ("Runtime.", "Sandbox.")
"""Prefixes of the errors that Lambda reports for a process that has ended."""
_KILLED: Final = frozenset({"Runtime.ExitError", "Runtime.OutOfMemory", "Sandbox.Timedout"})
"""Errors of a process that ran out of memory or time; the others, such as a missing module, come from a deployment."""
_INLINE: Final = "inline"
_JOB_STARTS: Final = frozenset({"spark", "start-again"})
_STARTS: Final = frozenset({None, "wait", "prepare", _INLINE}) | _JOB_STARTS
"""The answers that lead to Acquire (None at first), Prepare, RunInline and StartJob."""


class Ending(StrEnum):
    """What is known of a failed state's invocation."""

    REFUSED = "refused"  # never started
    RAISED = "raised"  # the function raised an error, so it has ended
    DIED = "died"  # its process has ended
    UNKNOWN = "unknown"  # it may still run


@dataclass(frozen=True, slots=True)
class StateFailure:
    """A state's failure: `following` is the answer that led to it, None for Acquire; `error` is its error's name.
    Executions of a former definition pass no error on."""

    following: str | None
    error: str | None

    @property
    def ending(self) -> Ending:
        """What the error proves; names without a dot are exceptions of the function."""
        if self.error == _REFUSED:
            return Ending.REFUSED
        if self.error is None:
            return Ending.UNKNOWN
        if self.error.startswith(_DIED):
            return Ending.DIED
        return Ending.UNKNOWN if "." in self.error else Ending.RAISED

    @property
    def may_still_work(self) -> bool:
        """Whether an invocation of RunInline, the only state that does a task's work, may still run."""
        return self.following == _INLINE and self.ending is Ending.UNKNOWN

    @property
    def is_refused_start(self) -> bool:
        """Whether Lambda refused to start a function that would have started an attempt's work."""
        return self.following in _STARTS and self.ending is Ending.REFUSED

    @property
    def is_refused_job(self) -> bool:
        """Whether the job service did not answer the start of a job in any try."""
        return self.following in _JOB_STARTS and self.error == _NO_JOB_SERVICE

    @property
    def may_have_started_a_job(self) -> bool:
        """Whether an earlier try of the state may have started a job run without recording it."""
        return self.following in _JOB_STARTS

    def attempt_error(self, task: Task) -> AttemptError:
        """Return the error with which the held task's attempt ends; the same as for a worker if the work itself raised
        it. A refused start is excused unless its work has started, which only RUNNING shows: an attempt that continues
        in a new execution already has an engine."""
        if self.is_refused_start and task.status is not Status.RUNNING:
            text = "Lambda could not start the attempt, because too many functions run. The attempt is not counted"
            return AttemptError(START_REFUSED, text, ErrorClass.REFUSED)
        if self.is_refused_job and has_no_job(task):
            return job_not_started()
        if self.following in {"prepare", _INLINE} and self.ending is Ending.RAISED and self.error not in set(_names()):
            return AttemptError("UNEXPECTED_ERROR", f"the work raised {self.error}", ErrorClass.TRANSIENT)
        what = "failed" if self.error is None else f"failed with {self.error}"
        killed = self.following in {"prepare", _INLINE} and self.error in _KILLED
        text = f"a step of the state machine {what}"
        return AttemptError("EXECUTION_INTERRUPTED", text, ErrorClass.INTERRUPTED, killed=killed)


def has_no_job(task: Task) -> bool:
    """Return whether no job of the current attempt is known and none can have started its work. A job that was started
    without an answer finds its attempt ended before it changes anything, and the next start cancels it."""
    return task.is_held and task.status is not Status.RUNNING and task.job_run_id is None


def job_not_started() -> AttemptError:
    """Return the error of an attempt whose job the service did not start; it is excused."""
    text = "EMR Serverless is unavailable or refuses more jobs, so the attempt did not start. It is not counted"
    return AttemptError(JOB_NOT_STARTED, text, ErrorClass.REFUSED)


def _names(root: type[TaskError] = TaskError) -> Iterator[str]:
    """Yield the names of the errors with which a step itself fails, before or after the work."""
    yield root.__name__
    for kind in root.__subclasses__():
        yield from _names(kind)
