"""Which waiting tasks may start: a pure function of what waits, what runs, and the caps."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from delegation.tasks.life.admission.lanes import Lane
from delegation.tasks.life.admission.limits import Caps

STARTING_AT_LEAST: Final = 25
"""So many dispatched tasks may be without a holder, more when more run: overload shows, and does not grow."""

LANES: Final = 16
"""Lanes from which one admission chooses, if so many wait; the next one begins with the lane behind them."""


BACKGROUND_AT_ONCE: Final = 16
"""Tasks in the background that run at a time, whatever the caps allow."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A task that waits for its admission since a time."""

    task_id: str
    lane: Lane
    since: datetime


@dataclass(frozen=True, slots=True)
class Running:
    """An admitted task; it has a holder, or was dispatched and will have one soon.

    The work of a large one that is not `is_begun` may have to wait for a job to start.
    """

    task_id: str
    lane: Lane
    is_held: bool
    is_begun: bool = True


def room(running: Sequence[Running], limits: Caps) -> int:
    """Return how many more tasks may start now, whatever their lanes; those in the background take no room of others.

    Dispatched tasks that no process holds yet are at most as many as the held ones, or STARTING_AT_LEAST: executions
    that find no free Lambda do not become more and more.
    """
    return _room(_foreground(running), limits)


def _background_room(running: Sequence[Running], limits: Caps) -> int:
    """Return how many tasks in the background may start: as many as find room beside everything."""
    own = BACKGROUND_AT_ONCE - sum(one.lane.is_background for one in running)
    return max(min(own, room(running, limits), _room(running, limits)), 0)


def _foreground(running: Sequence[Running]) -> Sequence[Running]:
    return [one for one in running if not one.lane.is_background]


def _room(running: Sequence[Running], limits: Caps) -> int:
    held = sum(one.is_held for one in running)
    starting = max(STARTING_AT_LEAST, held) - (len(running) - held)
    return max(starting if limits.everything is None else min(starting, limits.everything - len(running)), 0)


def admitted(waiting: Iterable[Queued], running: Sequence[Running], limits: Caps) -> tuple[Queued, ...]:
    """Return the tasks to start now, in their order.

    First those of the highest priority; of these, one of the tenant with the fewest running tasks, on its bucket with
    the fewest; a small one as long as no more small than large ones run there; the one that waits longest. A task whose
    cap is reached is passed over, and hinders no other. Large tasks whose work has not begun have at most half of what
    a cap allows: while their jobs wait for the job service, small ones run. Tasks in the background come after all
    that may start, take what room is left beside everything, and count against no cap of others.
    """
    lanes: dict[Lane, deque[Queued]] = defaultdict(deque)
    for one in sorted(waiting, key=lambda one: (one.since, one.task_id)):
        lanes[one.lane].append(one)
    first = {lane: queue for lane, queue in lanes.items() if not lane.is_background}
    chosen = _taken(first, _counted(_foreground(running), limits), room(running, limits))
    beside = (*running, *(Running(one.task_id, one.lane, is_held=False, is_begun=False) for one in chosen))
    last = {lane: queue for lane, queue in lanes.items() if lane.is_background}
    return (*chosen, *_taken(last, _counted(beside, limits), _background_room(beside, limits)))


def _taken(lanes: Mapping[Lane, deque[Queued]], counts: "_Counts", free: int) -> tuple[Queued, ...]:
    """Take tasks of lanes while there is room."""
    chosen: list[Queued] = []
    for _ in range(free):
        open_lanes = [lane for lane, queue in lanes.items() if queue and counts.has_room(lane)]
        if not open_lanes:
            break
        lane = min(open_lanes, key=lambda lane: (*counts.turn(lane), lanes[lane][0].since, lanes[lane][0].task_id))
        chosen.append(lanes[lane].popleft())
        counts.add(lane, is_begun=False)
    return tuple(chosen)


def suffices(found: Iterable[Queued], running: Sequence[Running], limits: Caps) -> bool:
    """Return whether enough is known of what waits: tasks for all of the room, and from LANES lanes at least."""
    found = tuple(found)
    counts = _counted(_foreground(running), limits)
    free = room(running, limits)
    open_lanes = {one.lane for one in found if counts.has_room(one.lane)}
    return len(open_lanes) >= LANES and len(admitted(found, running, limits)) >= free


def blocking(lane: Lane, running: Sequence[Running], limits: Caps) -> tuple[str, ...]:
    """Return in words what keeps a task of a lane from starting, nothing if it may start."""
    counted = running if lane.is_background else _foreground(running)
    full = _counted(counted, limits).blocking(lane)
    free = _background_room(running, limits) if lane.is_background else room(running, limits)
    if full or free:
        return full
    if lane.is_background and room(running, limits):
        return ("other tasks, or enough tasks in the background, run",)
    return ("dispatched tasks that have no holder yet: executions or functions are short",)


def _counted(running: Iterable[Running], limits: Caps) -> "_Counts":
    counts = _Counts(limits)
    for one in running:
        counts.add(one.lane, is_begun=one.is_begun)
    return counts


class _Counts:
    """How many tasks run, by everything that is capped or shared."""

    def __init__(self, limits: Caps) -> None:
        self._limits = limits
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._waiting: Counter[tuple[str, ...]] = Counter()
        """The large tasks among them whose work has not begun."""

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
        full = [f"{_name(key)}: {self._counts[key]} of {cap} run" for key, cap in caps if self._counts[key] >= cap]
        halves = ((key, (cap + 1) // 2) for key, cap in caps if not lane.is_small)
        waiting = [
            f"{_name(key)}: {self._waiting[key]} large tasks have not begun, at most {half} may wait for their jobs"
            for key, half in halves
            if self._waiting[key] >= half
        ]
        return (*full, *waiting)

    def turn(self, lane: Lane) -> tuple[int, int, int, bool]:
        """Return whose turn it is: the least comes first."""
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
