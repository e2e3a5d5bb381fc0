"""The interface of a purge's engine to the attempt that it runs for, and an implementation without a task."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from delegation.errors import DelegationError


class AttemptEnded(DelegationError):
    """The attempt ended before the work was done; completed work is kept, and nothing more may be deleted."""

    code: ClassVar[str] = "ATTEMPT_ENDED"
    retryable: ClassVar[bool] = True


class AttemptLost(AttemptEnded):
    """This attempt no longer holds the task: it must write and delete nothing more."""

    code = "LOST"


class AttemptCancelled(AttemptEnded):
    """The task was cancelled."""

    code = "CANCELLED"
    retryable = False


class AttemptHandedOver(AttemptEnded):
    """This attempt was handed over, for example at the end of its time; the next one resumes the work."""

    code = "HANDED_OVER"


class AttemptPaused(AttemptHandedOver):
    """This attempt was handed over because an operator paused its task; the next one resumes the work."""

    code = "PAUSED"


@dataclass(frozen=True, slots=True)
class PlanSegment:
    """A published part of the plan: `id` is its prefix in the plan bucket, `sha256` (hex) the hash of its index."""

    id: str
    sha256: str


class Attempt(Protocol):
    """The attempt that an engine works for. Every method may raise AttemptLost."""

    @property
    def task_id(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    def checkpoint(self, *, moved: bool = True) -> None:
        """Raise AttemptLost, AttemptCancelled or AttemptHandedOver if no further batch may start; called before each.

        `moved` tells whether the work made progress since the last call; a driver passes False while it only waits.
        """
        ...

    def plan(self) -> tuple[PlanSegment, ...]:
        """Return the segments published so far, in order."""
        ...

    def publish(self, segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
        """Append a segment unless another was published meanwhile; return the segments that are valid now.

        `files_planned` is the total over all segments, this one included.
        """
        ...

    def begin_deleting(self) -> None:
        """Record that the first delete follows; may be repeated safely."""
        ...

    def progress(self, *, files_deleted: int, files_failed: int, bytes_deleted: int) -> None:
        """Report the totals over all attempts at this plan."""
        ...


@dataclass
class Progress:
    files_deleted: int = 0
    files_failed: int = 0
    bytes_deleted: int = 0


class PlanHead:
    """The published segments, which all attempts at a task share. Thread-safe."""

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
    """An attempt in memory; `on_checkpoint` may raise AttemptEnded."""

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
