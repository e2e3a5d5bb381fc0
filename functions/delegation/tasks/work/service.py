"""Tasks in use: acquire, heartbeat, start, finish, retry, cancel, dispatch. `life` decides; this reads and writes.

Every method reads the head, lets a pure function decide, and writes conditionally; a lost race means reading and
deciding again, so a method returns what is true in the store, never what it hoped for.
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
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import AttemptError
from delegation.tasks.stores.base import Create
from delegation.tasks.work.changes import RACES, TaskChanges, Written
from delegation.tasks.work.dispatch_queue import NoDispatchQueue


class TaskService(TaskChanges):
    """What handlers, engines and the command do with tasks.

    Methods raise TaskNotFound for unknown ids, LeaseLost for a stale attempt, StoreUnavailable and OutcomeUnknown as
    the store does.
    """

    def due_after(self, moment: datetime) -> datetime:
        """When the sweeper looks at a task that waits until `moment`."""
        return moment + self._policies.dispatch.grace

    # ---- new tasks

    def first(self, *, task_id: str, task_type: str, payload: str, synchronous: bool = False, **fields: Any) -> Task:
        """Version 1 of a task that is due now, its first dispatch counted if this process dispatches it; not stored."""
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
        self, task: Task, now: datetime, *, payload: str, synchronous: bool = False, goes_on: bool | None = None
    ) -> Task:
        """The next version of a terminal task that is submitted again, as `first` makes version 1; not stored.

        Whether it goes on where it stopped is for the caller to say, or for the rules of its kind.
        """
        again = t.resubmit(
            task,
            now,
            payload=payload,
            synchronous=synchronous,
            grace=self._policies.dispatch.grace,
            anew=self._anew(task, goes_on=goes_on),
        )
        return self._to_be_dispatched(again, now)

    def create(self, first: Task, *, goes_on: bool = True) -> tuple[Task, bool]:
        """Store version 1 of a task and dispatch it, or find the one of its id; whether this call submitted it.

        One that ended in FAILURE is submitted again.
        """
        for _ in range(RACES):
            try:
                return self.send(self._store.apply(Create(first))), True
            except TaskExists as exists:
                stored = exists.stored
            if stored is None:
                raise TaskNotFound(first.task_id)
            if stored.status is not Status.FAILURE:
                return stored, False
            again = self.resubmitted(stored, self.clock(), payload=first.task_payload, goes_on=goes_on)
            try:
                return self.send(self._store.apply(self._write(stored, again))), True
            except (StaleTask, RevisionConflict):
                continue
        raise StoreUnavailable(f"task {first.task_id} kept changing; nothing was written")

    def start_held(self, first: Task, owner: str, lease: Lease) -> Task | None:
        """Store a task as RUNNING, held by `owner`, so that nobody else picks it up; None when its id is taken."""
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
        """Send the dispatch that the last write counted; one that is lost is sent again by the sweeper at `due_at`."""
        if task.dispatch_count and decisions.awaits_dispatch(task):
            with suppress(StoreUnavailable):
                self._queue.send(task.task_id, task.dispatch_count)
        return task

    # ---- changes

    def acquire(
        self, task_id: str, owner: str, lease: Callable[[datetime], Lease], *, task: Task | None = None
    ) -> Task:
        """Try to make `owner` the holder, and return the task: `owner` holds it if `lease_owner` says so.

        A task that is not due, terminal, or held by somebody else comes back as it is (see `decisions.claim`).
        """
        task = task or self.get(task_id)
        ended = self._ended_attempt(task)

        def decide(task: Task, now: datetime) -> Decision:
            return decisions.claim(task, owner, now, self._policies, lease, ended_attempt=ended)

        return self.change(task_id, decide, task=task)

    def heartbeat(self, task_id: str, attempt: int, lease: Callable[[datetime], Lease], **fields: Any) -> Task:
        """Renew the lease, and set other fields of the head with it; writes nothing if it lasts that long already."""

        def decide(task: Task, now: datetime) -> Task:
            renewed = t.renew(task, attempt, lease(now))
            return renewed.evolve(**fields) if fields else renewed

        return self.change(task_id, decide)

    def note(self, task_id: str, attempt: int, *, details: Mapping[str, Any] = t.NOTHING, **fields: Any) -> Task:
        """Set details and fields of the head as the holder of the task; the lease stays."""
        return self.change(task_id, lambda task, _now: t.held_by(task, attempt).with_details(details, **fields))

    def start(self, task_id: str, attempt: int, *, effects: bool = False) -> Task:
        """The attempt's main work begins (RUNNING), from here on with effects that cannot be undone if so said."""
        return self.change(task_id, lambda task, now: t.start(task, attempt, now, effects=effects))

    def succeed(
        self, task_id: str, attempt: int, summary: str, *, details: Mapping[str, Any] = t.NOTHING, **results: Any
    ) -> Task:
        """Record SUCCESS for the attempt; repeating it after an unclear answer returns the recorded one."""

        def decide(task: Task, now: datetime) -> Decision:
            return decisions.succeed(task, attempt, now, summary, details=details, **results)

        return self.change(task_id, decide)

    def give_back(self, task_id: str, attempt: int, error: AttemptError, *, wait: timedelta | None = None) -> Task:
        """End the attempt with an error: RETRY_SCHEDULED (after `wait` if stated) or FAILURE, as policies decide."""

        def decide(task: Task, now: datetime) -> Task:
            return decisions.give_back(task, attempt, error, now, self._policies, wait=wait)

        return self.change(task_id, decide)

    def presume_lost(self, task_id: str) -> Task:
        """Record the loss of an attempt whose lease is over and of which nothing runs any more; else change nothing."""
        return self.change(task_id, lambda task, now: outcomes.after_loss(task, now, self._policies))

    def end_external_jobs(self, task: Task) -> bool:
        """End what the task's attempt has running elsewhere; False when that is not settled."""
        return self._external_jobs.end(task)

    def cancel(self, task_id: str) -> Task:
        """FAILURE (`CANCELLED`) for a waiting task, a request to stop for a held one; terminal tasks stay.

        A parent is asked to stop too: it cancels its children and ends after them.
        """
        return self.change(task_id, decisions.cancel)

    def retry(self, task_id: str) -> Task:
        """Retry a failed task with a fresh attempt budget, due at once; other tasks stay.

        One that its kind's rules let go on does so: a purge resumes where it stopped.
        """

        def decide(task: Task, now: datetime) -> Task:
            if task.status is not Status.FAILURE:
                return task
            anew, payload = self._anew(task), task.task_payload
            return t.resubmit(task, now, payload=payload, synchronous=False, grace=timedelta(0), anew=anew)

        return self.change(task_id, decide)

    def adopt(self, task_id: str, attempt: int, child_id: str) -> Task:
        """Note a child on its parent's head, before the child is created; repeats are harmless."""

        def decide(task: Task, _now: datetime) -> Task:
            if child_id in t.held_by(task, attempt).children:
                return task
            return task.evolve(children=(*task.children, child_id))

        return self.change(task_id, decide)

    # ---- dispatching

    def dispatch(self, task_id: str, *, task: Task | None = None) -> Task:
        """Count one more dispatch and move `due_at` in one write, then send the message.

        A message that is lost after the write is made up for by the sweeper at `due_at`.
        """
        return self._dispatched(
            self._change(task_id, lambda task, now: decisions.dispatch(task, now, self._policies.dispatch), task)
        )

    def reconcile(self, task_id: str) -> Task:
        """Do with a due task what the sweeper does: presume it lost, give up dispatching, or dispatch it again."""
        task = self.get(task_id)
        ended = self._ended_attempt(task)

        def decide(task: Task, now: datetime) -> Task:
            return decisions.reconcile(task, now, self._policies, ended_attempt=ended)

        return self._dispatched(self._change(task_id, decide, task))

    def hand_to_next_execution(self, task_id: str, attempt: int, owner: str, name: Callable[[int], str]) -> Task:
        """Let the execution of the next dispatch go on with this attempt of `owner` (DESIGN §4, long runs).

        It counts as a dispatch that led to something, so `dispatch_base` moves along. Once handed on, a repeat only
        sends the message again.
        """

        def decide(task: Task, _now: datetime) -> Task:
            following = t.held_by(task, attempt).dispatch_count + 1
            if task.lease_owner != owner:
                return task
            return task.evolve(lease_owner=name(following), dispatch_count=following, dispatch_base=following)

        return self.send_again(self.change(task_id, decide))

    def send_again(self, task: Task) -> Task:
        """Repeat the last dispatch that was counted; raises StoreUnavailable when the queue did not take it."""
        self._queue.send(task.task_id, task.dispatch_count)
        return task

    # ---- upkeep

    def remove(self, head: Task) -> bool:
        """Remove a terminal task with its versions, unless it was submitted again meanwhile; whether it was removed."""
        try:
            return self._store.remove(head)
        except (StaleTask, RevisionConflict):
            return False

    def forget(self, task_id: str, below: int) -> int:
        """Remove versions below `below`, never the newest; how many."""
        return self._store.forget(task_id, below)

    def _anew(self, task: Task, *, goes_on: bool | None = None) -> Mapping[str, Any] | None:
        rules = self._rules(task)
        goes_on = rules.goes_on(task) if goes_on is None else goes_on
        return None if goes_on else rules.anew(task.details)

    def _dispatched(self, written: Written) -> Task:
        after = written.after
        if after.dispatch_count > written.before.dispatch_count and not after.is_terminal:
            self._queue.send(after.task_id, after.dispatch_count)
        return after

    def _to_be_dispatched(self, task: Task, now: datetime) -> Task:
        """A background task is dispatched in the write that submits it; a synchronous one is run by its caller first.

        Without a queue nobody is told: the task is due for whoever looks.
        """
        if task.synchronous:
            return task
        if isinstance(self._queue, NoDispatchQueue):
            return task.evolve(due_at=now)
        return decisions.dispatch(task, now, self._policies.dispatch)

    def _ended_attempt(self, task: Task) -> int | None:
        """The attempt, if it is lost and nothing of it is left running; before its loss is written, or never would be.

        A holder that renews its lease at this very moment finds its job ended, and is given back like any other.
        """
        lost = outcomes.is_lost(task, self.clock()) and self._external_jobs.end(task)
        return task.attempt_count if lost else None
