"""The interface between a purge's engine and its attempt, and an implementation without a task.

Also how often Python collects garbage while millions of rows pass through a process. By default it does so once per 700
new containers, and a row is one. That took a fifth of a purge's CPU time and found nothing, because rows are in no
cycle and are freed without it.
"""

import functools
import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol


def receipt_key(plan_id: str) -> str:
    """Return the key of a receipt in the plan bucket, beside the last executed plan."""
    return f"{plan_id}/receipt.json"


@dataclass(frozen=True, slots=True)
class PlanSegment:
    """A published part of the plan. `id` is its prefix in the plan bucket, `sha256` (hex) the hash of its index."""

    id: str
    sha256: str


@dataclass(frozen=True, slots=True)
class StepsDone:
    """The head's record of the plan's execution, from which the rest can be planned again if the plan is lost.

    All files of `steps` are deleted that the table reaches by the metadata file `state`. `of` is the id of the plan's
    last segment. `roots` are the table's current and former locations, empty if they are too many. `lost` is the last
    segment of the plan whose loss is known and for which the references were requested again.
    """

    of: str
    state: str
    steps: tuple[str, ...]
    roots: tuple[str, ...] = ()
    lost: str = ""


class Attempt(Protocol):
    """The attempt that an engine works for. Every method raises an error once the attempt has lost its task."""

    @property
    def task_id(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    def checkpoint(self, *, moved: bool = True) -> None:
        """Raise RunStopped or another error if no further batch may start; called before each. `moved` states whether
        the work made progress since the last call; a driver passes False while it only waits."""
        ...

    def plan(self) -> tuple[PlanSegment, ...]:
        """Return the segments published so far, in order."""
        ...

    def publish(self, segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
        """Append a segment unless another was published meanwhile; return the segments that are now valid.
        `files_planned` is the total over all segments, including this one."""
        ...

    def replace_plan(self, segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
        """Publish a segment in place of all published ones, which are lost; return the segments that are now valid.
        `steps_done` then applies to the new plan."""
        ...

    def steps_done(self) -> StepsDone | None:
        """Return the last record, as of the last read of the head."""
        ...

    def record_steps(self, done: StepsDone) -> None:
        """Record which steps are deleted. Called before the first delete of the next step."""
        ...

    def begin_deleting(self) -> None:
        """Record that the first delete follows. May be repeated."""
        ...

    def progress(self, *, files_deleted: int, files_failed: int, bytes_deleted: int) -> None:
        """Report the totals over all attempts at this plan."""
        ...

    def measured(self, size: str, fits: bool = True) -> None:
        """Record the size of the work, and whether it fits a function."""
        ...

    def note(self, **details: Any) -> None:
        """Record details of the task from time to time, as a sign of progress."""
        ...

    def asked_by(self) -> Mapping[str, Any]:
        """Return `requested_by` and `cancelled_by` for the receipt."""
        ...


@dataclass
class Progress:
    files_deleted: int = 0
    files_failed: int = 0
    bytes_deleted: int = 0


class PlanHead:
    """The published segments, shared by all attempts at a task. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._segments: tuple[PlanSegment, ...] = ()
        self._done: StepsDone | None = None
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

    def replace(
        self, segment: PlanSegment, *, seen: tuple[PlanSegment, ...], files_planned: int
    ) -> tuple[PlanSegment, ...]:
        with self._lock:
            if self._segments == seen:
                self._segments, self.files_planned = (segment,), files_planned
                self._done = self._done and replace(self._done, of=segment.id)
            return self._segments

    def done(self) -> StepsDone | None:
        with self._lock:
            return self._done

    def record(self, done: StepsDone) -> None:
        with self._lock:
            self._done = done


@dataclass
class MemoryAttempt:
    """An attempt in memory. `on_checkpoint` may raise RunStopped."""

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

    def replace_plan(self, segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
        self._seen = self.head.replace(segment, seen=self._seen, files_planned=files_planned)
        return self._seen

    def steps_done(self) -> StepsDone | None:
        return self.head.done()

    def record_steps(self, done: StepsDone) -> None:
        self.head.record(done)

    def begin_deleting(self) -> None:
        self.deleting = True

    def progress(self, *, files_deleted: int, files_failed: int, bytes_deleted: int) -> None:
        self.reported = Progress(files_deleted, files_failed, bytes_deleted)

    def measured(self, size: str, fits: bool = True) -> None: ...

    def note(self, **details: Any) -> None: ...

    def asked_by(self) -> Mapping[str, Any]:
        return {"requested_by": None, "cancelled_by": None}


_USUALLY: Final = gc.get_threshold()
_SELDOM: Final = (100_000, *_USUALLY[1:])


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Make all threads of the process collect garbage seldom."""
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*_USUALLY)


@functools.cache
def collect_seldom() -> None:
    """Make the process collect garbage seldom, for the life of an executor's process of one job. Imported modules stay
    out of the collection, because Spark's Python worker runs a full one after each task."""
    gc.freeze()
    gc.set_threshold(*_SELDOM)
