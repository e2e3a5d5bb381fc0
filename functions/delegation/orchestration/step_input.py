"""The input that every state of the state machine gets and hands on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from delegation.errors import DelegationError


class MalformedStep(DelegationError):
    """A step's input is not what the state machine hands on."""

    code: ClassVar[str] = "MALFORMED_STEP"


@dataclass(frozen=True, slots=True)
class Step:
    """The state of an execution: which task, which dispatch, which attempt, how many heartbeats.

    `holder` is a worker that goes through the same steps without an execution (`driving.working`).
    """

    task_id: str
    n: int
    attempt: int = 0
    turn: int = 0
    holder: str | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> "Step":
        """Read a state's input; MalformedStep names the field."""
        numbers = {name: event.get(name, 0) for name in ("n", "attempt", "turn")}
        for name, value in numbers.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise MalformedStep(f"{name}: not a whole number")
        try:
            task_id = str(UUID(str(event.get("task_id"))))
        except ValueError:
            raise MalformedStep("task_id: not a UUID") from None
        return cls(task_id, **numbers)

    @property
    def execution(self) -> str:
        """The execution's name, which is the lease owner's too."""
        return self.holder or execution_name(self.task_id, self.n)

    @property
    def job(self) -> str:
        """The name and client token of the attempt's job run."""
        return f"{self.task_id}-{self.attempt}"

    def to(self, following: str, **more: Any) -> dict[str, Any]:
        """The answer that makes the state machine go on with `following`."""
        state = {"task_id": self.task_id, "n": self.n, "attempt": self.attempt, "turn": self.turn}
        return {**state, "next": following, **more}


def execution_name(task_id: str, n: int) -> str:
    """`{task_id}-{n}`: Step Functions' own deduplication key (≤ 80 characters)."""
    return f"{task_id}-{n}"
