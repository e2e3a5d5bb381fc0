"""Which waiting task starts next: the lanes of tasks, their caps (`delegation.limits.*`) and the choice. Pure."""

import hashlib
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Self
from urllib.parse import quote, unquote

from delegation.tasks.life.model import HELD, WAITING, Status, Task

HIGHEST: Final = 9
NORMAL: Final = 5
_INLINE: Final = "inline"
_LONGEST: Final = 200
"""Characters of one part of a lane; five parts and a time fit a sort key of DynamoDB (1,024 bytes)."""

_TEXT: Final = re.compile(r"(\d)/([^/]*)/([^/]*)/([^/]*)/(b?)([sl])")


class Stage(StrEnum):
    """The stage of a task's admission: waiting, dispatched without a holder, or held. A large task in PREPARING has not
    started its work: its job may wait for the job service for hours."""

    QUEUED = "queued"
    STARTING = "starting"
    PREPARING = "preparing"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of a task before it runs. `priority` is 0 to 9. A task that `is_background` delays no other task,
    whatever their priorities."""

    tenant: str = ""
    bucket: str = ""
    is_small: bool = True
    priority: int = NORMAL
    is_background: bool = False


TraitsOf = Callable[[str], Traits]
"""Returns the traits of a task from its stored payload."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Tasks that are equal for admission. `tenant`, `bucket` and `task_type` are encoded for keys (`part`). `priority`
    is 0 to HIGHEST, the first to be admitted; a lane that `is_background` has the lowest."""

    tenant: str
    bucket: str
    task_type: str
    priority: int = NORMAL
    is_small: bool = True
    is_background: bool = False

    @classmethod
    def of(cls, task_type: str, traits: Traits) -> Self:
        """Return the lane of a task. Raises ValueError for a priority outside of 0 to 9."""
        if not 0 <= traits.priority <= HIGHEST:
            raise ValueError(f"priority: {traits.priority} is not between 0 and {HIGHEST}")
        priority = 0 if traits.is_background else traits.priority
        names = part(traits.tenant), part(traits.bucket), part(task_type)
        return cls(*names, priority, traits.is_small, traits.is_background)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of a lane; a text of a newer release becomes an unknown task type."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return cls("", "", part(text))
        urgency, tenant, bucket, task_type, background, size = match.groups()
        return cls(tenant, bucket, task_type, HIGHEST - int(urgency), size == "s", bool(background))

    @property
    def text(self) -> str:
        """The lane as part of a sort key: the highest priority sorts first."""
        size = f"{'b' if self.is_background else ''}{'s' if self.is_small else 'l'}"
        return f"{HIGHEST - self.priority}/{self.tenant}/{self.bucket}/{self.task_type}/{size}"

    @property
    def words(self) -> str:
        """The lane for people; a name that was too long for a key is cut."""
        named = [f"tenant {unquote(self.tenant)}"] if self.tenant else []
        named += [f"bucket {unquote(self.bucket)}"] if self.bucket else []
        size = "small" if self.is_small else "large"
        rank = "in the background" if self.is_background else f"priority {self.priority}"
        return ", ".join((*named, f"{size} {unquote(self.task_type)}", rank))


def part(value: str) -> str:
    """Return a name as part of a lane: without separators, at most 200 characters, distinct for distinct names."""
    encoded = quote(value, safe="")
    if len(encoded) <= _LONGEST:
        return encoded
    digest = hashlib.sha256(encoded.encode()).hexdigest()[:32]
    return f"{encoded[: _LONGEST - 33]}~{digest}"


def stage_of(task: Task) -> Stage | None:
    """Return the stage of a task, None if it has ended or is not subject to admission."""
    lane = task.admission.lane
    if lane is None:
        return None
    if task.status is Status.ACQUIRING_RESOURCES and not _has_begun(task) and not Lane.parse(lane).is_small:
        return Stage.PREPARING
    if task.status in HELD:
        return Stage.HELD
    if task.status in WAITING:
        return Stage.STARTING if task.admission.admitted_ts is not None else Stage.QUEUED
    return None


def _has_begun(task: Task) -> bool:
    """Return whether an attempt is known to work: in this process, or in a job that has reported."""
    if task.engine == _INLINE:
        return True
    began = task.lease.acquired_ts
    return task.progress_ts is not None and (began is None or task.progress_ts >= began)


PREFIX: Final = "delegation.limits."
_OF_TYPE: Final = "task-type."
_EACH: Final = {"all": "everything", "tenant": "tenant", "bucket": "bucket"}
_NUMBER: Final = re.compile(r"[1-9]\d{0,5}")


@dataclass(frozen=True, slots=True)
class Caps:
    """Caps on tasks that run at once: all, of one tenant, on one bucket, of one task type; None is no cap."""

    everything: int | None = None
    tenant: int | None = None
    bucket: int | None = None
    task_types: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], refuse: Callable[[str, str], Exception]) -> Self | None:
        """Return the caps in these properties, None without any. Raises what `refuse` makes of a name and a reason."""
        caps: dict[str, int] = {}
        task_types: dict[str, int] = {}
        for name, value in properties.items():
            key = name.removeprefix(PREFIX)
            if not _NUMBER.fullmatch(value):
                raise refuse(name, f"{value!r} is not a positive whole number")
            if key in _EACH:
                caps[_EACH[key]] = int(value)
            elif key.startswith(_OF_TYPE) and (named := key.removeprefix(_OF_TYPE)):
                task_types[part(named)] = int(value)
            else:
                raise refuse(name, "is not a property of this service")
        return cls(**caps, task_types=task_types) if properties else None

    def caps(self, lane: Lane) -> tuple[tuple[tuple[str, ...], int], ...]:
        """Return the caps that a task of a lane counts against, each with the key of its count."""
        caps = (
            (("all",), self.everything),
            (("tenant", lane.tenant), self.tenant),
            (("bucket", lane.bucket), self.bucket if lane.bucket else None),
            (("task-type", lane.task_type), self.task_types.get(lane.task_type)),
        )
        return tuple((key, cap) for key, cap in caps if cap is not None)


STARTING_AT_LEAST: Final = 25
"""How many dispatched tasks may be without a holder; more only while more tasks run. So overload does not grow."""

LANES: Final = 16
"""The most lanes from which one admission chooses; the next admission continues after the last of them."""


BACKGROUND_AT_ONCE: Final = 16
"""The most background tasks that run at a time, whatever the caps allow."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A task that waits for its admission since a time."""

    task_id: str
    lane: Lane
    since: datetime


@dataclass(frozen=True, slots=True)
class Running:
    """An admitted task, which has a holder or was dispatched and will have one soon. A large one that is not `is_begun`
    may still wait for its job to start."""

    task_id: str
    lane: Lane
    is_held: bool
    is_begun: bool = True


def room(running: Sequence[Running], limits: Caps) -> int:
    """Return how many more tasks may start now, in any lane. Background tasks take no room from others. Dispatched
    tasks without a holder are at most as many as held ones, or STARTING_AT_LEAST, so that executions without a free
    Lambda do not accumulate."""
    return _room(_foreground(running), limits)


def _background_room(running: Sequence[Running], limits: Caps) -> int:
    """Return how many background tasks may start in the room that all other tasks leave."""
    own = BACKGROUND_AT_ONCE - sum(attempt.lane.is_background for attempt in running)
    return max(min(own, room(running, limits), _room(running, limits)), 0)


def _foreground(running: Sequence[Running]) -> Sequence[Running]:
    return [attempt for attempt in running if not attempt.lane.is_background]


def _room(running: Sequence[Running], limits: Caps) -> int:
    held = sum(attempt.is_held for attempt in running)
    starting = max(STARTING_AT_LEAST, held) - (len(running) - held)
    return max(starting if limits.everything is None else min(starting, limits.everything - len(running)), 0)


def admitted(waiting: Iterable[Queued], running: Sequence[Running], limits: Caps) -> tuple[Queued, ...]:
    """Return the tasks to start now, in order: by highest priority; then the tenant with the fewest running tasks, and
    its bucket with the fewest; a small task unless more small than large ones run there; the longest waiting. A task at
    its cap is skipped and delays no other. Large tasks that have not started their work take at most half of a cap, so
    small ones run while their jobs wait. Background tasks come last, take the remaining room, and count against no cap
    of others."""
    lanes: dict[Lane, deque[Queued]] = defaultdict(deque)
    for queued in sorted(waiting, key=lambda queued: (queued.since, queued.task_id)):
        lanes[queued.lane].append(queued)
    first = {lane: queue for lane, queue in lanes.items() if not lane.is_background}
    chosen = _taken(first, _counted(_foreground(running), limits), room(running, limits))
    beside = (*running, *(Running(queued.task_id, queued.lane, is_held=False, is_begun=False) for queued in chosen))
    last = {lane: queue for lane, queue in lanes.items() if lane.is_background}
    return (*chosen, *_taken(last, _counted(beside, limits), _background_room(beside, limits)))


def _taken(lanes: Mapping[Lane, deque[Queued]], counts: "_Counts", free: int) -> tuple[Queued, ...]:
    """Take tasks from lanes while there is room."""
    chosen: list[Queued] = []
    for _ in range(free):
        open_lanes = [lane for lane, queue in lanes.items() if queue and counts.has_room(lane)]
        if not open_lanes:
            break
        lane = min(open_lanes, key=lambda lane: (*counts.turn(lane), lanes[lane][0].since, lanes[lane][0].task_id))
        chosen.append(lanes[lane].popleft())
        counts.add(lane, is_begun=False)
    return tuple(chosen)


def suffices(queued: Iterable[Queued], running: Sequence[Running], limits: Caps) -> bool:
    """Return whether enough waiting tasks are known: for all the room, and from at least LANES lanes."""
    queued = tuple(queued)
    counts = _counted(_foreground(running), limits)
    free = room(running, limits)
    open_lanes = {task.lane for task in queued if counts.has_room(task.lane)}
    return len(open_lanes) >= LANES and len(admitted(queued, running, limits)) >= free


def blocking(lane: Lane, running: Sequence[Running], limits: Caps) -> tuple[str, ...]:
    """Return in words what keeps a task of a lane from starting; empty if it may start."""
    counted = running if lane.is_background else _foreground(running)
    full = _counted(counted, limits).blocking(lane)
    free = _background_room(running, limits) if lane.is_background else room(running, limits)
    if full or free:
        return full
    if lane.is_background and room(running, limits):
        return (f"{BACKGROUND_AT_ONCE} background tasks already run, or other tasks take all places",)
    return ("too many dispatched tasks have not started: check the quotas of Lambda and Step Functions",)


def _counted(running: Iterable[Running], limits: Caps) -> "_Counts":
    counts = _Counts(limits)
    for attempt in running:
        counts.add(attempt.lane, is_begun=attempt.is_begun)
    return counts


class _Counts:
    """Counts of running tasks by everything that is capped or shared."""

    def __init__(self, limits: Caps) -> None:
        self._limits = limits
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._waiting: Counter[tuple[str, ...]] = Counter()
        """The large tasks among them whose work has not started."""

    def add(self, lane: Lane, *, is_begun: bool) -> None:
        size = "small" if lane.is_small else "large"
        if not lane.is_small and not is_begun:
            self._waiting.update(key for key, _ in self._limits.caps(lane))
        self._counts.update((
            ("all",),
            ("tenant", lane.tenant),
            ("bucket", lane.bucket),
            ("task-type", lane.task_type),
            ("share", lane.tenant, lane.bucket),
            ("share", lane.tenant, lane.bucket, size),
        ))  # fmt: skip

    def has_room(self, lane: Lane) -> bool:
        caps = self._limits.caps(lane)
        if not all(self._counts[key] < cap for key, cap in caps):
            return False
        return lane.is_small or all(self._waiting[key] < (cap + 1) // 2 for key, cap in caps)

    def blocking(self, lane: Lane) -> tuple[str, ...]:
        caps = self._limits.caps(lane)
        full = [
            f"{_name(key)}: {self._counts[key]} of {cap} tasks run" for key, cap in caps if self._counts[key] >= cap
        ]
        halves = ((key, (cap + 1) // 2) for key, cap in caps if not lane.is_small)
        waiting = [
            f"{_name(key)}: {self._waiting[key]} large tasks wait for their jobs to begin; the limit is {half}"
            for key, half in halves
            if self._waiting[key] >= half
        ]
        return (*full, *waiting)

    def turn(self, lane: Lane) -> tuple[int, int, int, bool]:
        """Return the sort key of a lane's turn; the lowest comes first."""
        share = ("share", lane.tenant, lane.bucket)
        small_first = self._counts[*share, "small"] <= self._counts[*share, "large"]
        return (
            -lane.priority,
            self._counts["tenant", lane.tenant],
            self._counts[share],
            lane.is_small is not small_first,
        )


def _name(key: tuple[str, ...]) -> str:
    counted, *of = key
    name = f"delegation.limits.{counted}"
    return f"{name}.{of[0]}" if counted == "task-type" else " ".join((name, *map(unquote, of)))
