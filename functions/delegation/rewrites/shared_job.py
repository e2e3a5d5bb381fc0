"""The shared worker as a Spark job: its task, and how a rewrite is left to it.

One task stands for the worker of a deployment, so at most one of its jobs runs: submitting it again attaches to it
while it is open. A rewrite that is left to the worker waits until the worker leases it. If the worker has ended
meanwhile, the rewrite's next attempt starts it again.
"""

import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from delegation.errors import RunStopped
from delegation.items import each_item
from delegation.removal.task_attempt import error_class
from delegation.rewrites.behavior import SHARED, is_left, losses_of, without_spark
from delegation.rewrites.task_type import WORKER_TASK_TYPE
from delegation.rewrites.worker import Places, SharedSession, SharedWorker
from delegation.tasks.admission import WorkersAdmission
from delegation.tasks.errors import LeaseLost, RunPostponed
from delegation.tasks.life.declared import runs
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import CHECK_QUEUED
from delegation.tasks.stores.admission import AdmissionStore
from delegation.tasks.stores.base import DueEntry
from delegation.tasks.work.attempt_context import AttemptContext, AttemptEnding, AttemptRunner, ending_of
from delegation.tasks.work.hooks import SPARK
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import LeftAlone, in_own_order
from delegation.timestamps import elapsed

_OWNER: Final = "rewrites:"
_MOST: Final = 1_000
"""Due tasks that are searched for one that is left to the worker."""
_WITHIN: Final = CHECK_QUEUED + timedelta(hours=1)
"""The range of their due times: a task that needs a place is checked after a week, should its admission be lost."""


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """The work of the shared worker's Spark job: it uses a session and calls `checkpoint` meanwhile."""

    worker: Callable[[SharedSession], SharedWorker]
    checkpoint: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class RewriteWorkerBehavior:
    """TaskBehavior of the shared worker, whose attempts are Spark jobs. `worker_of` returns the worker for a session
    and the name of a lease holder."""

    tasks: TaskService
    worker_of: Callable[[SharedSession, str], SharedWorker]
    monotonic: Callable[[], float] = elapsed

    @property
    def task_types(self) -> frozenset[str]:
        return frozenset({WORKER_TASK_TYPE})

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str:  # noqa: ARG002
        return SPARK

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:  # noqa: ARG002
        """See TaskBehavior.run. Leaves the task to a process that can start jobs."""

        def done() -> Task:
            raise without_spark(self.tasks, task)

        return self._runner.run(task, done)

    def run_job(self, work: Callable[[WorkerJob], str], task_id: str, attempt: int) -> Task:
        """Do the work in a Spark job; see UpkeepBehavior.run_job."""
        task = self._runner.begin_job(task_id, attempt)

        def done() -> Task:
            own = AttemptContext(self.tasks, task, hand_over_at=None, monotonic=self.monotonic)
            own.write(lambda: own.tasks.leases.start(task_id, attempt))
            owner = f"{_OWNER}{attempt}"
            release_former(self.tasks)
            why = work(WorkerJob(lambda session: self.worker_of(session, owner), own.checkpoint))
            return self._runner.succeed(task, f"the worker ended: {why}", {}, {"engine": SPARK})

        return self._runner.run(task, done)

    @property
    def _runner(self) -> AttemptRunner:
        return AttemptRunner(self.tasks, _ending)


def _ending(_task: Task, error: Exception | RunStopped) -> AttemptEnding:
    return ending_of(error, error_class, traced=False)


def release_former(tasks: TaskService) -> None:
    """Record attempts of the worker's former jobs as lost. The jobs have ended; their leases may last an hour."""

    def release(entry: DueEntry) -> None:
        task = tasks.reads.find(entry.task_id)
        if task is not None and task.is_held and (task.lease.owner or "").startswith(_OWNER):
            with suppress(LeaseLost):  # the attempt has ended meanwhile
                tasks.operators.release(task.task_id, task.attempt_count, "the Spark job of the shared worker ended")

    held = tasks.reads.due(tasks.clock() + tasks.policies.lease.lost_timeout, limit=_MOST)
    deque(each_item(held, release, name="rewrites.former", clock=tasks.clock, shown=_shown), 0)


class LeftRewrites(WorkersAdmission):
    """Admission of a shared worker. Rewrites that are left to it come before those that wait for a place."""

    def __init__(
        self,
        tasks: TaskService,
        store: AdmissionStore,
        task_types: Collection[str],
        *,
        places: Places,
        engines: Collection[str] = (SHARED,),
    ) -> None:
        """`places` are those of the session. `engines` are the names of the worker in rewrites."""
        super().__init__(tasks, store, task_types)
        self._tasks = tasks
        self._task_types = task_types
        self._places = places
        self._engines = engines
        self._others = LeftAlone()
        self._seed = uuid.uuid4()
        self._queries = 0

    def admit_one(self) -> str | None:
        for task in self._left():
            if task.is_queued and not self.has_room():
                break  # admitted later it would only wait for this worker again
            if not self._tasks.writes.hasten(task.task_id, RunPostponed.code).is_queued:
                return task.task_id
            break  # it needs a place first
        return super().admit_one()

    def _left(self) -> Iterator[Task]:
        """Yield the oldest few rewrites that are left to the worker, in a different order for each worker."""
        self._queries += 1
        entries = self._tasks.reads.due(self._tasks.clock() + _WITHIN, limit=_MOST)
        drawn = in_own_order([entry for entry in entries if entry not in self._others], f"{self._seed}/{self._queries}")
        for outcome in each_item(
            drawn,
            self._waiting,
            name="rewrites.left",
            clock=self._tasks.clock,
            shown=_shown,
            asides=self._others.unread,
        ):
            if outcome.result is not None and self._places.has_place(losses_of(outcome.result)):
                yield outcome.result

    def _waiting(self, entry: DueEntry) -> Task | None:
        """Return the task if it is left to the worker. Another task is not read again until its entry moves."""
        task = self._tasks.reads.find(entry.task_id)
        if task is None or not runs(self._task_types, task) or not is_left(task, self._engines):
            self._others.add(entry)
            return None
        return task if self._tasks.pauses.start(task) is None else None


def _shown(entry: DueEntry) -> str:
    return entry.task_id
