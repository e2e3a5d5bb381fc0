"""A plain process that leases and runs tasks: the proposal's lease loop (delegation-service.txt, "Task Retry" §2.1).

For Kubernetes or a laptop; any number of workers share one store and nothing else, and may run beside the state
machine.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Protocol

from delegation.tasks.errors import LeaseLost, RunHandedOver, TaskError
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.transitions import HANDED_OVER
from delegation.tasks.work.attempt_context import elapsed
from delegation.tasks.work.behaviors import Behaviors
from delegation.tasks.work.claim import Lookout, lease_next_available_task
from delegation.tasks.work.external_jobs import INLINE
from delegation.tasks.work.lease_keeper import DoneWithin, LeaseKeeper, WorkOutlivedLease, done_within
from delegation.tasks.work.service import TaskService

logger = logging.getLogger(__name__)


class ExternalEngine(Protocol):
    """Runs the work of held tasks outside of this process."""

    def drive(self, task: Task, stopping: threading.Event) -> Task:
        """See the attempt through, its lease included, and return the task after it; hand it over when `stopping`."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker works: whom it is, how often it looks for work, how many due tasks it considers at a look."""

    owner: str
    poll: timedelta = timedelta(seconds=5)
    candidates: int = 50


class Worker:
    """Leases tasks one after the other, keeps each one's lease while it runs, and stops when told to.

    The work runs in a thread of its own and fences itself (`runs.HeldRun`). Work that does not stop when its lease is
    over raises WorkOutlivedLease here: whoever runs the worker has to end the process at once.
    """

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
    ) -> None:
        """`engines` by the names that behaviors choose; what has none here runs inline.

        `monotonic` and `waits` are how time passes.
        """
        self._tasks = tasks
        self._behaviors = behaviors
        self._settings = settings
        self._stop = stop or threading.Event()
        self._engines = engines
        self._monotonic = monotonic
        self._waits = waits
        self._lookout = Lookout(settings.candidates)

    @property
    def owner(self) -> str:
        """The name under which it holds tasks."""
        return self._settings.owner

    def run(self) -> None:
        """Work until `stop` is called; an outage of the store is waited out. Raises WorkOutlivedLease."""
        while not self._stop.is_set():
            try:
                worked = self.run_once()
            except WorkOutlivedLease:
                raise
            except TaskError as error:
                logger.warning("no work could be done", extra={"action": "lease", "error_code": error.code})
                worked = None
            if worked is None:
                self._stop.wait(self._settings.poll.total_seconds())

    def stop(self) -> None:
        """Let the current task be handed over at its next checkpoint, and end."""
        self._tasks.drain()
        self._stop.set()

    def run_once(self) -> Task | None:
        """Lease and run one task; None when none was due. Returns the task after its attempt."""
        task = lease_next_available_task(
            self._tasks, self._settings.owner, self._behaviors, self._lasting, lookout=self._lookout
        )
        if task is None:
            return None
        work: Future[Task | ExternalEngine] = Future()
        # A daemon: what does not stop must not keep the process from ending.
        threading.Thread(target=self._work, args=(task, work), name=f"task-{task.task_id}", daemon=True).start()
        LeaseKeeper(self._tasks, task, self._monotonic, self._waits).watch(work)
        after = self._settle(task, work)
        logger.info(
            "attempt ended",
            extra={
                "action": "run",
                "task_id": task.task_id,
                "kind": task.task_type,
                "attempt": task.attempt_count,
                "status": str(after.status),
                "error_code": after.error_code,
            },
        )
        return after

    def _work(self, task: Task, work: "Future[Task | ExternalEngine]") -> None:
        try:
            work.set_result(self._attempt(task))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits, like an executor's
            work.set_exception(error)

    def _attempt(self, task: Task) -> Task | ExternalEngine:
        """Choose the engine; run the work here, or answer who runs it elsewhere."""
        if self._stop.is_set():
            raise RunHandedOver(task.task_id)
        behavior = self._behaviors[task.task_type]
        chosen = behavior.prepare(task)
        if chosen is None:
            return self._tasks.get(task.task_id)
        if chosen in self._engines:
            return self._engines[chosen]
        if chosen != INLINE:
            task = self._tasks.note(task.task_id, task.attempt_count, engine=INLINE)
        return behavior.run(task, hand_over_at=None)

    def _settle(self, task: Task, work: "Future[Task | ExternalEngine]") -> Task:
        """The task after the work; work that broke in an unforeseen way is an error like others, and tried again."""
        broke = work.exception()
        if broke is None:
            done = work.result()
            return done if isinstance(done, Task) else done.drive(task, self._stop)
        if not isinstance(broke, Exception):
            raise broke
        with suppress(LeaseLost):
            if not isinstance(broke, LeaseLost):
                return self._tasks.give_back(task.task_id, task.attempt_count, _attempt_error(broke, task))
        return self._tasks.get(task.task_id)

    def _lasting(self, now: datetime) -> Lease:
        return Lease.lasting(self._tasks.lease.lost_timeout, now)


def _attempt_error(broke: Exception, task: Task) -> AttemptError:
    """How an attempt that raised is recorded: by its code if it is an error of tasks, never by a foreign text."""
    if isinstance(broke, RunHandedOver):
        return AttemptError(HANDED_OVER, str(broke), ErrorClass.HANDED_OVER)
    if isinstance(broke, TaskError):
        return AttemptError(broke.code, str(broke), ErrorClass.TRANSIENT)
    logger.error("work broke", exc_info=broke, extra={"action": "run", "task_id": task.task_id})
    return AttemptError("UNEXPECTED_ERROR", f"the work broke with {type(broke).__name__}", ErrorClass.TRANSIENT)


def owner_name(host: str, pid: int, started: float | None = None) -> str:
    """A lease owner's name that no other process has, nor this one after a restart."""
    return f"worker:{host}:{pid}:{int((started or time.time()) * 1000)}"
