"""What a store knows about admission: which tasks wait, which run, and which were admitted just now."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final, Protocol

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.lanes import Caps, Lane, Queued, Running, Stage, blocking, stage_of
from delegation.tasks.life.model import FORMAT, Task
from delegation.timestamps import isoformat, stored_time_or

RUNNING: Final = "running"
QUEUED: Final = "queued"
_PAGE: Final = 1_000
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
"""Entries of the index read at once, at most; a fifth of what DynamoDB returns."""
_QUERIES: Final = 16
"""The most pages of a shard that one answer about some lanes reads."""


@dataclass(frozen=True, slots=True)
class Recent:
    """An admission that `running` may not show yet."""

    task_id: str
    lane: Lane
    at: datetime


@dataclass(frozen=True, slots=True)
class Register:
    """Recent admissions. A process that admits tasks first writes them here, at the next revision. `after` is where the
    next admission starts to read, None if the last one read every lane."""

    revision: int = 0
    recent: tuple[Recent, ...] = ()
    after: str | None = None


@dataclass(frozen=True, slots=True)
class LaneRange:
    """Lanes whose keys sort after `after` and before `until`; by default all."""

    after: str = " "
    until: str = "\x7f"


EVERY_LANE: Final = LaneRange()


@dataclass(frozen=True, slots=True)
class LanesPage:
    """The waiting tasks of the lanes that were read. `after` is where further lanes start, None if there are none."""

    queued: tuple[Queued, ...]
    after: str | None = None


class AdmissionStore(Protocol):
    """The tasks in lanes, derived from their heads: the write that ends an attempt also frees its place. All methods
    raise StoreUnavailable, `write_register` OutcomeUnknown too."""

    def queued_in(self, now: datetime, *, each: int, lanes: int, span: LaneRange) -> LanesPage:
        """Return the tasks that wait since `now` or longer; some may have been admitted since. Of each lane it returns
        at most the `each` that wait longest, for the first `lanes` lanes of a span or more. The number of reads is
        bounded, so there may be fewer lanes, at least one."""

    def running(self) -> Sequence[Running]:
        """Return the admitted tasks; a change of the last seconds may be missing."""

    def register(self) -> Register:
        """Return the register, read consistently."""

    def write_register(self, register: Register) -> bool:
        """Store a register if the stored one has the revision before it; return whether it was stored."""


def queued(store: AdmissionStore, now: datetime, *, each: int) -> Iterator[Queued]:
    """Yield what `queued_in` returns, for all lanes, perhaps thousands. Raises StoreUnavailable."""
    after: str | None = EVERY_LANE.after
    while after is not None:
        page = store.queued_in(now, each=each, lanes=_PAGE, span=LaneRange(after, EVERY_LANE.until))
        yield from page.queued
        after = page.after


def place_of(task: Task) -> tuple[str, str] | None:
    """Return the place of a head for admission: QUEUED or RUNNING, and its key there; None if it has none."""
    match stage_of(task):
        case None:
            return None
        case Stage.QUEUED:
            since = task.next_scheduled_run_ts or task.last_status_change_ts
            return QUEUED, f"{task.admission.lane}/{isoformat(since)}"
        case stage:
            return RUNNING, f"{stage}/{task.admission.lane}"


def queued_entry(task_id: str, key: str) -> Queued:
    """Return the entry of a key of QUEUED. A key without a readable time counts as the longest waiting."""
    lane, _, since = key.rpartition("/")
    return Queued(task_id, Lane.parse(lane), stored_time_or(_EPOCH, since))


def running_entry(task_id: str, key: str) -> Running:
    stage, _, text = key.partition("/")
    lane = Lane.parse(text)
    return Running(task_id, lane, stage in {Stage.HELD, Stage.PREPARING}, lane.is_small or stage == Stage.HELD)


def first_of_each(entries: Iterable[Queued], each: int) -> Iterator[Queued]:
    """Yield the entries that wait longest in every lane."""
    ordered = sorted(entries, key=lambda task: (task.lane.text, task.since, task.task_id))
    for _, alike in groupby(ordered, key=lambda task: task.lane):
        yield from (task for task, _ in zip(alike, range(each), strict=False))


def register_item(register: Register) -> dict[str, Any]:
    recent = [[admission.task_id, admission.lane.text, isoformat(admission.at)] for admission in register.recent]
    after = {} if register.after is None else {"after": register.after}
    return {"format": FORMAT, "revision": register.revision, "recent": recent, **after}


def register_of(item: Mapping[str, Any]) -> Register:
    """Return a stored register; raises MalformedRecord."""
    if item.get("format") != FORMAT:
        raise MalformedRecord(
            f"the register of admissions has format {item.get('format')!r}, and this release reads {FORMAT}: deploy "
            "the newer release that wrote it"
        )
    recent = (Recent(task_id, Lane.parse(lane), datetime.fromisoformat(at)) for task_id, lane, at in item["recent"])
    return Register(int(item["revision"]), tuple(recent), item.get("after"))


Entry = tuple[str, str]
"""An entry of the index of waiting tasks: its key, and the task's id."""
ReadPage = Callable[[LaneRange, int, Any], tuple[Sequence[Entry], Any]]
"""Reads a limited number of entries of a span, from the end of a former page on; returns them and the new end."""


class LaneReader:
    """Reads the lanes of one shard. It uses every lane of a page, and skips a lane's entries beyond `each`."""

    def __init__(self, read: ReadPage, *, each: int, lanes: int) -> None:
        self._read = read
        self._each = each
        self._lanes = lanes
        self._counts: dict[str, int] = {}
        self.entries: list[Entry] = []
        self.after: str | None = None
        """Where the next unread lane starts, None if all were read."""

    def run(self, span: LaneRange) -> "LaneReader":
        """Read the first lanes of a span. Raises what `read` raises."""
        limit, start, queries = min(4 * (self._each + 1), _PAGE), None, 0
        while True:
            entries, start = self._read(span, max(limit, self._each + 1), start)
            before = len(self._counts)
            for key, task_id in entries:
                self._add(key, task_id)
            queries += 1
            if start is None:
                return self
            last = next(reversed(self._counts))
            is_read = self._counts[last] >= self._each
            complete = len(self._counts) - (not is_read)
            if complete >= self._lanes or queries >= _QUERIES:
                return self._ended(last, is_read=is_read or complete == 0)
            limit = min(2 * limit, _PAGE) if len(self._counts) > before + 1 else self._each + 1
            if is_read:
                span, start = LaneRange(behind(last), span.until), None

    def _add(self, key: str, task_id: str) -> None:
        lane = lane_of(key)
        count = self._counts.get(lane, 0)
        self._counts[lane] = count + 1
        if count < self._each:
            self.entries.append((key, task_id))

    def _ended(self, last: str, *, is_read: bool) -> "LaneReader":
        """Leave a partly read lane to the next reader."""
        if is_read:
            self.after = behind(last)
        else:
            self.after = behind(list(self._counts)[-2])
            self.entries = [place for place in self.entries if lane_of(place[0]) != last]
        return self


def lane_of(key: str) -> str:
    return key.rpartition("/")[0]


def behind(lane: str) -> str:
    """Return a key that sorts after all keys of a lane: `0` is the character after the separator `/`."""
    return f"{lane}0"


def merged(shards: Sequence[LaneReader], now: datetime, *, each: int) -> LanesPage:
    after = min((shard.after for shard in shards if shard.after is not None), default=None)
    entries = (entry for shard in shards for entry in shard.entries if after is None or entry[0] < after)
    due = (queued for key, task_id in entries if (queued := queued_entry(task_id, key)).since <= now)
    return LanesPage(tuple(first_of_each(due, each)), after)


def page_of(lanes: Mapping[str, Sequence[Entry]], now: datetime, *, each: int, most: int, span: LaneRange) -> LanesPage:
    """Return the first lanes of a span; the entries of each lane are sorted by key."""
    inside = sorted(f"{lane}/" for lane, entries in lanes.items() if entries and span.after < f"{lane}/" < span.until)
    read = [lane[:-1] for lane in inside[:most]]
    queued = (queued_entry(task_id, key) for lane in read for key, task_id in lanes[lane][:each])
    return LanesPage(tuple(task for task in queued if task.since <= now), behind(read[-1]) if inside[most:] else None)


MOST_COUNTED: Final = 1_000
"""The most tasks that are counted before a task of its lane; beyond that its place is not known."""


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A waiting task: its lane in words, and its place there, 1 for the next to start. `place` is None before the time
    of its next attempt, behind MOST_COUNTED others, and if nothing was read. `reasons` keep the lane's next task from
    starting."""

    lane: str
    place: int | None = None
    reasons: tuple[str, ...] = ()


def waiting_of(store: AdmissionStore, task: Task, limits: Caps | None, now: datetime) -> QueuePlace | None:
    """Return what a task waits for, None if it needs no place. Without `limits`, the caps of its deployment, the
    reasons list what runs. Raises StoreUnavailable."""
    if not task.is_queued or task.admission.lane is None:
        return None
    lane = Lane.parse(task.admission.lane)
    page = store.queued_in(
        now, each=MOST_COUNTED, lanes=1, span=LaneRange(task.admission.lane, behind(task.admission.lane))
    )
    ordered = sorted(page.queued, key=lambda queued: (queued.since, queued.task_id))
    place = next((number for number, queued in enumerate(ordered, 1) if queued.task_id == task.task_id), None)
    return QueuePlace(lane.words, place, _reasons(store.running(), lane, limits))


def _reasons(running: Sequence[Running], lane: Lane, limits: Caps | None) -> tuple[str, ...]:
    if limits is None:
        tenant = sum(attempt.lane.tenant == lane.tenant for attempt in running)
        bucket = sum(attempt.lane.bucket == lane.bucket for attempt in running)
        alike = sum(attempt.lane.task_type == lane.task_type for attempt in running)
        counts = (
            f"{len(running)} in all, {tenant} of the same tenant, {bucket} on the same bucket, {alike} of the same type"
        )
        return (f"running tasks: {counts}; to compare them with the caps, set DELEGATION_PROPERTIES as deployed",)
    return blocking(lane, running, limits) or (
        "the next check by the dispatcher or a worker starts it, within a minute",
    )
