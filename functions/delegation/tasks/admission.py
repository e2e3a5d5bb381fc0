"""Admission: starts waiting tasks in the order that `life.lanes` decides. What runs is derived from the tasks' heads,
so a crash leaves no place taken. The index of heads lags by moments. An admitting process therefore first writes its
tasks into one register, at the next revision: one process admits at a time, and each counts recent admissions."""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from delegation.items import Asides, ItemOutcome, RememberedAsides, each_item
from delegation.tasks.errors import OutcomeUnknown, StoreUnavailable
from delegation.tasks.life.lanes import LANES, Caps, Queued, Running, Stage, admitted, part, room, stage_of, suffices
from delegation.tasks.stores.admission import EVERY_LANE, AdmissionStore, LaneRange, Recent, Register
from delegation.tasks.work.service import TaskService

_RACES: Final = 5
"""Tries to write the register; each lost race means that another process admitted tasks."""
_COUNTED: Final = timedelta(seconds=10)
"""How long an admission counts that the index does not show: longer than the index lags."""
_SETTLED: Final = timedelta(seconds=2)
"""How long an admission counts that the index has shown once: a later read may return an older state."""
_LAG: Final = 5
"""Extra entries to read of each lane, because the index may still show started tasks as waiting."""
_MOST_SET_ASIDE: Final = 500
"""The most extra entries to read of a lane because of tasks that are set aside."""
_READS: Final = 8
"""The most reads of waiting tasks in one admission; the next admission continues."""
_CHECK_AFTER: Final = timedelta(seconds=1)
"""Age from which an admission that the index does not show is checked by reading its task, if no room is left."""
_MOST_CHECKED: Final = 25
"""The most tasks that one admission checks in this way."""
_WRITTEN_WITHIN: Final = timedelta(seconds=5)
"""A process that was paused for longer than this after it wrote the register admits nothing."""


def announce_nothing(_task_id: str, _n: int, _correlation_id: str | None) -> None: ...


class Admission:
    """Starts waiting tasks while there is room. Any number of processes may use it at the same time."""

    def __init__(
        self,
        tasks: TaskService,
        store: AdmissionStore,
        task_types: Collection[str],
        start: Callable[[str, int], object],
        *,
        limits: Caps | None,
        threads: int = 1,
        admitted: Callable[[str, int, str | None], None] = announce_nothing,
    ) -> None:
        """`start` sends a dispatch or starts its execution; tasks of types not in `task_types` belong to a newer
        deployment. `admitted` is called with each started task's id, dispatch, and correlation id, if any."""
        self._tasks = tasks
        self._store = store
        self._task_types = frozenset(part(task_type) for task_type in task_types)
        self._send = start
        self._limits = limits or Caps()
        self._threads = threads
        self._admitted = admitted
        self._failed = RememberedAsides[Recent | Queued](lambda task: task.task_id)

    @property
    def is_paused(self) -> bool:
        return self._tasks.pauses.everything() is not None

    @property
    def has_room(self) -> bool:
        """Whether another task may start now. Raises the store's errors."""
        running, _ = self._count(self._store.register(), frozenset())
        return room(running, self._limits) > 0

    def run(self, ended: Collection[str] = (), *, most: int | None = None) -> int:
        """Admit at most `most` tasks that may start now, in order, and return how many. `ended` are recently admitted
        tasks that have ended. If a dispatch fails its task is queued again after the dispatch grace. Raises the store's
        errors."""
        if self.is_paused:
            return 0
        for _ in range(_RACES):
            register = self._store.register()
            running, recent = self._count(register, frozenset(ended))
            chosen, after = self._chosen(register, running, len(recent))
            chosen = chosen[:most]
            # Read after the queries, which may take long: the register and the starts must follow within seconds.
            now = self._tasks.clock()
            fresh = tuple(Recent(queued.task_id, queued.lane, now) for queued in chosen)
            if not chosen and after == register.after and not _names(register, ended):
                return 0
            if self._store.write_register(Register(register.revision + 1, recent + fresh, after)):
                return self._start_all(fresh, now + _WRITTEN_WITHIN)
        return 0

    def _count(self, register: Register, ended: frozenset[str]) -> tuple[tuple[Running, ...], tuple[Recent, ...]]:
        """Return what runs, and the recent admissions that the index does not show yet or may hide again."""
        now = self._tasks.clock()
        shown = self._store.running()
        known = {entry.task_id for entry in shown}

        def counts(entry: Recent) -> bool:
            age = now - entry.at
            return entry.task_id not in ended and age < (_SETTLED if entry.task_id in known else _COUNTED)

        recent = tuple(filter(counts, register.recent))
        if room((*shown, *_starting(recent, known)), self._limits) == 0:
            recent = self._without_ended(recent, known, now)
        return (*shown, *_starting(recent, known)), recent

    def _without_ended(self, recent: Collection[Recent], known: Collection[str], now: datetime) -> tuple[Recent, ...]:
        """Return the recent admissions whose tasks still have their places, by their heads."""
        doubtful = [
            admission for admission in recent if admission.task_id not in known and now - admission.at >= _CHECK_AFTER
        ][:_MOST_CHECKED]
        over = {
            outcome.item for outcome in self._each(doubtful, self._is_over, name="admission.doubted") if outcome.result
        }
        return tuple(admission for admission in recent if admission not in over)

    def _each(
        self, some: Sequence[Recent], act: Callable[[Recent], bool], *, name: str, asides: Asides[Recent] | None = None
    ) -> list[ItemOutcome[Recent, bool]]:
        with ThreadPoolExecutor(self._threads) if self._threads > 1 else nullcontext() as pool:
            outcomes = each_item(
                some,
                act,
                name=name,
                clock=self._tasks.clock,
                shown=lambda task: task.task_id,
                asides=asides,
                in_a_row=None,
                pool=pool,
                at_once=self._threads,
            )
            return list(outcomes)

    def _is_over(self, started: Recent) -> bool:
        task = self._tasks.reads.find(started.task_id)
        stage = None if task is None else stage_of(task)
        if task is None or stage is not Stage.QUEUED:
            return stage is None
        # The process that wrote the register may be about to start it, unless it has been waiting since a later time.
        waits_since = task.next_scheduled_run_ts or started.at
        return waits_since > started.at or self._tasks.clock() - started.at > _WRITTEN_WITHIN + _CHECK_AFTER

    def _chosen(
        self, register: Register, running: Sequence[Running], recent: int
    ) -> tuple[tuple[Queued, ...], str | None]:
        """Return the tasks to start, and the lane after which the next admission reads (None: from the first). It reads
        no more than it needs, so with many lanes each admission continues where the last one stopped. Higher priorities
        are read first, with at most half of the reads: lower ones get their turn even if many tasks cannot start. The
        index may still show recently admitted tasks as waiting."""
        free = room(running, self._limits)
        each = free + recent + _LAG + min(len(self._failed), _MOST_SET_ASIDE)
        started = {queued.task_id for queued in running}
        fitting: list[Queued] = []
        reads = 0
        for span, following, most in _lane_ranges(register.after) if free else ():
            after: str | None = span.after
            while after is not None and reads < most:
                page = self._store.queued_in(
                    self._tasks.clock(), each=each, lanes=LANES, span=LaneRange(after, span.until)
                )
                fitting += [
                    queued for queued in page.queued if queued.task_id not in started and self._may_start(queued)
                ]
                after, reads = page.after, reads + 1
                if reads == _READS or suffices(fitting, running, self._limits):
                    return admitted(fitting, running, self._limits), following if after is None else after
        return admitted(fitting, running, self._limits), None if free else register.after

    def _may_start(self, queued: Queued) -> bool:
        """Return whether its type runs here and it is not set aside, which would take a place each time."""
        aside = self._failed.of(queued)
        return queued.lane.task_type in self._task_types and (aside is None or self._tasks.clock() >= aside.next_try)

    def _start_all(self, booked: Sequence[Recent], until: datetime) -> int:
        """Start what was booked and return how many tasks started; cancel the booking of the others."""

        def start(booking: Recent) -> bool:
            return self._tasks.clock() <= until and self._start(booking.task_id)

        started = self._each(booked, start, name="admission.start", asides=self._failed)
        # A failed call may have started its task, which waits again after the dispatch grace.
        self._cancel_booking({outcome.item for outcome in started if outcome.result is False})
        return sum(outcome.result is True for outcome in started)

    def _start(self, task_id: str) -> bool:
        """Start a task; return False if it certainly has no place now."""
        task = self._tasks.dispatching.admit(task_id)
        if task is None:
            return False
        self._send(task_id, task.dispatches.count)
        self._admitted(task_id, task.dispatches.count, self._tasks.types.labels(task).correlation_id)
        return True

    def _cancel_booking(self, unused: Collection[Recent]) -> None:
        """Remove admissions that started nothing from the register; if that fails, they count for some seconds."""
        for _ in range(_RACES if unused else 0):
            try:
                register = self._store.register()
                left = tuple(admission for admission in register.recent if admission not in unused)
                if left == register.recent or self._store.write_register(
                    replace(register, revision=register.revision + 1, recent=left)
                ):
                    return
            except (StoreUnavailable, OutcomeUnknown):
                return


def _names(register: Register, ended: Collection[str]) -> bool:
    return any(admission.task_id in ended for admission in register.recent)


def _starting(recent: Collection[Recent], known: Collection[str]) -> Iterator[Running]:
    return (
        Running(admission.task_id, admission.lane, is_held=False, is_begun=admission.lane.is_small)
        for admission in recent
        if admission.task_id not in known
    )


def _lane_ranges(after: str | None) -> Iterator[tuple[LaneRange, str | None, int]]:
    """Yield each range of lanes to read, where the next admission continues if the range is exhausted, and the number
    of the last read it may use. First the lanes of higher priorities than `after`'s; then its own, from `after` to the
    end and from the start; then lower ones, for which two reads are reserved."""
    if after is None:
        yield EVERY_LANE, None, _READS
        return
    own = after[0]
    for span, following, most in (
        (LaneRange(EVERY_LANE.after, f"{own}/"), after, _READS // 2),
        (LaneRange(after, f"{own}0"), f"{own}0", _READS),
        (LaneRange(f"{own}/", after), f"{own}0", _READS - 2),
        (LaneRange(f"{own}0", EVERY_LANE.until), None, _READS),
    ):
        if span.after < span.until:
            yield span, following, most


class WorkersAdmission:
    """Admits one task at a time for a worker, which runs it itself; decision and register are the dispatcher's."""

    def __init__(self, tasks: TaskService, store: AdmissionStore, task_types: Collection[str]) -> None:
        self._taken: list[str] = []
        self._ended: set[str] = set()
        self._admission = Admission(
            tasks, store, task_types, lambda task_id, _n: self._taken.append(task_id), limits=tasks.policies.limits
        )

    def admit_one(self) -> str | None:
        """Admit one task for the caller to run and return its id, None if none may start. Raises the store's errors."""
        self._taken.clear()
        ended, self._ended = self._ended, set()
        self._admission.run(ended, most=1)
        return self._taken[0] if self._taken else None

    def has_room(self) -> bool:
        return self._admission.has_room

    def gave_back(self, task_id: str) -> None:
        self._ended.add(task_id)
