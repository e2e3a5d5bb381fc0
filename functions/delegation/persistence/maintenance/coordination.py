"""Tasks of which at most one run is under way in all processes (proposal, Special case: coordinated tasks)."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import Field

from delegation.persistence.backends.base import ObjectKey
from delegation.persistence.errors import StaleObject, TaskHeld, TaskTakenOver
from delegation.persistence.objects.objects import Loaded, PersistedModel
from delegation.persistence.objects.types import ObjectType
from delegation.persistence.objects.updateable import Updateables


class TaskState(PersistedModel):
    """A task's row: who runs it, until when (µs) it is believed to, and what a run leaves for the next."""

    holder: str | None = None
    presumed_lost_at: int = 0
    runs: int = 0
    finished_at: int = 0
    state: dict[str, Any] = Field(default_factory=dict)


TASK_TYPE: Final = ObjectType("coordinated-task", TaskState, mutable=True)


@dataclass(frozen=True)
class CoordinatedTask:
    """A task under `key`. A run that shows no sign of life for `lost_after` seconds is taken over.

    Two runs can overlap: the first was only slow and learns at its next checkpoint. What is done between checkpoints
    must therefore be harmless if done by both.
    """

    objects: Updateables
    key: ObjectKey
    lost_after: float
    now_us: Callable[[], int]

    def start(self) -> "TaskRun":
        """Begin a run, or take over a lost one; its `state` is what the last checkpoint left.

        Raises TaskHeld while another run is under way, OutcomeUnknown, BackendUnavailable.
        """
        stored = self.objects.read(self.key, TaskState)
        now = self.now_us()
        if stored and stored.value.holder is not None and now < stored.value.presumed_lost_at:
            raise TaskHeld(f"{self.key.type} {self.key.id} is being run")
        before = stored.value if stored else TaskState()
        value = before.model_copy(
            update={"holder": secrets.token_hex(8), "presumed_lost_at": self.deadline(now), "runs": before.runs + 1}
        )
        try:
            held = self.objects.update(stored, value) if stored else self.objects.insert(self.key, value)
        except StaleObject as error:
            raise TaskHeld(f"{self.key.type} {self.key.id} was started by another process") from error
        return TaskRun(self, held)

    def deadline(self, now: int) -> int:
        """When a run that shows a sign of life at `now` is presumed lost, in µs."""
        return now + round(self.lost_after * 1_000_000)


class TaskRun:
    """A run under way, for one thread."""

    def __init__(self, task: CoordinatedTask, held: Loaded[TaskState]) -> None:
        self._task = task
        self._held = held

    @property
    def state(self) -> Mapping[str, Any]:
        """What the last checkpoint left, of this run or of the one before."""
        return self._held.value.state

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Show a sign of life and leave `state` (plain CBOR values). Raises TaskTakenOver."""
        self._write({"presumed_lost_at": self._task.deadline(self._task.now_us()), "state": dict(state)})

    def finish(self, state: Mapping[str, Any]) -> None:
        """End the run and leave `state` for the next. Raises TaskTakenOver."""
        self._write({"holder": None, "finished_at": self._task.now_us(), "state": dict(state)})

    def give_up(self) -> None:
        """End the run so that another may go on from the last checkpoint at once. Raises TaskTakenOver."""
        self._write({"holder": None})

    def _write(self, update: Mapping[str, Any]) -> None:
        try:
            self._held = self._task.objects.update(self._held, self._held.value.model_copy(update=dict(update)))
        except StaleObject as error:
            raise TaskTakenOver(f"run {self._held.value.runs} of {self._task.key.type} was presumed lost") from error
