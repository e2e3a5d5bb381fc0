"""One attempt at a purge, as the engine sees it: the seam to the task that it runs for.

Whoever holds the task implements this over the task store; the in-memory one here runs a purge without any task.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from delegation.errors import DelegationError


class AttemptEnded(DelegationError):
    """The attempt is over although the work is not; nothing was lost, and the holder deletes nothing more."""

    code: ClassVar[str] = "ATTEMPT_ENDED"
    retryable: ClassVar[bool] = True


class AttemptLost(AttemptEnded):
    """Another attempt holds the task now: write nothing, delete nothing."""

    code = "LOST"


class AttemptCancelled(AttemptEnded):
    """A person asked to stop."""

    code = "CANCELLED"
    retryable = False


class AttemptHandedOver(AttemptEnded):
    """Time is up here; the next attempt goes on where this one stops."""

    code = "HANDED_OVER"


@dataclass(frozen=True, slots=True)
class PlanSegment:
    """A published part of the plan: `id` is where it lies in the plan bucket, `sha256` (hex) that of its index."""

    id: str
    sha256: str


class Attempt(Protocol):
    """What an engine may ask of and tell the task it works for; every method but `checkpoint` may raise AttemptLost."""

    @property
    def task_id(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    def checkpoint(self, *, moved: bool = True) -> None:
        """Raise AttemptLost, AttemptCancelled or AttemptHandedOver when no other batch may start; called before each.

        A checkpoint is a sign of life of the work; a driver that waits for others says whether they have `moved`.
        """
        ...

    def plan(self) -> tuple[PlanSegment, ...]:
        """The segments published so far, in order."""
        ...

    def publish(self, segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
        """Append a segment to those this attempt has seen, or learn those that another published in between.

        `files_planned` is the total over all segments, this one included. The answer is what holds now.
        """
        ...

    def begin_deleting(self) -> None:
        """Record that the first delete comes next; repeats are harmless."""
        ...

    def progress(self, *, files_deleted: int, files_failed: int, bytes_deleted: int) -> None:
        """Totals over all attempts at this plan."""
        ...


@dataclass
class Progress:
    files_deleted: int = 0
    files_failed: int = 0
    bytes_deleted: int = 0


class PlanHead:
    """What all attempts at one task share: the published segments. Atomic under threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._segments: tuple[PlanSegment, ...] = ()
        self.files_planned = 0

    def read(self) -> tuple[PlanSegment, ...]:
        with self._lock:
            return self._segments

    def append(
        self, segment: PlanSegment, *, seen: tuple[PlanSegment, ...], files_planned: int
    ) -> tuple[PlanSegment, ...]:
        with self._lock:
            if self._segments == seen:
                self._segments = (*seen, segment)
                self.files_planned = files_planned
            return self._segments


@dataclass
class MemoryAttempt:
    """An attempt in this process; `on_checkpoint` may raise what ends an attempt."""

    task_id: str
    attempt: int = 1
    head: PlanHead = field(default_factory=PlanHead)
    on_checkpoint: Callable[[], None] | None = None
    deleting: bool = False
    reported: Progress = field(default_factory=Progress)
    signs_of_life: int = 0

    def __post_init__(self) -> None:
        self._seen = self.head.read()

    def checkpoint(self, *, moved: bool = True) -> None:
        self.signs_of_life += moved
        if self.on_checkpoint is not None:
            self.on_checkpoint()

    def plan(self) -> tuple[PlanSegment, ...]:
        self._seen = self.head.read()
        return self._seen

    def publish(self, segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
        self._seen = self.head.append(segment, seen=self._seen, files_planned=files_planned)
        return self._seen

    def begin_deleting(self) -> None:
        self.deleting = True

    def progress(self, *, files_deleted: int, files_failed: int, bytes_deleted: int) -> None:
        self.reported = Progress(files_deleted, files_failed, bytes_deleted)
