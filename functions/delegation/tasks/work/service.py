"""Acquire, heartbeat, start, finish, retry, cancel and dispatch tasks.

Every method reads the head, lets a function of `life` decide, and writes conditionally; after a lost race it repeats
that, so it returns what is stored.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from delegation.tasks.errors import (
    ChildrenPending,
    RevisionConflict,
    StaleTask,
    StoreUnavailable,
    TaskError,
    TaskExists,
    TaskNotFound,
)
from delegation.tasks.life import decisions, outcomes
from delegation.tasks.life import transitions as t
from delegation.tasks.life.admission.lanes import Lane, Traits
from delegation.tasks.life.decisions import Decision
from delegation.tasks.life.declared import recurrence
from delegation.tasks.life.declared.recurrence import AWAITS
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.life.outcomes import AttemptError
from delegation.tasks.life.repeats import is_repeat, repeats_so_far
from delegation.tasks.life.sizes import require_payload
from delegation.tasks.pauses.lookout import PAUSED_WAIT
from delegation.tasks.stores.base import MOST_AT_ONCE, Child, Create
from delegation.tasks.work.changes import RACES, Decide, Written
from delegation.tasks.work.dispatch_queue import ANY_TASK, NoDispatchQueue
from delegation.tasks.work.family.adoption import FamilyChanges


class TaskService(FamilyChanges):
    """What handlers, engines and commands do with tasks; raises TaskNotFound, LeaseLost and the store's errors."""

    def due_after(self, moment: datetime) -> datetime:
        """Return when the sweeper dispatches a task that waits until `moment`."""
        return moment + self._policies.dispatch.grace

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
        """Return version 1 of a task due `at` or now, not stored; a dispatch now is counted if this process does it.

        With limits it waits for its admission instead; a synchronous one, which its caller runs, is admitted. `traits`
        replace those that its task type finds in the payload. `deadline` is its behavior's, which a property of the
        task type precedes. `callback` names the callback that its end owes. Raises TaskPayloadTooLarge, before anything
        is stored.
        """
        now = self.clock()
        task = Task(
            task_id=task_id,
            task_type=task_type,
            task_payload=require_payload(task_type, payload),
            received_timestamp=now,
            created_ts=now,
            last_status_change_ts=now,
            next_scheduled_run_ts=max(at or now, now),
            due_at=self.due_after(now),
            synchronous=synchronous,
            deadline_ts=self._policies.deadline(task_type, max(at or now, now), own=deadline),
            nonce=self._nonce(),
            notify=self._policies.notifications.channels(callback),
            **fields,
        )
        return self._to_be_dispatched(self._labelled(task), now, traits)

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
        """Return the next version of a terminal task that is submitted again for `at` or now, not stored.

        `resumes` is whether it resumes where it stopped, and `deadline_ts` when it has to be done; with None the rules
        and the policies of its task type decide. `payload_version` is that of `payload`. The end owes `callback`, not
        those of earlier submissions.
        """
        again = t.resubmit(
            task,
            now,
            payload=require_payload(task.task_type, payload),
            synchronous=synchronous,
            grace=self._policies.dispatch.grace,
            restarted=self._restarted(task, resumes=resumes),
            deadline_ts=deadline_ts or self._policies.deadline(task.task_type, now),
            payload_version=payload_version,
            requested_by=requested_by,
            at=None if at is None else max(at, now),
            repeats=repeats_so_far(task, now) + 1 if is_repeat(task, payload) else None,
        )
        channels = self._policies.notifications.channels(callback)
        again = again if again.notify == channels else again.evolve(notify=channels)
        return self._to_be_dispatched(self._labelled(again), now, traits)

    def create(
        self, first: Task, *, resumes: bool = True, rerun: bool = False, moved: bool = False
    ) -> tuple[Task, bool]:
        """Store and dispatch a task, or return the existing one; and whether it was submitted.

        An existing one is submitted again after FAILURE, with `rerun` also after SUCCESS. One without an outcome gets
        the schedule of `first`, if that has one, and with `moved` its time.
        """
        for _ in range(RACES):
            try:
                return self.send(self._store.apply(Create(first))), True
            except TaskExists as exists:
                stored = exists.stored
            if stored is None:
                raise TaskNotFound(first.task_id)
            again = self._again(stored, first, resumes=resumes, rerun=rerun, moved=moved)
            if again is stored:
                return stored, False
            try:
                return self.send(self._store.apply(self._write(stored, again))), stored.is_terminal
            except (StaleTask, RevisionConflict):
                continue
        raise StoreUnavailable(f"task {first.task_id} kept changing; nothing was written")

    def create_all(
        self, firsts: Sequence[Task], *, rerun: bool = False, moved: bool = False
    ) -> list[tuple[Task, bool]]:
        """Store and dispatch tasks as `create` does each, with a write for every MOST_AT_ONCE where none exists."""
        found: list[tuple[Task, bool]] = []
        for start in range(0, len(firsts), MOST_AT_ONCE):
            some = firsts[start : start + MOST_AT_ONCE]
            if len({first.task_id for first in some}) == len(some) and self._store.create_all(some):
                found += [(self.send(first), True) for first in some]
            else:
                found += [self.create(first, rerun=rerun, moved=moved) for first in some]
        return found

    def _again(self, stored: Task, first: Task, *, resumes: bool, rerun: bool, moved: bool) -> Task:
        """Return an existing task as its repeated submission wants it, the same task if nothing changes."""
        now = self.clock()
        if stored.status is not Status.FAILURE and not (rerun and stored.status is Status.SUCCESS):
            return recurrence.rescheduled(stored, first, now, moved=moved)
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
        return recurrence.with_schedule_of(first, again, same_work=first.task_payload == stored.task_payload)

    def send(self, task: Task) -> Task:
        """Send the dispatch that the last write counted; the sweeper repeats a lost one at `due_at`.

        For a queued task it sends that one waits (`wake`). One that waits for its time is left to the sweeper.
        """
        if task.next_scheduled_run_ts is not None and task.next_scheduled_run_ts > self.clock():
            return task
        if task.is_queued:
            self.wake()
        elif task.dispatch_count and decisions.awaits_dispatch(task) and self.pauses.start(task) is None:
            with suppress(StoreUnavailable):
                self._queue.send(task.task_id, task.dispatch_count, **self._joined(task))
        return task

    def _joined(self, task: Task) -> dict[str, str]:
        """Return the correlation id that a dispatch carries, nothing for a task without one."""
        found = self.labels(task).correlation_id
        return {} if found is None else {"correlation_id": found}

    def acquire(
        self, task_id: str, owner: str, lease: Callable[[datetime], Lease], *, task: Task | None = None
    ) -> Task:
        """Try to make `owner` the holder, and return the task: `owner` holds it if it is the `lease_owner`.

        A task that is not due, terminal, paused, or held by another process is returned unchanged (`decisions.claim`).
        """
        task = task or self.get(task_id)
        if task.lease_owner != owner and self.pauses.start(task) is not None:
            return task
        ended = self._ended_attempt(task)

        def decide(task: Task, now: datetime) -> Decision:
            return decisions.claim(task, owner, now, self._policies, lease, ended_attempt=ended)

        return self.change(task_id, decide, task=task)

    def heartbeat(self, task_id: str, attempt: int, lease: Callable[[datetime], Lease], **fields: Any) -> Task:
        """Renew the lease and set other fields of the head; writes nothing if the lease already lasts that long."""

        def decide(task: Task, now: datetime) -> Task:
            renewed = t.renew(task, attempt, lease(now))
            return renewed.evolve(**fields) if fields else renewed

        return self.change(task_id, decide)

    def note(self, task_id: str, attempt: int, *, details: Mapping[str, Any] = t.NOTHING, **fields: Any) -> Task:
        """Set details and fields of the head as the holder of the task; the lease stays."""
        return self.change(task_id, lambda task, _now: t.held_by(task, attempt).with_details(details, **fields))

    def start(self, task_id: str, attempt: int, *, effects: bool = False) -> Task:
        """Begin the attempt's main work (RUNNING), with `effects` that cannot be undone or without."""
        return self.change(task_id, lambda task, now: t.start(task, attempt, now, effects=effects))

    def succeed(
        self, task_id: str, attempt: int, summary: str, *, details: Mapping[str, Any] = t.NOTHING, **results: Any
    ) -> Task:
        """Record SUCCESS for the attempt; a repeat after an unclear answer returns the recorded one."""

        def decide(task: Task, now: datetime) -> Decision:
            return decisions.succeed(task, attempt, now, summary, details=details, **results)

        return self.change(task_id, decide)

    def end_attempt(
        self,
        task_id: str,
        attempt: int,
        error: AttemptError,
        *,
        wait: timedelta | None = None,
        details: Mapping[str, Any] = t.NOTHING,
    ) -> Task:
        """End the attempt with an error: RETRY_SCHEDULED (after `wait` if given) or FAILURE, as policies decide."""

        def decide(task: Task, now: datetime) -> Task:
            after = decisions.end_attempt(task, attempt, error, now, self._policies, wait=wait)
            return after if after is task else after.with_details(details)

        return self.change(task_id, decide)

    def await_child(self, task_id: str, attempt: int, error: AttemptError, child_id: str, *, wait: timedelta) -> Task:
        """End the attempt of a parent that waits for its children until this one has ended, or for `wait`.

        The child's end wakes it (`_wake_parent`), or this call if that was before the parent's waiting was stored.
        """
        after = self.end_attempt(task_id, attempt, error, wait=wait, details={AWAITS: child_id})
        if after.status is Status.RETRY_SCHEDULED:
            child = self.find(child_id)
            if child is None or child.is_terminal:
                return self.hasten(task_id, error.code)
        return after

    def _change(self, task_id: str, decide: Decide, task: Task | None) -> Written:
        written = super()._change(task_id, decide, task)
        ended = written.after.is_terminal and not written.before.is_terminal
        if ended and written.after.parent_id is not None:
            self._wake_parent(written.after)
        return written

    def _wake_parent(self, child: Task) -> None:
        """Let the parent that waits for this child run now; one that is not woken runs by itself later."""
        with suppress(TaskError):
            parent = self.find(child.parent_id or "")
            if parent is not None and parent.details.get(AWAITS) == child.task_id:
                self.hasten(parent.task_id, ChildrenPending.code)

    def presume_lost(self, task_id: str) -> Task:
        """Record the loss of an attempt whose lease ended and of which nothing runs any more; else change nothing."""
        return self.change(task_id, lambda task, now: outcomes.after_loss(task, now, self._policies))

    def release(self, task_id: str, attempt: int, reason: str) -> Task:
        """Record an attempt as lost although its lease lasts; its holder's later writes are refused."""
        return self.change(task_id, lambda task, now: decisions.release(task, attempt, reason, now, self._policies))

    def excuse_refused_start(self, task_id: str, attempt: int) -> Task:
        """Excuse an attempt that was found lost and was never started; of any other attempt change nothing."""
        return self.change(task_id, lambda task, _now: outcomes.excused_loss(task, attempt))

    def end_external_jobs(self, task: Task) -> bool:
        """End what the task's attempt runs elsewhere; False when that may still run."""
        return self._hooks.external_jobs.end(task)

    def cancel(self, task_id: str, *, by: Caller | None = None) -> Task:
        """Fail a waiting task (`CANCELLED`); request a held one or a parent, which cancels its children, to stop."""
        return self.change(task_id, lambda task, now: decisions.cancel(task, now, by))

    def retry(self, task_id: str, *, by: Caller | None = None) -> Task:
        """Retry a failed task for `by` with a fresh attempt budget, due at once; a purge resumes where it stopped."""

        def decide(task: Task, now: datetime) -> Task:
            if task.status is not Status.FAILURE:
                return task
            again = t.resubmit(
                task,
                now,
                payload=task.task_payload,
                synchronous=False,
                grace=timedelta(0),
                restarted=self._restarted(task),
                deadline_ts=self._policies.deadline(task.task_type, now),
                requested_by=by,
            )
            return self._notifying(again)

        return self.change(task_id, decide)

    def hasten(self, task_id: str, code: str) -> Task:
        """Let a task that waits for its next attempt after the error `code` run now, because its cause is gone.

        The sweeper or a worker finds it within a minute, admission at once. Another task is returned unchanged.
        """
        task = self.change(task_id, lambda task, now: decisions.hasten(task, code, now))
        if task.is_queued:
            self.wake()
        return task

    def create_child(self, parent: Task, child: Child) -> Task:
        """Create a child that was adopted and is absent, or return the existing one."""
        first = self.first(
            task_id=child.task_id, task_type=child.task_type, payload=child.task_payload, parent_id=parent.task_id
        )
        return self.create(first)[0]

    def dispatch(self, task_id: str, *, task: Task | None = None) -> Task:
        """Count one more dispatch and move `due_at` in one write, then send; the sweeper repeats a lost one.

        A paused task is returned unchanged; the sweeper dispatches it after the pause.
        """
        task = task or self.get(task_id)
        if self.pauses.start(task) is not None:
            return task
        after = self._dispatched(
            self._change(task_id, lambda task, now: decisions.dispatch(task, now, self._policies.dispatch), task)
        )
        return self.send(after) if after.is_queued else after

    def reconcile(self, task_id: str) -> Task:
        """Do with a due task what the sweeper does: presume it lost, fail it, or dispatch it again.

        Of a paused task only a loss is recorded; it stays due, so a sweep after the pause dispatches it.
        """
        task = self.get(task_id)
        ended = self._ended_attempt(task)
        paused = self.pauses.start(task) is not None

        def decide(task: Task, now: datetime) -> Task:
            return decisions.reconcile(task, now, self._policies, ended_attempt=ended, paused=paused)

        return self._dispatched(self._change(task_id, decide, task))

    def hand_to_next_execution(self, task_id: str, attempt: int, owner: str, name: Callable[[int], str]) -> Task:
        """Let the execution of the next dispatch continue this attempt of `owner`; a repeat only sends again.

        It counts as a dispatch that started an attempt, so `dispatch_base` moves too.
        """

        def decide(task: Task, _now: datetime) -> Task:
            following = t.held_by(task, attempt).dispatch_count + 1
            if task.lease_owner != owner:
                return task
            return task.evolve(lease_owner=name(following), dispatch_count=following, dispatch_base=following)

        return self.send_again(self.change(task_id, decide))

    def send_again(self, task: Task) -> Task:
        """Repeat the last dispatch that was counted; raises StoreUnavailable when the queue did not accept it."""
        self._queue.send(task.task_id, task.dispatch_count, **self._joined(task))
        return task

    def admit(self, task_id: str) -> Task | None:
        """Let a queued task start and count its dispatch, which the caller sends; None if it no longer waits.

        A paused one waits anew behind the others of its lane, and is not started.
        """
        task = self.get(task_id)
        paused = self.pauses.start(task) is not None

        def decide(task: Task, now: datetime) -> Task:
            return decisions.admit(task, now, self._policies.dispatch, paused_for=PAUSED_WAIT if paused else None)

        written = self._change(task_id, decide, task)
        return None if paused or written.after is written.before else written.after

    def wake(self, task_id: str = ANY_TASK) -> None:
        """Send the dispatcher a message that a task waits, or that `task_id` has ended, so that tasks may start.

        A lost one delays tasks until the sweeper's next.
        """
        with suppress(StoreUnavailable):
            self._queue.send(task_id, 0)

    def remove(self, head: Task) -> bool:
        """Delete a terminal task with its versions and return True; False if it was submitted again meanwhile."""
        try:
            return self._store.remove(head)
        except (StaleTask, RevisionConflict):
            return False

    def forget(self, task_id: str, below: int) -> int:
        """Delete versions below `below`, never the newest, and return how many."""
        return self._store.forget(task_id, below)

    def _restarted(self, task: Task, *, resumes: bool | None = None) -> Mapping[str, Any] | None:
        rules = self._rules(task)
        resumes = rules.resumes(task) if resumes is None else resumes
        return None if resumes else rules.restarted(task.details)

    def _dispatched(self, written: Written) -> Task:
        after = written.after
        if after.dispatch_count > written.before.dispatch_count and not after.is_terminal:
            self._queue.send(after.task_id, after.dispatch_count, **self._joined(after))
        return after

    def _to_be_dispatched(self, task: Task, now: datetime, traits: Traits | None) -> Task:
        """Let a background task wait for its admission, or count its dispatch when there are no limits or none for it.

        Its caller runs a synchronous one, a poller one of a process without queue; neither waits.
        """
        if self._policies.limits is None or self._hooks.types.of(task).is_housekeeping:
            polled = isinstance(self._queue, NoDispatchQueue)
            if task.lane is not None:
                task = task.evolve(lane=None, due_at=self.due_after(now))
            if task.synchronous:
                return task
            if task.next_scheduled_run_ts is not None and task.next_scheduled_run_ts > now:
                return task.evolve(due_at=task.next_scheduled_run_ts)
            return task.evolve(due_at=now) if polled else decisions.dispatch(task, now, self._policies.dispatch)
        lane = Lane.of(task.task_type, traits or self._hooks.types.traits(task)).text
        if task.synchronous:
            return task.evolve(lane=lane, admitted_ts=now, due_at=self.due_after(now))
        return t.queued(task, lane, now)

    def _ended_attempt(self, task: Task) -> int | None:
        """Return the number of the attempt if it is lost and nothing of it still runs; used before its loss is written.

        An attempt whose lease is renewed at this moment finds its job ended, and ends like any failed attempt.
        """
        lost = outcomes.is_lost(task, self.clock()) and self._hooks.external_jobs.end(task)
        return task.attempt_count if lost else None
