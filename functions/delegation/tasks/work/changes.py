"""Changing tasks: read, decide, write conditionally, and again when somebody else was faster."""

import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final, Self

from delegation.tasks.errors import RevisionConflict, StaleTask, StoreUnavailable, TaskNotFound
from delegation.tasks.life import decisions
from delegation.tasks.life import transitions as t
from delegation.tasks.life.decisions import Decision
from delegation.tasks.life.details import DetailRules, KeptDetails
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import LeasePolicy, MaintenancePolicy, Policies
from delegation.tasks.stores.base import Advance, Revise, TaskStore
from delegation.tasks.work.dispatch_queue import DispatchQueue
from delegation.tasks.work.external_jobs import ExternalJobs, NoExternalJobs
from delegation.tasks.work.queries import TaskQueries

RACES: Final = 20
"""Tries before a head that never stands still is given up; each lost race means that somebody else made progress."""
_NO_RULES: Final[Mapping[str, DetailRules]] = MappingProxyType({})

Decide = Callable[[Task, datetime], Decision]
"""A decision of `life.decisions` for one task at a moment."""


def new_nonce() -> str:
    """A fresh nonce for one write; also fits a DynamoDB ClientRequestToken (36 characters)."""
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Written:
    """The head that was decided on, and the one that the decision made of it; the same if it changed nothing."""

    before: Task
    after: Task


class TaskChanges(TaskQueries):
    """The parts that changing tasks needs, and the one loop that does it; built once and not altered afterwards."""

    def __init__(
        self,
        store: TaskStore,
        policies: Policies,
        queue: DispatchQueue,
        *,
        clock: Callable[[], datetime],
        nonce: Callable[[], str] = new_nonce,
        external_jobs: ExternalJobs = NoExternalJobs(),  # noqa: B008 - it holds nothing
        details: Mapping[str, DetailRules] = _NO_RULES,
        draining: threading.Event | None = None,
    ) -> None:
        """`clock` answers aware UTC datetimes, `details` are the rules of kinds that keep details of their own."""
        super().__init__(store)
        self._policies = policies
        self._queue = queue
        self.clock = clock
        self._nonce = nonce
        self._external_jobs = external_jobs
        self._details = details
        self._draining = draining or threading.Event()

    def having(
        self,
        *,
        policies: Policies | None = None,
        external_jobs: ExternalJobs | None = None,
        details: Mapping[str, DetailRules] | None = None,
    ) -> Self:
        """The same service with other policies, external jobs or rules; `drain` stops the work of both."""
        return type(self)(
            self._store,
            policies or self._policies,
            self._queue,
            clock=self.clock,
            nonce=self._nonce,
            external_jobs=external_jobs or self._external_jobs,
            details={**self._details, **(details or {})},
            draining=self._draining,
        )

    @property
    def lease(self) -> LeasePolicy:
        """How long a holder that says nothing is believed."""
        return self._policies.lease

    @property
    def maintenance(self) -> MaintenancePolicy:
        """How long tasks are kept."""
        return self._policies.maintenance

    def drain(self) -> None:
        """This process is about to end: its runs are handed over at their next checkpoint."""
        self._draining.set()

    @property
    def is_draining(self) -> bool:
        """Whether `drain` was called."""
        return self._draining.is_set()

    def change(self, task_id: str, decide: Decide, *, task: Task | None = None) -> Task:
        """Read, decide, write; again when somebody else was faster. `task` saves the first read when it is fresh."""
        return self._change(task_id, decide, task).after

    def _change(self, task_id: str, decide: Decide, task: Task | None) -> Written:
        current = task or self.get(task_id)
        for _ in range(RACES):
            now = self.clock()
            wanted = decide(current, now)
            path = wanted if isinstance(wanted, tuple) else (wanted,)
            if path[-1] is current:
                return Written(current, current)
            if decisions.recurs(path[-1]):
                # In the same write: a crash in between would end a recurring task for good.
                path = (*path, *self._next_run(path[-1], now))
            try:
                return Written(current, self._store.apply(self._write(current, *path)))
            except (StaleTask, RevisionConflict) as refused:
                if refused.stored is None:
                    raise TaskNotFound(task_id) from None
                current = refused.stored
        raise StoreUnavailable(f"task {task_id} kept changing; nothing was written")

    def _next_run(self, ended: Task, now: datetime) -> tuple[Task, ...]:
        """What follows a run of a recurring task; a cancellation that came too late for the run stops the next one."""
        anew = self._rules(ended).anew(ended.details)
        following = t.recur(ended, now, grace=self._policies.dispatch.grace, anew=anew)
        return (following, decisions.cancelled(following, now)) if ended.cancel_requested else (following,)

    def _write(self, before: Task, *path: Task) -> Advance | Revise:
        """Decided versions as one write, with the next revision and a nonce of its own."""
        nonce = self._nonce()
        *via, after = (step.evolve(revision=before.revision + 1, nonce=nonce) for step in path)
        return Revise(before, after) if after.version == before.version else Advance(before, after, tuple(via))

    def _rules(self, task: Task) -> DetailRules:
        return self._details.get(task.task_type, KeptDetails())
