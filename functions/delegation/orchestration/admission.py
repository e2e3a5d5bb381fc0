"""Admission: the tasks that may start are taken from those that wait, in the order that `life.admission` decides.

What runs is derived from the heads of the tasks, so a crash leaves nothing counted that does not run. The index that
shows it lags behind by moments, so a process that admits tasks first writes them into one register, at its next
revision: of several processes one admits, and each counts what the others admitted just now.
"""

import logging
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from delegation.errors import DelegationError
from delegation.orchestration.dispatch import Dispatcher, parse
from delegation.tasks.life.admission.choice import Queued, Running, admitted, room
from delegation.tasks.life.admission.lanes import part
from delegation.tasks.life.admission.limits import Caps
from delegation.tasks.life.model import Task
from delegation.tasks.stores.admission import AdmissionStore, Recent, Register
from delegation.tasks.work.service import TaskService

logger = logging.getLogger(__name__)
_RACES: Final = 5
"""Tries to write the register; each lost race means that another process admitted tasks."""
_COUNTED: Final = timedelta(seconds=10)
"""For so long an admission counts that the index does not show: longer than the index lags."""
_SETTLED: Final = timedelta(seconds=2)
"""For so long an admission counts that the index showed once: its next answer may be an older one."""
_LAG: Final = 5
"""So many more of each lane are read, because the index may show some as waiting that run."""
_WRITTEN_WITHIN: Final = timedelta(seconds=5)
"""A process that was paused for longer after its entry in the register admits nothing."""


def unsaid(_task_id: str, _n: int, _correlation_id: str | None) -> None:
    """Say nothing of an admitted task."""


class Admission:
    """Lets waiting tasks start while there is room; any number of processes may do so at the same time."""

    def __init__(
        self,
        tasks: TaskService,
        store: AdmissionStore,
        kinds: Collection[str],
        start: Callable[[str, int], object],
        *,
        limits: Caps | None,
        threads: int = 1,
        admitted: Callable[[str, int, str | None], None] = unsaid,
    ) -> None:
        """`start` sends a dispatch, or starts its execution; tasks of other `kinds` are left to a newer deployment.

        `admitted` is called with each task that started: its id, its dispatch, and its correlation id if it has one.
        """
        self._tasks = tasks
        self._store = store
        self._kinds = frozenset(part(kind) for kind in kinds)
        self._send = start
        self._limits = limits or Caps()
        self._threads = threads
        self._admitted = admitted

    @property
    def is_paused(self) -> bool:
        """Whether an operator paused everything."""
        return self._tasks.pauses.everything() is not None

    def run(self, ended: Collection[str] = ()) -> int:
        """Admit what may start now, and return how many; `ended` are recently admitted tasks that have already ended.

        Raises the store's errors. A task whose dispatch fails is queued again after the dispatch grace.
        """
        if self.is_paused:
            return 0
        for _ in range(_RACES):
            now = self._tasks.clock()
            register = self._store.register()
            running, recent = self._count(register, frozenset(ended), now)
            free = room(running, self._limits)
            chosen = self._chosen(running, free, now, len(recent)) if free else ()
            if not chosen:
                return 0
            fresh = tuple(Recent(one.task_id, one.lane, now) for one in chosen)
            if self._store.write_register(Register(register.revision + 1, recent + fresh)):
                return self._start_all(chosen, now + _WRITTEN_WITHIN)
        return 0

    def _count(
        self, register: Register, ended: frozenset[str], now: datetime
    ) -> tuple[tuple[Running, ...], tuple[Recent, ...]]:
        """Return what runs, and the recent admissions that the index does not show yet, or may hide again."""
        shown = self._store.running()
        known = {one.task_id for one in shown}

        def counts(one: Recent) -> bool:
            age = now - one.at
            return one.task_id not in ended and age < (_SETTLED if one.task_id in known else _COUNTED)

        recent = tuple(filter(counts, register.recent))
        starting = (Running(one.task_id, one.lane, is_held=False) for one in recent if one.task_id not in known)
        return (*shown, *starting), recent

    def _chosen(self, running: Collection[Running], free: int, now: datetime, recent: int) -> tuple[Queued, ...]:
        """Return the tasks to start; the index may still show as waiting what was admitted just now."""
        started = {one.task_id for one in running}
        found = self._store.queued(now, each=free + recent + _LAG)
        waiting = (one for one in found if one.task_id not in started and one.lane.kind in self._kinds)
        return admitted(waiting, tuple(running), self._limits)

    def _start_all(self, chosen: Collection[Queued], until: datetime) -> int:
        def start(one: Queued) -> bool:
            return self._tasks.clock() <= until and self._start(one.task_id)

        if self._threads == 1:
            return sum(map(start, chosen))
        with ThreadPoolExecutor(self._threads) as pool:
            return sum(pool.map(start, chosen))

    def _start(self, task_id: str) -> bool:
        try:
            task: Task | None = self._tasks.admit(task_id)
            if task is None:
                return False
            self._send(task_id, task.dispatch_count)
            self._admitted(task_id, task.dispatch_count, self._tasks.labels(task).correlation_id)
        except DelegationError as error:
            fields = {"action": "admit", "task_id": task_id, "error_code": error.code}
            logger.warning("not started; it waits again after the dispatch grace", extra=fields)
            return False
        return True


@dataclass(slots=True)
class Inbox:
    """What the dispatcher does with a batch of messages: it starts executions, then admits once for all the others."""

    dispatcher: Dispatcher
    admission: Admission
    _ended: set[str] = field(default_factory=set)

    def take(self, body: str) -> str:
        """Start the execution of a dispatch, or remember that tasks may start; return which. Raises like `start`.

        While everything is paused none is started; the sweeper sends another dispatch after the pause.
        """
        task_id, n = parse(body)
        if n == 0:
            self._ended.add(task_id)
            return "admission"
        if self.admission.is_paused:
            return "paused"
        return "started" if self.dispatcher.start_execution(task_id, n) else "closed"

    def admit(self) -> int:
        """Admit what may start, if a message of the batch asked for it, and return how many tasks; see Admission."""
        ended, self._ended = self._ended, set()
        return self.admission.run(ended) if ended else 0
