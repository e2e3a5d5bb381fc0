"""Which task a worker leases next (Delegation Service proposal, Task Retry): hints of the index, then a write."""

import logging
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from delegation.items import RememberedAsides, each_item
from delegation.tasks.errors import MalformedRecord, TaskNotFound
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import Lease
from delegation.tasks.life.task_type import runs
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import DueEntry
from delegation.tasks.work.parts.reads import TaskReads
from delegation.tasks.work.parts.writes import Leases
from delegation.tasks.work.service import TaskService

logger = logging.getLogger(__name__)
_WIDER: Final = 8
"""By how much the limit of a query grows when all tasks that it returned are of unknown types."""
_MISSES: Final = 2
"""After so many remembered tasks in a row that other workers leased, a new query is cheaper than the rest."""
_FEW: Final = 2
"""So many shards are queried first; then twice as many, and so on, while they have no task to lease."""
_WINDOW: Final = 8
"""So many of the oldest are tried in an order drawn for each worker: enough to avoid races."""
_FRESH: Final = timedelta(seconds=5)
"""For so long the result of a query is used before the index is queried again."""


class LeftAlone:
    """Due tasks that a process leaves alone, because it does not run their type or cannot read them. Each is remembered
    while its index entry does not move, so that it is read once; only the newest are kept. `unread` and `failed` are
    tried again after a pause."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._due: dict[str, datetime] = {}
        self.unread = RememberedAsides[DueEntry](lambda entry: entry.task_id, most)
        self.failed = RememberedAsides[Task](lambda task: task.task_id, most)

    def __contains__(self, entry: DueEntry) -> bool:
        return self._due.get(entry.task_id) == entry.due_at

    def add(self, entry: DueEntry) -> None:
        """Remember a task until its entry moves."""
        self._due.pop(entry.task_id, None)
        self._due[entry.task_id] = entry.due_at
        if len(self._due) > self._most:
            del self._due[next(iter(self._due))]

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._due)


class DueHints:
    """What a worker remembers of due tasks from one lease to the next. A query costs one call a shard, so each queries
    a few shards, the next ones each time, and serves several leases. Each worker has another order of shards. `foreign`
    are tasks that this deployment does not run or read."""

    def __init__(self, candidates: int = 50) -> None:
        self.candidates = candidates
        self.foreign = LeftAlone()
        self._hints: deque[DueEntry] = deque()
        self._queried_at: datetime | None = None
        self._queries = 0
        self._round: deque[str] = deque()

    def remembered(self, now: datetime) -> deque[DueEntry]:
        """Return what is left of the last query, nothing when that was too long ago."""
        if self._queried_at is None or not timedelta(0) <= now - self._queried_at < _FRESH:
            self._hints.clear()
        return self._hints

    def groups(self, owner: str) -> Iterator[tuple[str, ...]]:
        """Yield all shards once, in growing groups; the next call begins after the last shard that was yielded."""
        if not self._round:
            self._round.extend(sorted(codec.due_buckets(), key=lambda shard: zlib.crc32(f"{owner}/{shard}".encode())))
        left, few = len(self._round), _FEW
        while left:
            few = min(few, left)
            group = tuple(islice(self._round, few))
            self._round.rotate(-few)
            yield group
            left, few = left - few, 2 * few

    def find(
        self, reads: TaskReads, owner: str, now: datetime, limit: int, shards: Collection[str]
    ) -> tuple[deque[DueEntry], bool]:
        """Query some shards; return what is due, and whether there may be more than `limit`."""
        self._queried_at = now
        self._queries += 1
        entries = reads.due(self._queried_at, limit=limit, shards=shards)
        self._hints = deque(in_own_order(entries, f"{owner}/{self._queries}"))
        return self._hints, len(entries) >= limit


def lease_next_available_task(
    tasks: TaskService,
    owner: str,
    task_types: Collection[str],
    lease: Callable[[datetime], Lease],
    *,
    lookout: DueHints | None = None,
) -> Task | None:
    """Acquire one of the oldest due tasks of a known type; None if the index, queried now, has none. Due are:
    SUBMITTED, RETRY_SCHEDULED whose time has come, and held tasks presumed lost. The conditional write gives each task
    to one worker. Unknown and unreadable tasks are skipped, and hide no other however many they are. While everything
    is paused nothing is queried."""
    if tasks.pauses.everything() is not None:
        return None
    lookout = lookout or DueHints()
    search = _Search(tasks.reads, tasks.leases, owner, task_types, lease, lookout.foreign, tasks.clock)
    task = search.lease_first(lookout.remembered(tasks.clock()), _MISSES)
    if task is not None:
        return task
    for shards in lookout.groups(owner):
        limit, more = lookout.candidates, True
        while more:
            hints, more = lookout.find(tasks.reads, owner, tasks.clock(), limit, shards)
            task = search.lease_first(hints, len(hints))
            if task is not None:
                return task
            limit *= _WIDER
    return None


@dataclass(frozen=True, slots=True)
class _Search:
    """One worker's search for one task; it tries each due task once."""

    reads: TaskReads
    leases: Leases
    owner: str
    task_types: Collection[str]
    lease: Callable[[datetime], Lease]
    foreign: LeftAlone
    clock: Callable[[], datetime]
    seen: set[str] = field(default_factory=set)

    def lease_first(self, hints: deque[DueEntry], tries: int) -> Task | None:
        """Lease the first available of these tasks, after at most `tries` tries; removes from `hints` what it tried."""

        def left() -> Iterator[DueEntry]:
            while hints:
                entry = hints.popleft()
                if entry.task_id not in self.seen and entry not in self.foreign:
                    self.seen.add(entry.task_id)
                    yield entry

        for one in each_item(
            islice(left(), tries),
            self._leased,
            name="worker.lease",
            clock=self.clock,
            shown=lambda entry: entry.task_id,
            asides=self.foreign.unread,
        ):
            if isinstance(one.error, MalformedRecord):
                self.foreign.add(one.item)
            if one.result is not None:
                return one.result
        return None

    def _leased(self, entry: DueEntry) -> Task | None:
        """Return the task as a new attempt of the worker, None when it is not available."""
        try:
            head = self.reads.find(entry.task_id)
            if head is None:
                return None
            if not runs(self.task_types, head):
                self.foreign.add(entry)
                return None
            task = self.leases.acquire(entry.task_id, self.owner, self.lease, task=head)
        except TaskNotFound:
            return None
        # A worker runs one task at a time: an attempt that it held before has ended.
        is_new = task.is_held and task.lease.owner == self.owner and task.attempt_count > head.attempt_count
        return task if is_new else None


def in_own_order(entries: Sequence[DueEntry], lot: str) -> list[DueEntry]:
    """Return due entries, the oldest few first, those few in an order drawn by `lot`. So workers do not all try the
    same task, and with a new lot for each query no task waits for ever."""

    def drawn(entry: DueEntry) -> int:
        return zlib.crc32(f"{lot}/{entry.task_id}".encode())

    return [
        entry
        for first in range(0, len(entries), _WINDOW)
        for entry in sorted(entries[first : first + _WINDOW], key=drawn)
    ]
