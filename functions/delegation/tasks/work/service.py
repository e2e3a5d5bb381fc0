"""`TaskService`: what handlers, engines and commands do with a store's tasks, over one write loop. Every change reads
the head, lets a function of `life` decide, and writes conditionally; after a lost race it repeats that, so it returns
what is stored."""

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

from delegation.tasks.errors import RevisionConflict, StaleTask, StoreUnavailable, TaskExists, TaskNotFound
from delegation.tasks.life import decisions, declared, outcomes
from delegation.tasks.life import transitions as t
from delegation.tasks.life.decisions import Decision
from delegation.tasks.life.declared import TaskTypes
from delegation.tasks.life.lanes import Lane, Traits
from delegation.tasks.life.model import Caller, LanePlace, Status, Task
from delegation.tasks.life.policy import Policies
from delegation.tasks.pauses import PAUSED_WAIT
from delegation.tasks.stores.base import MOST_AT_ONCE, Child, Create, TaskStore
from delegation.tasks.work.hooks import NO_HOOKS, DispatchMessages, DispatchQueue, NoDispatchQueue, TaskHooks
from delegation.tasks.work.reads import TaskReads
from delegation.tasks.work.writes import RACES, Leases, WriteLoop, Written
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.tasks.options import AskedTask


class TaskService:
    """The parts that read and change the tasks of one store. `reads` reads them, `writes` is the loop of every change,
    `submission` makes and stores them, `messages` sends their dispatches, `dispatching` serves the sweeper and
    admission, `leases` the holder of a task, and `operators` callers and operators."""

    def __init__(
        self,
        store: TaskStore,
        policies: Policies,
        queue: DispatchQueue,
        *,
        clock: Callable[[], datetime],
        hooks: TaskHooks = NO_HOOKS,
    ) -> None:
        """`clock` returns aware UTC datetimes."""
        self._draining = threading.Event()
        self._compose(
            WriteLoop(TaskReads(store, hooks.results), policies, clock, hooks, DispatchMessages(queue, clock, hooks))
        )

    def _compose(self, writes: WriteLoop) -> None:
        self.writes = writes
        self.reads = writes.reads
        self.messages = writes.messages
        self.clock = writes.clock
        self.policies = writes.policies
        self.types = writes.hooks.types
        self.pauses = writes.hooks.pauses
        self.submission = TaskSubmission(writes)
        self.dispatching = Dispatching(writes)
        self.leases = Leases(writes)
        self.operators = OperatorChanges(writes)

    def having(self, *, policies: Policies | None = None, types: TaskTypes | None = None) -> Self:
        """Return the same service with other policies or task types; `drain` stops the work of both."""
        hooks = self.writes.hooks if types is None else replace(self.writes.hooks, types=types)
        messages = replace(self.messages, hooks=hooks)
        return self._over(replace(self.writes, policies=policies or self.policies, hooks=hooks, messages=messages))

    def holding(self, held: Task) -> Self:
        """Return the same service for the holder of a task as `held` was read: LeaseLost under another lease. So an
        attempt writes nothing to a task that was removed and submitted again with equal attempt numbers."""
        return self._over(replace(self.writes, held=held))

    def holding_as(self, owner: str) -> Self:
        """Return the same service for the lease holder of this name: LeaseLost for tasks that another one holds."""
        return self._over(replace(self.writes, owner=owner))

    def _over(self, writes: WriteLoop) -> Self:
        bound = copy.copy(self)
        bound._compose(writes)  # noqa: SLF001 - a copy of this object
        return bound

    def drain(self) -> None:
        """Let runs in this process, which is about to end, be handed over at their next checkpoint."""
        self._draining.set()

    @property
    def is_draining(self) -> bool:
        return self._draining.is_set()


class Dispatching:
    """Lets tasks start, and records lost attempts; raises TaskNotFound and the store's errors."""

    def __init__(self, writes: WriteLoop) -> None:
        self._writes = writes

    def dispatch(self, task_id: str, *, task: Task | None = None) -> Task:
        """Count one more dispatch and move `due_at` in one write, then send; the sweeper repeats a lost one. A paused
        task is returned unchanged; the sweeper dispatches it after the pause."""
        writes = self._writes
        task = task or writes.reads.get(task_id)
        if writes.hooks.pauses.start(task) is not None:
            return task
        after = self._sent(
            writes.written(task_id, lambda task, now: decisions.dispatch(task, now, writes.policies.dispatch), task)
        )
        return writes.messages.send(after) if after.is_queued else after

    def admit(self, task_id: str) -> Task | None:
        """Start a queued task and count its dispatch, which the caller sends; None if it no longer waits. A paused one
        goes behind the others of its lane, and is not started."""
        writes = self._writes
        task = writes.reads.get(task_id)
        paused = writes.hooks.pauses.start(task) is not None

        def decide(task: Task, now: datetime) -> Task:
            return decisions.admit(task, now, writes.policies.dispatch, paused_for=PAUSED_WAIT if paused else None)

        written = writes.written(task_id, decide, task)
        return None if paused or written.after is written.before else written.after

    def reconcile(self, task_id: str) -> Task:
        """Presume a due task lost, fail it, or dispatch it again, as the sweeper. Of a paused task only a loss is
        recorded; it stays due, so a sweep after the pause dispatches it."""
        writes = self._writes
        task = writes.reads.get(task_id)
        ended = writes.ended_attempt(task)
        paused = writes.hooks.pauses.start(task) is not None

        def decide(task: Task, now: datetime) -> Task:
            return decisions.reconcile(task, now, writes.policies, ended_attempt=ended, paused=paused)

        return self._sent(writes.written(task_id, decide, task))

    def presume_lost(self, task_id: str) -> Task:
        """Record the loss of an attempt whose lease ended and of which nothing runs any more; else change nothing."""

        def decide(task: Task, now: datetime) -> Decision:
            return outcomes.after_loss(task, now, self._writes.policies)

        return self._writes.change(task_id, decide)

    def excuse_refused_start(self, task_id: str, attempt: int) -> Task:
        """Excuse an attempt that was found lost and was never started; of any other attempt change nothing."""
        return self._writes.change(task_id, lambda task, _now: outcomes.excused_loss(task, attempt))

    def end_external_jobs(self, task: Task) -> bool:
        """End what the task's attempt runs elsewhere; False when that may still run."""
        return self._writes.hooks.external_jobs.end(task)

    def _sent(self, written: Written) -> Task:
        """Send the dispatch that a write counted; raises StoreUnavailable when the queue did not accept it."""
        after = written.after
        if after.dispatches.count > written.before.dispatches.count and not after.is_terminal:
            self._writes.messages.send_again(after)
        return after


class OperatorChanges:
    """Cancels, retries and releases tasks; raises TaskNotFound, LeaseLost and the store's errors."""

    def __init__(self, writes: WriteLoop) -> None:
        self._writes = writes

    def cancel(self, task_id: str, *, by: Caller | None = None) -> Task:
        """Fail a waiting task (`CANCELLED`); request a held one or a parent, which cancels its children, to stop."""
        return self._writes.change(task_id, lambda task, now: decisions.cancel(task, now, by))

    def retry(self, task_id: str, *, by: Caller | None = None) -> Task:
        """Retry a failed task for `by` with a fresh attempt budget, due at once, as the rules of its type resume it."""
        writes = self._writes

        def decide(task: Task, now: datetime) -> Task:
            if task.status is not Status.FAILURE:
                return task
            again = t.resubmit(
                task,
                now,
                payload=task.task_payload,
                synchronous=False,
                grace=timedelta(0),
                restarted=writes.hooks.types.restarted(task),
                deadline_ts=writes.policies.deadline(task.task_type, now),
                requested_by=by,
            )
            return writes.notifying(again)

        return writes.change(task_id, decide)

    def release(self, task_id: str, attempt: int, reason: str) -> Task:
        """Record an attempt as lost although its lease lasts; its holder's later writes are refused."""

        def decide(task: Task, now: datetime) -> Task:
            return decisions.release(task, attempt, reason, now, self._writes.policies)

        return self._writes.change(task_id, decide)


MOST_PAYLOAD: Final = 131_072
"""Bytes of a task's payload, which every version of the task holds (tasks.work.reads: what fits into an item)."""


class TaskSubmission:
    """Makes, stores and sends tasks; raises DelegationError (TASK_PAYLOAD_TOO_LARGE) and the store's errors."""

    def __init__(self, writes: WriteLoop) -> None:
        self._writes = writes
        self._policies = writes.policies
        self._types = writes.hooks.types

    def first(
        self,
        *,
        task_id: str,
        task_type: str,
        payload: str,
        synchronous: bool = False,
        at: datetime | None = None,
        traits: Traits | None = None,
        deadline: timedelta | None = None,
        callback: str | None = None,
        **fields: Any,
    ) -> Task:
        """Return version 1 of a task due `at` or now, not stored; an immediate dispatch by this process is counted.
        With limits it waits for admission instead; a synchronous one, which its caller runs, is admitted. `traits`
        replace those of its payload. `deadline` is its behavior's; a property of the task type precedes it.
        `callback` names the callback for its end. Raises DelegationError (TASK_PAYLOAD_TOO_LARGE)."""
        now = self._writes.clock()
        task = Task(
            task_id=task_id,
            task_type=task_type,
            task_payload=_checked_payload(task_type, payload),
            received_timestamp=now,
            created_ts=now,
            last_status_change_ts=now,
            next_scheduled_run_ts=max(at or now, now),
            due_at=self._policies.dispatch.due_after(now),
            synchronous=synchronous,
            deadline_ts=self._policies.deadline(task_type, max(at or now, now), own=deadline),
            nonce=self._writes.hooks.nonce(),
            notify=self._policies.channels(callback),
            **fields,
        )
        return self._to_be_dispatched(self._types.labelled(task), now, traits)

    def resubmitted(
        self,
        task: Task,
        now: datetime,
        *,
        payload: str,
        synchronous: bool = False,
        resumes: bool | None = None,
        deadline_ts: datetime | None = None,
        payload_version: int = 1,
        requested_by: Caller | None = None,
        at: datetime | None = None,
        traits: Traits | None = None,
        callback: str | None = None,
    ) -> Task:
        """Return the next version of a terminal task submitted again for `at` or now, not stored. `resumes` is whether
        it resumes where it stopped, `deadline_ts` when it must be done; None leaves both to its type's rules and
        policies. `payload_version` is that of `payload`. The end announces `callback`, not those of earlier
        submissions."""
        again = t.resubmit(
            task,
            now,
            payload=_checked_payload(task.task_type, payload),
            synchronous=synchronous,
            grace=self._policies.dispatch.grace,
            restarted=self._types.restarted(task, resumes=resumes),
            deadline_ts=deadline_ts or self._policies.deadline(task.task_type, now),
            payload_version=payload_version,
            requested_by=requested_by,
            at=None if at is None else max(at, now),
            repeats=t.repeats_so_far(task, now) + 1 if t.is_repeat(task, payload) else None,
        )
        channels = self._policies.channels(callback)
        again = again if again.notify == channels else again.evolve(notify=channels)
        return self._to_be_dispatched(self._types.labelled(again), now, traits)

    def create(
        self, first: Task, *, resumes: bool = True, rerun: bool = False, moved: bool = False
    ) -> tuple[Task, bool]:
        """Store and dispatch a task, or return the existing one; and whether it was submitted. An existing one is
        submitted again after FAILURE, with `rerun` also after SUCCESS. One without an outcome gets the schedule of
        `first`, if any, and with `moved` its time."""
        store, send = self._writes.reads.store, self._writes.messages.send
        for _ in range(RACES):
            try:
                return send(store.apply(Create(first))), True
            except TaskExists as exists:
                stored = exists.stored
            if stored is None:
                raise TaskNotFound(first.task_id)
            again = self._again(stored, first, resumes=resumes, rerun=rerun, moved=moved)
            if again is stored:
                return stored, False
            try:
                return send(store.apply(self._writes.step(stored, again))), stored.is_terminal
            except (StaleTask, RevisionConflict):
                continue
        raise StoreUnavailable(f"task {first.task_id} kept changing; nothing was written")

    def create_all(
        self, firsts: Sequence[Task], *, rerun: bool = False, moved: bool = False
    ) -> list[tuple[Task, bool]]:
        """Store and dispatch tasks as `create` does each, with a write for every MOST_AT_ONCE where none exists."""
        created: list[tuple[Task, bool]] = []
        for start in range(0, len(firsts), MOST_AT_ONCE):
            some = firsts[start : start + MOST_AT_ONCE]
            if len({first.task_id for first in some}) == len(some) and self._writes.reads.store.create_all(some):
                created += [(self._writes.messages.send(first), True) for first in some]
            else:
                created += [self.create(first, rerun=rerun, moved=moved) for first in some]
        return created

    def create_child(self, parent: Task, child: Child) -> Task:
        """Create a child that was adopted and is absent, or return the existing one."""
        first = self.first(
            task_id=child.task_id, task_type=child.task_type, payload=child.task_payload, parent_id=parent.task_id
        )
        return self.create(first)[0]

    def _again(self, stored: Task, first: Task, *, resumes: bool, rerun: bool, moved: bool) -> Task:
        """Return an existing task as its repeated submission wants it, the same task if nothing changes."""
        now = self._writes.clock()
        if stored.status is not Status.FAILURE and not (rerun and stored.status is Status.SUCCESS):
            return declared.rescheduled(stored, first, now, moved=moved)
        resumes = resumes and stored.status is Status.FAILURE
        again = self.resubmitted(
            stored,
            now,
            payload=first.task_payload,
            resumes=resumes,
            deadline_ts=first.deadline_ts,
            payload_version=first.payload_version,
            at=first.next_scheduled_run_ts,
        )
        again = again.evolve(requested_by=first.requested_by)
        return declared.with_schedule_of(first, again, same_work=first.task_payload == stored.task_payload)

    def _to_be_dispatched(self, task: Task, now: datetime, traits: Traits | None) -> Task:
        """Let a background task wait for its admission, or count its dispatch if there are no limits for it. A caller
        runs a synchronous one, a poller one of a process without queue; neither waits."""
        dispatch = self._policies.dispatch
        if self._policies.limits is None or self._types.of(task).is_housekeeping:
            if task.admission.lane is not None:
                task = task.evolve(admission=task.admission.evolve(lane=None), due_at=dispatch.due_after(now))
            if task.synchronous:
                return task
            if task.next_scheduled_run_ts is not None and task.next_scheduled_run_ts > now:
                return task.evolve(due_at=task.next_scheduled_run_ts)
            if isinstance(self._writes.messages.queue, NoDispatchQueue):
                return task.evolve(due_at=now)
            return dispatch.counted(task, now)
        lane = Lane.of(task.task_type, traits or self._types.traits(task)).text
        if task.synchronous:
            return task.evolve(admission=LanePlace(lane=lane, admitted_ts=now), due_at=dispatch.due_after(now))
        return t.queued(task, lane, now)


def _checked_payload(task_type: str, payload: str) -> str:
    """Return a payload that fits beside result, report and errors. Raises DelegationError (TASK_PAYLOAD_TOO_LARGE)."""
    size = len(payload.encode())
    if size > MOST_PAYLOAD:
        raise DelegationError(
            f"the payload of a {task_type} has {size:,} bytes of at most {MOST_PAYLOAD:,}; store what is large "
            "elsewhere and pass its name",
            code="TASK_PAYLOAD_TOO_LARGE",
        )
    return payload


@dataclass(frozen=True)
class RequestedTask:
    """The task of a request, and how that relates to the stored task of its id. `read` is called once, as it may load
    a table, and only for a request that is not answered from its key's record; methods raise its errors."""

    read: Callable[[], "AskedTask"]
    tasks: TaskSubmission
    _: KW_ONLY
    synchronous: bool
    requested_by: Caller

    @cached_property
    def asked(self) -> "AskedTask":
        return self.read()

    def first(self) -> Task:
        """Return version 1 of the task, not stored."""
        asked = self.asked
        return self.tasks.first(
            task_id=asked.task_id,
            task_type=asked.task_type,
            payload=asked.payload,
            payload_version=asked.payload_version,
            synchronous=self.synchronous,
            requested_by=self.requested_by,
            traits=asked.traits,
            callback=asked.callback,
            deadline=asked.deadline,
        )

    def obstacle(self, stored: Task) -> str | None:
        return self.asked.obstacle(stored)

    def again(self, stored: Task, now: datetime) -> Task | None:
        """Return the next version of a stored task that ended, not stored; None if its outcome answers the request."""
        asked = self.asked
        if not stored.is_terminal or asked.replays(stored):
            return None
        return self.tasks.resubmitted(
            stored,
            now,
            payload=asked.payload,
            payload_version=asked.payload_version,
            synchronous=self.synchronous,
            resumes=asked.resumes(stored),
            requested_by=self.requested_by,
            traits=asked.traits,
            callback=asked.callback,
        )
