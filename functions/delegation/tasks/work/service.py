"""Acquire, heartbeat, start, finish, retry, cancel and dispatch tasks.

Every method reads the head, lets a function of `life` decide, and writes conditionally; after a lost race it repeats
that, so it returns what is stored.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from delegation.tasks.errors import RevisionConflict, StaleTask, StoreUnavailable, TaskExists, TaskNotFound
from delegation.tasks.life import decisions, outcomes
from delegation.tasks.life import transitions as t
from delegation.tasks.life.decisions import Decision
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.life.outcomes import AttemptError
from delegation.tasks.life.repeats import is_repeat, repeats_so_far
from delegation.tasks.stores.base import Create
from delegation.tasks.work.changes import RACES, TaskChanges, Written
from delegation.tasks.work.dispatch_queue import NoDispatchQueue


class TaskService(TaskChanges):
    """What handlers, engines and commands do with tasks; raises TaskNotFound, LeaseLost and the store's errors."""

    def due_after(self, moment: datetime) -> datetime:
        """Return when the sweeper dispatches a task that waits until `moment`."""
        return moment + self._policies.dispatch.grace

    def first(self, *, task_id: str, task_type: str, payload: str, synchronous: bool = False, **fields: Any) -> Task:
        """Return version 1 of a task due now, not stored; its dispatch is counted if this process dispatches."""
        now = self.clock()
        task = Task(
            task_id=task_id,
            task_type=task_type,
            task_payload=payload,
            received_timestamp=now,
            created_ts=now,
            last_status_change_ts=now,
            next_scheduled_run_ts=now,
            due_at=self.due_after(now),
            synchronous=synchronous,
            nonce=self._nonce(),
            **fields,
        )
        return self._to_be_dispatched(task, now)

    def resubmitted(
        self,
        task: Task,
        now: datetime,
        *,
        payload: str,
        synchronous: bool = False,
        resumes: bool | None = None,
        requested_by: Caller | None = None,
    ) -> Task:
        """Return the next version of a terminal task that is submitted again, not stored.

        `resumes` is whether it resumes where it stopped; with None the rules of its task type decide.
        """
        again = t.resubmit(
            task,
            now,
            payload=payload,
            synchronous=synchronous,
            grace=self._policies.dispatch.grace,
            restarted=self._restarted(task, resumes=resumes),
            requested_by=requested_by,
            repeats=repeats_so_far(task, now) + 1 if is_repeat(task, payload) else None,
        )
        return self._to_be_dispatched(again, now)

    def create(self, first: Task, *, resumes: bool = True) -> tuple[Task, bool]:
        """Store and dispatch a task, or return the existing one, resubmitted if FAILURE; whether it was submitted."""
        for _ in range(RACES):
            try:
                return self.send(self._store.apply(Create(first))), True
            except TaskExists as exists:
                stored = exists.stored
            if stored is None:
                raise TaskNotFound(first.task_id)
            if stored.status is not Status.FAILURE:
                return stored, False
            again = self.resubmitted(stored, self.clock(), payload=first.task_payload, resumes=resumes)
            try:
                return self.send(self._store.apply(self._write(stored, again))), True
            except (StaleTask, RevisionConflict):
                continue
        raise StoreUnavailable(f"task {first.task_id} kept changing; nothing was written")

    def start_held(self, first: Task, owner: str, lease: Lease) -> Task | None:
        """Store a task as RUNNING, held by `owner`, so that no other process acquires it; None when its id exists."""
        held = first.evolve(
            status=Status.RUNNING,
            attempt_count=1,
            lease_owner=owner,
            lease_acquired_ts=self.clock(),
            lost_not_before=lease.lost_not_before,
            recheck_not_before=lease.recheck_not_before,
            due_at=lease.lost_not_before,
            next_scheduled_run_ts=None,
            dispatch_count=0,
        )
        try:
            return self._store.apply(Create(held))
        except TaskExists:
            return None

    def send(self, task: Task) -> Task:
        """Send the dispatch that the last write counted; the sweeper repeats a lost one at `due_at`."""
        if task.dispatch_count and decisions.awaits_dispatch(task):
            with suppress(StoreUnavailable):
                self._queue.send(task.task_id, task.dispatch_count)
        return task

    def acquire(
        self, task_id: str, owner: str, lease: Callable[[datetime], Lease], *, task: Task | None = None
    ) -> Task:
        """Try to make `owner` the holder, and return the task: `owner` holds it if it is the `lease_owner`.

        A task that is not due, terminal, or held by another process is returned unchanged (see `decisions.claim`).
        """
        task = task or self.get(task_id)
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

    def end_attempt(self, task_id: str, attempt: int, error: AttemptError, *, wait: timedelta | None = None) -> Task:
        """End the attempt with an error: RETRY_SCHEDULED (after `wait` if given) or FAILURE, as policies decide."""

        def decide(task: Task, now: datetime) -> Task:
            return decisions.end_attempt(task, attempt, error, now, self._policies, wait=wait)

        return self.change(task_id, decide)

    def presume_lost(self, task_id: str) -> Task:
        """Record the loss of an attempt whose lease ended and of which nothing runs any more; else change nothing."""
        return self.change(task_id, lambda task, now: outcomes.after_loss(task, now, self._policies))

    def end_external_jobs(self, task: Task) -> bool:
        """End what the task's attempt runs elsewhere; False when that may still run."""
        return self._external_jobs.end(task)

    def cancel(self, task_id: str, *, by: Caller | None = None) -> Task:
        """Fail a waiting task (`CANCELLED`); request a held one or a parent, which cancels its children, to stop."""
        return self.change(task_id, lambda task, now: decisions.cancel(task, now, by))

    def retry(self, task_id: str, *, by: Caller | None = None) -> Task:
        """Retry a failed task for `by` with a fresh attempt budget, due at once; a purge resumes where it stopped."""

        def decide(task: Task, now: datetime) -> Task:
            if task.status is not Status.FAILURE:
                return task
            restarted, payload = self._restarted(task), task.task_payload
            return t.resubmit(
                task,
                now,
                payload=payload,
                synchronous=False,
                grace=timedelta(0),
                restarted=restarted,
                requested_by=by,
            )

        return self.change(task_id, decide)

    def adopt(self, task_id: str, attempt: int, child_id: str) -> Task:
        """Record a child on its parent's head, before the child is created; may be repeated."""

        def decide(task: Task, _now: datetime) -> Task:
            if child_id in t.held_by(task, attempt).children:
                return task
            return task.evolve(children=(*task.children, child_id))

        return self.change(task_id, decide)

    def dispatch(self, task_id: str, *, task: Task | None = None) -> Task:
        """Count one more dispatch and move `due_at` in one write, then send; the sweeper repeats a lost one."""
        return self._dispatched(
            self._change(task_id, lambda task, now: decisions.dispatch(task, now, self._policies.dispatch), task)
        )

    def reconcile(self, task_id: str) -> Task:
        """Do with a due task what the sweeper does: presume it lost, fail it, or dispatch it again."""
        task = self.get(task_id)
        ended = self._ended_attempt(task)

        def decide(task: Task, now: datetime) -> Task:
            return decisions.reconcile(task, now, self._policies, ended_attempt=ended)

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
        self._queue.send(task.task_id, task.dispatch_count)
        return task

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
            self._queue.send(after.task_id, after.dispatch_count)
        return after

    def _to_be_dispatched(self, task: Task, now: datetime) -> Task:
        """Count the dispatch of a background task; its caller runs a synchronous one, a poller one without queue."""
        if task.synchronous:
            return task
        if isinstance(self._queue, NoDispatchQueue):
            return task.evolve(due_at=now)
        return decisions.dispatch(task, now, self._policies.dispatch)

    def _ended_attempt(self, task: Task) -> int | None:
        """Return the number of the attempt if it is lost and nothing of it still runs; used before its loss is written.

        An attempt whose lease is renewed at this moment finds its job ended, and ends like any failed attempt.
        """
        lost = outcomes.is_lost(task, self.clock()) and self._external_jobs.end(task)
        return task.attempt_count if lost else None
