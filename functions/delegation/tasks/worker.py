"""A plain process that leases and runs tasks: the proposal's lease loop (delegation-service.txt, "Task Retry" §2.1).

For Kubernetes or a laptop; any number of workers share one store and nothing else, and may run beside the state
machine.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta

from delegation.tasks.behaviors import Behaviors
from delegation.tasks.errors import LeaseLost, OutcomeUnknown, StoreUnavailable, TaskNotFound
from delegation.tasks.model import Task
from delegation.tasks.outcomes import AttemptError, ErrorClass
from delegation.tasks.service import Lease, TaskService

logger = logging.getLogger(__name__)
UNEXPECTED: str = "UNEXPECTED_ERROR"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker works: whom it is, how often it looks for work, how many due tasks it considers at a look."""

    owner: str
    poll: timedelta = timedelta(seconds=5)
    candidates: int = 50


def lease_next_available_task(
    tasks: TaskService, owner: str, kinds: Collection[str], lease: Callable[[datetime], Lease], *, candidates: int = 50
) -> Task | None:
    """Acquire the oldest due task of a known kind; None when there is none to be had.

    Due are: SUBMITTED, RETRY_SCHEDULED whose time has come, and held ones whose holder is lost. The index only hints;
    the conditional write decides, so of several workers one wins each task. Unknown kinds are left to who knows them.
    """
    for entry in tasks.store.due(tasks.clock(), limit=candidates):
        head = tasks.store.get(entry.task_id)
        if head is None or head.task_type not in kinds:
            continue
        try:
            task = tasks.acquire(entry.task_id, owner, lease, task=head)
        except TaskNotFound:
            continue
        # A worker runs one task at a time: what it held before, it holds no more.
        if task.is_held and task.lease_owner == owner and task.attempt_count > head.attempt_count:
            return task
    return None


class Worker:
    """Leases tasks one after the other, keeps each one's lease while it runs, and stops when told to.

    The work runs in a thread of its own and fences itself (`runs.HeldRun`); a lease that cannot be renewed in time is
    therefore never outlived by the work, not even if this loop hangs.
    """

    def __init__(
        self, tasks: TaskService, behaviors: Behaviors, settings: WorkerSettings, *, stop: threading.Event | None = None
    ) -> None:
        self._tasks = tasks
        self._behaviors = behaviors
        self._settings = settings
        self._stop = stop or threading.Event()

    def run(self) -> None:
        """Work until `stop` is called; an outage of the store is waited out."""
        while not self._stop.is_set():
            try:
                worked = self.run_once()
            except (StoreUnavailable, OutcomeUnknown) as error:
                logger.warning("the task store is unavailable", extra={"action": "lease", "error_code": error.code})
                worked = None
            if worked is None:
                self._stop.wait(self._settings.poll.total_seconds())

    def stop(self) -> None:
        """Let the current task be handed over at its next checkpoint, and end."""
        self._tasks.draining.set()
        self._stop.set()

    def run_once(self) -> Task | None:
        """Lease and run one task; None when none was due. Returns the task after its attempt."""
        task = lease_next_available_task(
            self._tasks, self._settings.owner, self._behaviors, self._lasting, candidates=self._settings.candidates
        )
        if task is None:
            return None
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="task") as pool:
            work = pool.submit(self._behaviors[task.task_type].run, task, hand_over_at=None)
            self._keep_lease(task, work)
        return self._settle(task, work)

    def _keep_lease(self, task: Task, work: "Future[Task]") -> None:
        """Renew in thirds of the lease, well before `recheck_not_before` minus the clock drift, until the work ends."""
        every = self._tasks.policies.lease.lost_timeout / 3
        while not wait([work], timeout=every.total_seconds()).done:
            try:
                self._tasks.heartbeat(task.task_id, task.attempt_count, self._lasting)
            except LeaseLost:
                return  # the work finds out at its next checkpoint, and can write nothing any more
            except (StoreUnavailable, OutcomeUnknown) as error:
                logger.warning("a lease was not renewed", extra={"task_id": task.task_id, "error_code": error.code})

    def _settle(self, task: Task, work: "Future[Task]") -> Task:
        """The task after the work; work that broke in an unforeseen way is an error like others, and tried again."""
        broke = work.exception()
        if broke is None:
            return work.result()
        if not isinstance(broke, Exception):
            raise broke
        logger.error("work broke", exc_info=broke, extra={"action": "run", "task_id": task.task_id})
        error = AttemptError(UNEXPECTED, f"the work broke with {type(broke).__name__}", ErrorClass.TRANSIENT)
        try:
            return self._tasks.give_back(task.task_id, task.attempt_count, error)
        except LeaseLost:
            return self._tasks.get(task.task_id)

    def _lasting(self, now: datetime) -> Lease:
        return Lease.lasting(self._tasks.policies.lease.lost_timeout, now)


def owner_name(host: str, pid: int, started: float | None = None) -> str:
    """A lease owner's name that no other process has, nor this one after a restart."""
    return f"worker:{host}:{pid}:{int((started or time.time()) * 1000)}"
