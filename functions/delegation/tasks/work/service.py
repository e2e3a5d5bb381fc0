"""`TaskService`: what handlers, engines and commands do with a store's tasks. Every change reads the head, lets a
function of `life` decide, and writes conditionally. It repeats that after a lost race, so it returns what is stored."""

import copy
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Self

from delegation.tasks.life import decisions, outcomes
from delegation.tasks.life import transitions as t
from delegation.tasks.life.declared import TaskTypes
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.life.policy import Policies
from delegation.tasks.pauses import PAUSED_WAIT
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.work.hooks import NO_HOOKS, DispatchMessages, DispatchQueue, TaskHooks
from delegation.tasks.work.reads import TaskReads
from delegation.tasks.work.submission import TaskSubmission
from delegation.tasks.work.writes import Leases, WriteLoop, Written


class TaskService:
    """The parts that read and change the tasks of one store. `reads` reads them, `writes` is the loop of every change,
    `submission` makes and stores them, `messages` sends their dispatches, `dispatching` serves the sweeper and
    admission, `leases` the holder of a task, `operators` callers and operators."""

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
        """Return the same service for the holder of a task as `held` was read; under another lease it raises LeaseLost.
        An attempt thus writes nothing to a task that was removed and submitted again with equal attempt numbers."""
        return self._over(replace(self.writes, held=held))

    def holding_as(self, owner: str) -> Self:
        """Return the same service for a lease holder; for tasks that another one holds it raises LeaseLost."""
        return self._over(replace(self.writes, owner=owner))

    def _over(self, writes: WriteLoop) -> Self:
        bound = copy.copy(self)
        bound._compose(writes)  # noqa: SLF001 - a copy of this object
        return bound

    def drain(self) -> None:
        """Make runs in this process, which is about to end, hand over at their next checkpoint."""
        self._draining.set()

    @property
    def is_draining(self) -> bool:
        return self._draining.is_set()


class Dispatching:
    """Lets tasks start, and records lost attempts. Raises TaskNotFound and the store's errors."""

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
        """Start a queued task and count its dispatch, which the caller sends. None if it no longer waits. A paused one
        moves behind the others of its lane and is not started."""
        writes = self._writes
        task = writes.reads.get(task_id)
        paused = writes.hooks.pauses.start(task) is not None

        def decide(task: Task, now: datetime) -> Task:
            return decisions.admit(task, now, writes.policies.dispatch, paused_for=PAUSED_WAIT if paused else None)

        written = writes.written(task_id, decide, task)
        return None if paused or written.after is written.before else written.after

    def reconcile(self, task_id: str) -> Task:
        """Presume a due task lost, fail it, or dispatch it again, for the sweeper. Of a paused task only a loss is
        recorded; it stays due, so a sweep after the pause dispatches it."""
        writes = self._writes
        task = writes.reads.get(task_id)
        ended = writes.ended_attempt(task)
        paused = writes.hooks.pauses.start(task) is not None

        def decide(task: Task, now: datetime) -> Task:
            return decisions.reconcile(task, now, writes.policies, ended_attempt=ended, paused=paused)

        return self._sent(writes.written(task_id, decide, task))

    def presume_lost(self, task_id: str) -> Task:
        """Record the loss of an attempt whose lease ended and whose work has stopped; change nothing otherwise."""
        return self._writes.change(task_id, lambda task, now: outcomes.after_loss(task, now, self._writes.policies))

    def excuse_refused_start(self, task_id: str, attempt: int) -> Task:
        """Excuse an attempt that was found lost and never started; ignore any other attempt."""
        return self._writes.change(task_id, lambda task, _now: outcomes.excused_loss(task, attempt))

    def end_external_jobs(self, task: Task) -> bool:
        """End what the task's attempt runs elsewhere; False if that may still run."""
        return self._writes.hooks.external_jobs.end(task)

    def _sent(self, written: Written) -> Task:
        """Send the dispatch that a write counted. Raises StoreUnavailable if the queue did not accept it."""
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
        """Retry a failed task for `by` with a fresh attempt budget, due at once; its type's rules decide how it
        resumes."""
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
        return self._writes.change(
            task_id, lambda task, now: decisions.release(task, attempt, reason, now, self._writes.policies)
        )
