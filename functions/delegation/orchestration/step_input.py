"""The input of the state machine's states."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from polaris_common.errors import DelegationError


def malformed_step(message: str) -> DelegationError:
    return DelegationError(message, code="MALFORMED_STEP")


@dataclass(frozen=True, slots=True)
class Step:
    """The state of an execution: the task, the number of its dispatch and attempt, and the heartbeats counted.

    `holder` is set for a worker that runs the same steps without an execution (JobEngine). `following` is the answer
    that led to the state, `correlation_id` that of the task's request, known from Acquire on, and `error` the name of
    the error with which that state failed, for MakeDue.
    """

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
        """Read a state's input; raises DelegationError (MALFORMED_STEP), which names the field."""
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
    """Return a member, or None if the answer has none or several of the name."""
    return value if isinstance(value, str) else None


def execution_name(task_id: str, n: int) -> str:
    """Return the name by which Step Functions deduplicates dispatches (at most 80 characters)."""
    return f"{task_id}-{n}"
