"""Reading and changing tasks: read, decide, write conditionally, and repeat when another writer was first."""

import copy
import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Final, Self

from delegation.tasks.errors import LeaseLost, RevisionConflict, StaleTask, StoreUnavailable, TaskNotFound
from delegation.tasks.life import decisions
from delegation.tasks.life import transitions as t
from delegation.tasks.life.admission.limits import Caps
from delegation.tasks.life.decisions import Decision
from delegation.tasks.life.declared import recurrence
from delegation.tasks.life.lease import is_same_lease
from delegation.tasks.life.model import Labels, Task
from delegation.tasks.life.notifications.owed import Notification
from delegation.tasks.life.notifications.policy import NotificationPolicy
from delegation.tasks.life.policy import LeasePolicy, MaintenancePolicy, Policies
from delegation.tasks.life.task_type import NO_TYPES, DetailRules, TaskTypes
from delegation.tasks.pauses.lookout import NothingPaused, PauseLookout
from delegation.tasks.stores import results as kept_results
from delegation.tasks.stores.base import Advance, DueEntry, Received, ReceivedPage, Revise, TaskHeads, TaskStore
from delegation.tasks.stores.history import first_outcome
from delegation.tasks.stores.results import ResultStore
from delegation.tasks.work.dispatch_queue import DispatchQueue
from delegation.tasks.work.external_jobs import ExternalJobs, NoExternalJobs

RACES: Final = 20
"""Tries to write before an operation fails; each lost race means that another writer made progress."""

Decide = Callable[[Task, datetime], Decision]
"""A decision of `life.decisions` for one task at a moment."""


def new_nonce() -> str:
    """Return a new nonce for one write; it fits a DynamoDB ClientRequestToken (36 characters)."""
    return str(uuid.uuid4())


def ignored(_task: Task) -> None:
    """Report nothing, as a process does whose output nobody counts."""


def uncounted(_before: Task | None, _after: Task) -> None:
    """Count nothing, as a process does whose output nobody counts."""


def unannounced(_owed: Sequence[Notification]) -> None:
    """Send nothing, as a process does that has no queue of notifications: the sweeper sends them."""


def other_lease(task: Task, owner: str | None) -> LeaseLost:
    """Return the refusal of a former holder whose attempt has the same number as the present one."""
    number = task.attempt_count
    return LeaseLost(
        task.task_id, attempt=number, current=number, status=task.status, owner=owner, holder=task.lease_owner
    )


@dataclass(frozen=True, slots=True)
class Written:
    """The head that was decided on, and the head after it; the same if nothing was changed."""

    before: Task
    after: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHooks:
    """What a process knows of its tasks beyond their policies, and whom it informs of their changes.

    `types` are the task types of the deployment. `external_jobs` ends what attempts run elsewhere. `results` keeps the
    results that are too large for the store. `announce` is called after a write with the notifications that it stored,
    and raises nothing; `ended` after a write that ends a task, with its last row; `counted` after a write, with each
    step from one version to the next; `left_partly_done` after a write that ends a task as FAILURE after its work had
    effects. `pauses` knows what operators paused. `nonce` makes the nonce of a write.
    """

    types: TaskTypes = field(default_factory=lambda: NO_TYPES)
    external_jobs: ExternalJobs = field(default_factory=NoExternalJobs)
    results: ResultStore | None = None
    announce: Callable[[Sequence[Notification]], None] = unannounced
    ended: Callable[[Task], None] = ignored
    counted: Callable[[Task | None, Task], None] = uncounted
    left_partly_done: Callable[[Task], None] = ignored
    pauses: PauseLookout = field(default_factory=NothingPaused)
    nonce: Callable[[], str] = new_nonce


class TaskChanges:
    """Reads tasks, and changes them in one loop. Raises what the store raises."""

    def __init__(
        self,
        store: TaskStore,
        policies: Policies,
        queue: DispatchQueue,
        *,
        clock: Callable[[], datetime],
        hooks: TaskHooks = TaskHooks(),
    ) -> None:
        """`clock` returns aware UTC datetimes."""
        self._store = store
        self._policies = policies
        self._queue = queue
        self.clock = clock
        self._hooks = hooks
        self._nonce = hooks.nonce
        self.pauses = hooks.pauses
        self._draining = threading.Event()
        self._held: Task | None = None
        self._owner: str | None = None

    def having(self, *, policies: Policies | None = None, types: TaskTypes | None = None) -> Self:
        """Return the same service with other policies or task types; `drain` stops the work of both."""
        bound = copy.copy(self)
        bound._policies = policies or self._policies  # noqa: SLF001 - a copy of this object
        bound._hooks = self._hooks if types is None else replace(self._hooks, types=types)  # noqa: SLF001
        return bound

    def holding(self, held: Task) -> Self:
        """Return the same service for the holder of a task as `held` was read: LeaseLost once another lease is on it.

        So an attempt writes nothing to a task that was removed and submitted again, whose attempts have equal numbers.
        """
        bound = copy.copy(self)
        bound._held = held  # noqa: SLF001 - a copy of this object
        return bound

    def holding_as(self, owner: str) -> Self:
        """Return the same service for the lease holder of this name: LeaseLost for tasks that another one holds."""
        bound = copy.copy(self)
        bound._owner = owner  # noqa: SLF001 - a copy of this object
        return bound

    def _require_lease(self, task: Task) -> None:
        """Another number of the attempt is refused by the change itself (`transitions.held_by`)."""
        held, owner = self._held, self._owner
        if held is not None and (task.task_id, task.attempt_count) == (held.task_id, held.attempt_count):
            if not is_same_lease(task, held):
                raise other_lease(task, held.lease_owner)
        elif owner is not None and task.is_held and task.lease_owner != owner:
            raise other_lease(task, owner)

    @property
    def types(self) -> TaskTypes:
        """The task types of the deployment."""
        return self._hooks.types

    @property
    def lease(self) -> LeasePolicy:
        """How long a holder without a heartbeat keeps its lease."""
        return self._policies.lease

    @property
    def maintenance(self) -> MaintenancePolicy:
        """How long tasks are kept."""
        return self._policies.maintenance

    @property
    def limits(self) -> Caps | None:
        """How many tasks may run at once; None when all are dispatched at once."""
        return self._policies.limits

    @property
    def notifications(self) -> NotificationPolicy:
        """Who is notified of the ends of tasks."""
        return self._policies.notifications

    def drain(self) -> None:
        """Let runs in this process, which is about to end, be handed over at their next checkpoint."""
        self._draining.set()

    @property
    def is_draining(self) -> bool:
        """Whether `drain` was called."""
        return self._draining.is_set()

    def labels(self, task: Task) -> Labels:
        """Return what a task's type finds in its payload: its target and its request's correlation id."""
        return self._hooks.types.labels(task)

    def get(self, task_id: str) -> Task:
        """Return the task as it is now; raises TaskNotFound."""
        task = self._store.get(task_id)
        if task is None:
            raise TaskNotFound(task_id)
        return task

    def find(self, task_id: str) -> Task | None:
        """Return the task as it is now, None when there is none."""
        return self._store.get(task_id)

    def find_many(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        """Return those of these tasks that exist, by their ids, as they are now; read in batches."""
        return self._store.get_many(task_ids) if task_ids else {}

    def versions(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        """Return versions of a task after `after`, oldest first; none if there is no such task."""
        return self._store.history(task_id, after=after, limit=limit)

    def outcome(self, task_id: str, since_version: int, *, head: Task | None = None) -> Task | None:
        """Return the first terminal version from `since_version` on, None while there is none; `head` saves a read."""
        return first_outcome(self._store, task_id, since_version, head=head)

    def pending_result(self, task: Task, result: str) -> str:
        """Return what the record holds of a result; raises ResultTooLarge, and what the record bucket raises."""
        return kept_results.pending(self._hooks.results, task, result)

    def with_result(self, outcome: Task) -> Task:
        """Return an outcome with its result in `result_extended`, from wherever it is kept; raises MalformedRecord."""
        return outcome.evolve(result_extended=kept_results.read(self._hooks.results, outcome))

    def due(self, now: datetime, *, limit: int, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        """Return due tasks, the oldest first, of these shards of the index or of all."""
        return self._store.due(now, limit=limit, shards=shards)

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        """Return a page of all tasks, in no particular order."""
        return self._store.heads(cursor=cursor, limit=limit)

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        """Return a page of tasks, the newest received first."""
        return self._store.received(which, before=before, limit=limit)

    def change(self, task_id: str, decide: Decide, *, task: Task | None = None) -> Task:
        """Read, decide and write; repeat when another writer was first. A fresh `task` saves the first read."""
        return self._change(task_id, decide, task).after

    def _change(self, task_id: str, decide: Decide, task: Task | None) -> Written:
        current = task or self.get(task_id)
        for _ in range(RACES):
            self._require_lease(current)
            now = self.clock()
            wanted = decide(current, now)
            path = wanted if isinstance(wanted, tuple) else (wanted,)
            if path[-1] is current:
                return Written(current, current)
            if decisions.recurs(path[-1]):
                # In the same write: after a crash in between the task would never recur again.
                path = (*path, *self._next_run(path[-1], now))
            reports = self._reports(current, path[-1])
            if reports:
                path = (*path[:-1], path[-1].evolve(reported_version=path[-1].version))
            change = self._write(current, *path)
            try:
                written = Written(current, self._store.apply(change))
            except (StaleTask, RevisionConflict) as refused:
                if refused.stored is None:
                    raise TaskNotFound(task_id) from None
                current = refused.stored
                continue
            if reports:
                self._hooks.left_partly_done(written.after)
            self._say(current, path)
            if isinstance(change, Advance) and change.owed:
                self._hooks.announce(change.owed)
            return written
        raise StoreUnavailable(f"task {task_id} kept changing; nothing was written")

    def _say(self, before: Task, path: tuple[Task, ...]) -> None:
        """Report the attempts and ends of a write from `before` along `path`."""
        for former, row in pairwise((before, *path)):
            self._hooks.counted(former, row)
            if row.is_terminal and row.version > before.version:
                self._hooks.ended(row)

    def report_partly_done(self, task: Task) -> None:
        """Report a FAILURE whose work had effects unless that was done; the call whose write notes it reports.

        It is for a FAILURE that a process recorded which cannot report. Of other tasks nothing is reported.
        """

        def noted(current: Task, _now: datetime) -> Task:
            due = current.version == task.version and self._reports(None, current)
            return current.evolve(reported_version=current.version) if due else current

        if self._reports(None, task):
            written = self._change(task.task_id, noted, task)
            if written.after is not written.before:
                self._hooks.left_partly_done(written.after)

    def _reports(self, before: Task | None, after: Task) -> bool:
        """Return whether this process has to report that `after` leaves half done what `before` did not, or ever."""
        if self._hooks.left_partly_done is ignored or not after.is_left_partly_done:
            return False
        return after.reported_version != after.version and not (before and before.is_left_partly_done)

    def _next_run(self, ended: Task, now: datetime) -> tuple[Task, ...]:
        """Return what follows a run of a recurring task; a cancellation that came too late cancels the next run."""
        restarted = recurrence.next_details(self._rules(ended).restarted(ended.details))
        at, grace = recurrence.Recurrence.of(ended).next_run(now), self._policies.dispatch.grace
        if ended.lane is not None and self._hooks.types.of(ended).is_housekeeping:
            ended = ended.evolve(lane=None)  # a release before 0.1.0 let it wait for a place
        following = t.resubmit(
            ended,
            now,
            payload=recurrence.next_payload(ended),
            synchronous=False,
            grace=grace,
            restarted=restarted,
            at=at,
            deadline_ts=self._policies.deadline(ended.task_type, at),
        )
        following = self._notifying(following)
        if not ended.cancel_requested:
            return (following,)
        return following, decisions.cancelled(following.evolve(cancelled_by=ended.cancelled_by), now)

    def _notifying(self, task: Task) -> Task:
        """Return a task that is submitted again, with the channels that it had and those of this deployment's tasks."""
        channels = tuple(dict.fromkeys((*task.notify, *self._policies.notifications.channels())))
        return task if channels == task.notify else task.evolve(notify=channels)

    def _write(self, before: Task, *path: Task) -> Advance | Revise:
        """Return decided versions as one write, with the next revision and a new nonce."""
        nonce = self._nonce()
        *via, after = (step.evolve(revision=before.revision + 1, nonce=nonce) for step in path)
        return Revise(before, after) if after.version == before.version else Advance(before, after, tuple(via))

    def _labelled(self, task: Task) -> Task:
        """Return a task with the labels that its type finds in its payload."""
        return self._hooks.types.labelled(task)

    def _rules(self, task: Task) -> DetailRules:
        return self._hooks.types.of(task).details
