"""Tasks that one process at a time runs (NoSQL persistence proposal, Special case: coordinated tasks)."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import Field

from polaris_persistence.backends.base import ObjectKey
from polaris_persistence.errors import StaleObject, TaskHeld, TaskTakenOver
from polaris_persistence.objects.objects import Loaded, PersistedModel
from polaris_persistence.objects.types import ObjectType
from polaris_persistence.objects.updateable import Updateables


class TaskState(PersistedModel):
    """A task's object: the holder, when its run is presumed lost (µs), and the state for the next run."""

    holder: str | None = None
    presumed_lost_at: int = 0
    runs: int = 0
    finished_at: int = 0
    state: dict[str, Any] = Field(default_factory=dict)


TASK_TYPE: Final = ObjectType("coordinated-task", TaskState, mutable=True)


@dataclass(frozen=True)
class CoordinatedTask:
    """A task under `key`. A run without a checkpoint for `lost_after` seconds is taken over.

    A slow run learns that at its next checkpoint, so work between checkpoints must be safe to do twice.
    """

    objects: Updateables
    key: ObjectKey
    lost_after: float
    now_us: Callable[[], int]

    def start(self) -> "TaskRun":
        """Start a run, or take over a lost one. Raises TaskHeld, CommitOutcomeUnknown, BackendUnavailable."""
        stored = self.objects.read(self.key, TaskState)
        now = self.now_us()
        if stored and stored.value.holder is not None and now < stored.value.presumed_lost_at:
            raise TaskHeld(f"another process is running {self.key.type} {self.key.id}. Try again later")
        before = stored.value if stored else TaskState()
        value = before.model_copy(
            update={"holder": secrets.token_hex(8), "presumed_lost_at": self.deadline(now), "runs": before.runs + 1}
        )
        try:
            held = self.objects.update(stored, value) if stored else self.objects.insert(self.key, value)
        except StaleObject as error:
            raise TaskHeld(f"another process started {self.key.type} {self.key.id}. Try again later") from error
        return TaskRun(self, held)

    def deadline(self, now: int) -> int:
        """Return when a run with a checkpoint at `now` is presumed lost, in µs."""
        return now + round(self.lost_after * 1_000_000)


class TaskRun:
    def __init__(self, task: CoordinatedTask, held: Loaded[TaskState]) -> None:
        self._task = task
        self._held = held

    @property
    def state(self) -> Mapping[str, Any]:
        """The state of the last checkpoint, of this run or of the one before."""
        return self._held.value.state

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Extend the time until the run is presumed lost and store `state` (CBOR values). Raises TaskTakenOver."""
        self._write({"presumed_lost_at": self._task.deadline(self._task.now_us()), "state": dict(state)})

    def finish(self, state: Mapping[str, Any]) -> None:
        """End the run and store `state` for the next. Raises TaskTakenOver."""
        self._write({"holder": None, "finished_at": self._task.now_us(), "state": dict(state)})

    def hand_over(self) -> None:
        """End the run so that another can continue at once from the last checkpoint. Raises TaskTakenOver."""
        self._write({"holder": None})

    def _write(self, update: Mapping[str, Any]) -> None:
        try:
            self._held = self._task.objects.update(self._held, self._held.value.model_copy(update=dict(update)))
        except StaleObject as error:
            raise TaskTakenOver(
                f"another process took over run {self._held.value.runs} of {self._task.key.type}, which was presumed "
                "lost. Stop this run"
            ) from error
