"""Which task a worker leases next: the index hints, the conditional write decides.

`lease_next_available_task` is the proposal's (delegation-service.txt, "Task Retry" §2.1).
"""

import logging
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from delegation.tasks.errors import MalformedRecord, TaskNotFound
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Task
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import DueEntry
from delegation.tasks.work.service import TaskService

logger = logging.getLogger(__name__)
_WIDER: Final = 8
"""By how much more of the due tasks is looked at when all that were seen belong to a newer deployment."""
_MISSES: Final = 2
"""After so many remembered tasks in a row that others were faster at, a new look is worth more than the rest."""
_FEW: Final = 2
"""So many shards are asked at first; then twice as many, and so on, while they have nothing to be had."""
_WINDOW: Final = 8
"""Among so many of the oldest a worker chooses by lot: enough that two hardly meet, few enough to stay oldest first."""
_FRESH: Final = timedelta(seconds=5)
"""For so long what a look at the index found is used up before the next look."""


class Lookout:
    """What a worker remembers of due tasks from one lease to the next.

    A look costs a query a shard, so it asks a few only, the next ones each time round, and what it found serves several
    leases. Each worker goes round in an order of its own. `foreign` are tasks of a newer deployment.
    """

    def __init__(self, candidates: int = 50) -> None:
        self.candidates = candidates
        self.foreign: set[str] = set()
        self._hints: deque[DueEntry] = deque()
        self._looked: datetime | None = None
        self._looks = 0
        self._round: deque[str] = deque()

    def remembered(self, now: datetime) -> deque[DueEntry]:
        """What is left of the last look, nothing when that was too long ago."""
        if self._looked is None or not timedelta(0) <= now - self._looked < _FRESH:
            self._hints.clear()
        return self._hints

    def groups(self, owner: str) -> Iterator[tuple[str, ...]]:
        """All shards once, a few at first and ever more; the next time it begins after the last that were asked."""
        if not self._round:
            self._round.extend(sorted(codec.due_buckets(), key=lambda shard: zlib.crc32(f"{owner}/{shard}".encode())))
        left, few = len(self._round), _FEW
        while left:
            few = min(few, left)
            asked = tuple(islice(self._round, few))
            self._round.rotate(-few)
            yield asked
            left, few = left - few, 2 * few

    def look(self, tasks: TaskService, owner: str, limit: int, shards: Collection[str]) -> tuple[deque[DueEntry], bool]:
        """Look at some shards of the index; also whether there may be more than was asked for."""
        self._looked = tasks.clock()
        self._looks += 1
        entries = tasks.due(self._looked, limit=limit, shards=shards)
        self._hints = deque(in_own_order(entries, f"{owner}/{self._looks}"))
        return self._hints, len(entries) >= limit


def lease_next_available_task(
    tasks: TaskService,
    owner: str,
    kinds: Collection[str],
    lease: Callable[[datetime], Lease],
    *,
    lookout: Lookout | None = None,
) -> Task | None:
    """Acquire one of the oldest due tasks of a known kind; None when a look just now found none to be had.

    Due are: SUBMITTED, RETRY_SCHEDULED whose time has come, and held ones whose holder is lost. The index only hints;
    the conditional write decides, so of several workers one wins each task. Unknown kinds are left to who knows them;
    however many of them are due, they hide no task of a known kind. A task that cannot be read stops no other.
    """
    lookout = lookout or Lookout()
    search = _Search(tasks, owner, kinds, lease, lookout.foreign)
    task = search.lease_first(lookout.remembered(tasks.clock()), _MISSES)
    if task is not None:
        return task
    for shards in lookout.groups(owner):
        limit, more = lookout.candidates, True
        while more:
            hints, more = lookout.look(tasks, owner, limit, shards)
            task = search.lease_first(hints, len(hints))
            if task is not None:
                return task
            limit *= _WIDER
    return None


@dataclass(frozen=True, slots=True)
class _Search:
    """One worker's search for one task; it tries each due task once."""

    tasks: TaskService
    owner: str
    kinds: Collection[str]
    lease: Callable[[datetime], Lease]
    foreign: set[str]
    seen: set[str] = field(default_factory=set)

    def lease_first(self, hints: deque[DueEntry], tries: int) -> Task | None:
        """Lease the first of these that can be had, after at most so many tries; takes what it tried off `hints`."""
        while hints and tries:
            task_id = hints.popleft().task_id
            if task_id in self.seen or task_id in self.foreign:
                continue
            self.seen.add(task_id)
            task = self._leased(task_id)
            if task is not None:
                return task
            tries -= 1
        return None

    def _leased(self, task_id: str) -> Task | None:
        """The task as a new attempt of the worker, None when it is not to be had."""
        try:
            head = self.tasks.find(task_id)
            if head is None:
                return None
            if head.task_type not in self.kinds:
                self.foreign.add(task_id)
                return None
            task = self.tasks.acquire(task_id, self.owner, self.lease, task=head)
        except TaskNotFound:
            return None
        except MalformedRecord as error:
            logger.warning("skipped", extra={"action": "lease", "task_id": task_id, "error_code": error.code})
            return None
        # A worker runs one task at a time: what it held before, it holds no more.
        is_new = task.is_held and task.lease_owner == self.owner and task.attempt_count > head.attempt_count
        return task if is_new else None


def in_own_order(entries: Sequence[DueEntry], lot: str) -> list[DueEntry]:
    """The entries of a look, the oldest few first but those in an order by `lot`.

    So workers that look alike do not all run for the same task, and a lot that differs at each look passes none over
    for ever.
    """

    def drawn(entry: DueEntry) -> int:
        return zlib.crc32(f"{lot}/{entry.task_id}".encode())

    return [
        entry
        for first in range(0, len(entries), _WINDOW)
        for entry in sorted(entries[first : first + _WINDOW], key=drawn)
    ]
