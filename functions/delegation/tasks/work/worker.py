"""A plain process that leases and runs tasks: the lease loop of the Delegation Service proposal, Task Retry. Workers
share only the store, and may run beside the state machine."""

import logging
import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from delegation.errors import RunHandedOver, RunStopped
from delegation.items import RememberedAsides, code_of, each_item
from delegation.tasks.errors import LeaseLost, MalformedRecord, TaskNotFound
from delegation.tasks.life.declared import runs
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import ErrorClass
from delegation.tasks.life.policy import Lease
from delegation.tasks.life.transitions import LOST
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import DueEntry
from delegation.tasks.work.attempt_context import (
    DoneWithin,
    LeaseKeeper,
    WorkOutlivedLease,
    done_within,
    end_attempt,
    ending_of,
)
from delegation.tasks.work.behaviors import Behaviors
from delegation.tasks.work.hooks import INLINE
from delegation.tasks.work.reads import TaskReads
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.writes import Leases
from delegation.timestamps import elapsed

if TYPE_CHECKING:
    from delegation.tasks.admission import WorkersAdmission

logger = logging.getLogger(__name__)
FENCED: Final = 3
"""The exit status of a process that ended itself because its work did not stop when its lease ended."""
_WIDER: Final = 8
"""By how much a query's limit grows if all tasks that it returned are of unknown types."""
_MISSES: Final = 2
"""Remembered tasks in a row leased by other workers, after which a new query is cheaper than trying the rest."""
_FEW: Final = 2
"""Shards in the first query. Each further query takes twice as many, until one has a task to lease."""
_WINDOW: Final = 8
"""How many of the oldest tasks each worker tries in its own order: enough to avoid races."""
_FRESH: Final = timedelta(seconds=5)
"""How long a query's result is used before the index is queried again."""


def end_process(error: WorkOutlivedLease) -> NoReturn:
    """End this process at once. Nothing else stops the work, and another process may start the same task now."""
    logger.critical("ending this process", extra={"action": "fence", "task_id": error.task_id})
    logging.shutdown()
    os._exit(FENCED)


class LeftAlone:
    """Due tasks that a process leaves alone because it does not run their type or cannot read them. Each is remembered,
    and not read again, while its index entry does not move; only the newest are kept. `unread` and `failed` are tried
    again after a pause."""

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
    """The due tasks that a worker remembers between leases. A query costs one call per shard, so each query takes a few
    shards, in turn, and serves several leases. Each worker has another order of shards. `foreign` are tasks that this
    deployment does not run or read."""

    def __init__(self, candidates: int = 50) -> None:
        self.candidates = candidates
        self.foreign = LeftAlone()
        self._hints: deque[DueEntry] = deque()
        self._queried_at: datetime | None = None
        self._queries = 0
        self._round: deque[str] = deque()

    def remembered(self, now: datetime) -> deque[DueEntry]:
        """Return the remaining entries of the last query, none if it is too old."""
        if self._queried_at is None or not timedelta(0) <= now - self._queried_at < _FRESH:
            self._hints.clear()
        return self._hints

    def groups(self, owner: str) -> Iterator[tuple[str, ...]]:
        """Yield all shards once, in growing groups; the next call starts after the last shard that was yielded."""
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
    due_hints: DueHints | None = None,
) -> Task | None:
    """Acquire one of the oldest due tasks of a known type; None if the index, queried now, has none. Due are SUBMITTED
    tasks, RETRY_SCHEDULED ones whose time has come, and held ones presumed lost. The conditional write gives each task
    to one worker. Unknown and unreadable tasks are skipped; any number of them hides no other. Nothing is queried while
    everything is paused."""
    if tasks.pauses.everything() is not None:
        return None
    due_hints = due_hints or DueHints()
    search = _Search(tasks.reads, tasks.leases, owner, task_types, lease, due_hints.foreign, tasks.clock)
    task = search.lease_first(due_hints.remembered(tasks.clock()), _MISSES)
    if task is not None:
        return task
    for shards in due_hints.groups(owner):
        limit, more = due_hints.candidates, True
        while more:
            hints, more = due_hints.find(tasks.reads, owner, tasks.clock(), limit, shards)
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
        """Lease the first available of these tasks, after at most `tries` tries; removes tried tasks from `hints`."""

        def left() -> Iterator[DueEntry]:
            while hints:
                entry = hints.popleft()
                if entry.task_id not in self.seen and entry not in self.foreign:
                    self.seen.add(entry.task_id)
                    yield entry

        for attempt in each_item(
            islice(left(), tries),
            self._leased,
            name="worker.lease",
            clock=self.clock,
            shown=lambda entry: entry.task_id,
            asides=self.foreign.unread,
        ):
            if isinstance(attempt.error, MalformedRecord):
                self.foreign.add(attempt.item)
            if attempt.result is not None:
                return attempt.result
        return None

    def _leased(self, entry: DueEntry) -> Task | None:
        """Return the task as a new attempt of the worker, None if it is not available."""
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


def in_own_order(entries: Sequence[DueEntry], seed: str) -> list[DueEntry]:
    """Return due entries, the oldest few first, those few in an order that depends on `seed`. So workers do not all try
    the same task; with a new seed for each query no task waits for ever."""

    def drawn(entry: DueEntry) -> int:
        return zlib.crc32(f"{seed}/{entry.task_id}".encode())

    return [
        entry
        for first in range(0, len(entries), _WINDOW)
        for entry in sorted(entries[first : first + _WINDOW], key=drawn)
    ]


def unreported(_error: Exception) -> None: ...


class ExternalEngine(Protocol):
    """Runs the work of held tasks outside of this process."""

    def drive(self, task: Task, stopping: threading.Event) -> Task:
        """Run the attempt, renew its lease, and return the task after it; hand it over when `stopping` is set."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The worker's name as lease holder, its pause without work, and how many due tasks a query returns."""

    owner: str
    poll: timedelta = timedelta(seconds=5)
    candidates: int = 50


class Worker:
    """Leases tasks one after the other, keeps the lease of each while it runs, and ends when stopped. The work runs in
    another thread and fences itself (AttemptContext). Work that does not stop when its lease ends raises
    WorkOutlivedLease here: the caller must end the process at once."""

    def __init__(
        self,
        tasks: TaskService,
        behaviors: Behaviors,
        settings: WorkerSettings,
        *,
        stop: threading.Event | None = None,
        engines: Mapping[str, ExternalEngine] = MappingProxyType({}),
        monotonic: Callable[[], float] = elapsed,
        waits: DoneWithin = done_within,
        idle: Callable[[Exception], None] = unreported,
        admission: "WorkersAdmission | None" = None,
    ) -> None:
        """`engines` by the names that behaviors choose; without the chosen one work runs inline. `idle` is called with
        each error after which the worker waits. With `admission` it also takes waiting tasks while places are free,
        beside a dispatcher or without one."""
        self._tasks = tasks
        self._behaviors = behaviors
        self._settings = settings
        self._stop = stop or threading.Event()
        self._engines = engines
        self._monotonic = monotonic
        self._waits = waits
        self._idle = idle
        self._due_hints = DueHints(settings.candidates)
        self._admission = admission

    @property
    def owner(self) -> str:
        return self._settings.owner

    def run(self) -> None:
        """Work until `stop` is called; wait after any error. Raises WorkOutlivedLease."""
        turns = iter(lambda: self._stop.is_set() or "its next task", True)
        for turn in each_item(
            turns,
            self._turn,
            name="worker.turns",
            clock=self._tasks.clock,
            in_a_row=None,
            most_wasted=timedelta.max,  # no other pass takes the rest of them
        ):
            if turn.error is not None:
                code = code_of(turn.error)
                logger.warning("no work could be done", extra={"action": "lease", "error_code": code})
                self._idle(turn.error)
            if turn.result is None:
                self._stop.wait(self._settings.poll.total_seconds())

    def _turn(self, _turn: object) -> Task | None:
        try:
            return self.run_once()
        except LeaseLost as error:  # another process holds the attempt; this worker takes another task
            logger.warning("another process took over the attempt", extra={"action": "lease", "error_code": error.code})
            return None

    def stop(self) -> None:
        """Hand the current task over at its next checkpoint, and end."""
        self._tasks.drain()
        self._stop.set()

    def run_once(self) -> Task | None:
        """Lease and run one task and return it after its attempt; None if no task was due."""
        task = lease_next_available_task(
            self._tasks, self._settings.owner, self._behaviors.task_types, self._lasting, due_hints=self._due_hints
        )
        if task is None and self._admission is not None:
            task = self._admitted(self._admission)
        if task is None:
            return None
        attempt = {
            "task_id": task.task_id,
            "task_type": task.task_type,
            "kind": task.task_type,
            "attempt": task.attempt_count,
        }
        logger.info(
            "attempt taken over" if task.error_code == LOST else "attempt began",
            extra={
                "action": "begin",
                **attempt,
                "correlation_id": self._tasks.types.labels(task).correlation_id,
                # Of the attempt before, if any: why it ended and, if it was lost, whose lease ended.
                "error_code": task.error_code,
                "reason": task.result_summary,
            },
        )
        work: Future[Task | ExternalEngine] = Future()
        # A daemon: work that does not stop must not keep the process from ending.
        threading.Thread(target=self._work, args=(task, work), name=f"task-{task.task_id}", daemon=True).start()
        LeaseKeeper(self._tasks, task, self._monotonic, self._waits).watch(work)
        after = self._settle(task, work)
        if after.admission.lane is not None and (after.is_terminal or after.is_queued):
            if self._admission is not None:
                self._admission.gave_back(after.task_id)
            self._tasks.messages.wake(after.task_id)  # its place is free for another task
        ended = {"action": "run", **attempt, "status": str(after.status), "error_code": after.error_code}
        logger.info("attempt ended", extra=ended)
        return after

    def _admitted(self, admission: "WorkersAdmission") -> Task | None:
        """Admit and acquire the next of the tasks that wait for a place; None without one."""
        admitted = admission.admit_one()
        if admitted is None:
            return None
        head = self._tasks.reads.get(admitted)
        if not runs(self._behaviors.task_types, head):
            return None  # a newer release's payload; its workers find the task due
        task = self._tasks.leases.acquire(admitted, self._settings.owner, self._lasting, task=head)
        return task if task.is_held and task.lease.owner == self._settings.owner else None

    def _work(self, task: Task, work: "Future[Task | ExternalEngine]") -> None:
        try:
            work.set_result(self._attempt(task))
        except BaseException as error:  # noqa: BLE001 - passed to the waiting thread, as an executor does
            work.set_exception(error)

    def _attempt(self, task: Task) -> Task | ExternalEngine:
        """Choose the engine; run the work here, or return the engine that runs it elsewhere."""
        if self._stop.is_set():
            raise RunHandedOver(task.task_id)
        behavior = self._behaviors[task.task_type]
        chosen = behavior.prepare(task)
        if chosen is None:
            return self._tasks.reads.get(task.task_id)
        if chosen in self._engines:
            return self._engines[chosen]
        if chosen != INLINE:
            task = self._tasks.holding(task).leases.note(task.task_id, task.attempt_count, engine=INLINE)
        return behavior.run(task, hand_over_at=None)

    def _settle(self, task: Task, work: "Future[Task | ExternalEngine]") -> Task:
        """Return the task after the work; an unexpected exception is recorded as an error and retried."""
        broke = work.exception()
        if broke is None:
            done = work.result()
            return done if isinstance(done, Task) else done.drive(task, self._stop)
        if not isinstance(broke, Exception | RunStopped):
            raise broke
        if isinstance(broke, LeaseLost):
            return self._tasks.reads.get(task.task_id)
        return end_attempt(self._tasks, task, ending_of(broke, partial(_unexpected, task)))

    def _lasting(self, now: datetime) -> Lease:
        return Lease.lasting(self._tasks.policies.lease.lost_timeout, now)


def _unexpected(task: Task, error: Exception) -> ErrorClass:
    """Return the class of an error that a TaskBehavior raised and did not record; log it."""
    logger.error("the work failed unexpectedly", exc_info=error, extra={"action": "run", "task_id": task.task_id})
    return ErrorClass.TRANSIENT


def owner_name(host: str, pid: int, started: float | None = None) -> str:
    """Return a lease holder's name that no other process has, nor this one after a restart."""
    return f"worker:{host}:{pid}:{int((started or time.time()) * 1000)}"
