"""`WriteLoop` and `Leases`: read, decide, write conditionally, repeat when another writer was first."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from delegation.tasks.errors import (
    ChildrenPending,
    LeaseLost,
    RevisionConflict,
    StaleTask,
    StoreUnavailable,
    TaskError,
    TaskNotFound,
)
from delegation.tasks.life import decisions, declared, outcomes
from delegation.tasks.life import transitions as t
from delegation.tasks.life.decisions import Decision
from delegation.tasks.life.declared import AWAITS
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import AttemptError
from delegation.tasks.life.policy import Lease, Policies, is_same_lease
from delegation.tasks.stores.base import MOST_AT_ONCE, Adopt, Advance, Child, Revise
from delegation.tasks.work.hooks import DispatchMessages, TaskHooks, ignored
from delegation.tasks.work.reads import TaskReads, refuse_circles
from polaris_common.errors import DelegationError

RACES: Final = 20
"""Tries to write before an operation fails; each lost race means that another writer made progress."""

Decide = Callable[[Task, datetime], Decision]
"""A decision of `life.decisions` for one task at a moment."""


def other_lease(task: Task, owner: str | None) -> LeaseLost:
    """Return the refusal of a former holder whose attempt has the same number as the present one."""
    number = task.attempt_count
    return LeaseLost(
        task.task_id, attempt=number, current=number, status=task.status, owner=owner, holder=task.lease.owner
    )


@dataclass(frozen=True, slots=True)
class Written:
    """The head that was decided on, and the head after it; equal if nothing changed."""

    before: Task
    after: Task


@dataclass(frozen=True, slots=True)
class WriteLoop:
    """Changes tasks in one loop, and calls the hooks with what was written. Raises what the store raises. `held` is a
    task as its lease holder read it, `owner` a lease holder's name: with either, changes of a task under another lease
    raise LeaseLost."""

    reads: TaskReads
    policies: Policies
    clock: Callable[[], datetime]
    hooks: TaskHooks
    messages: DispatchMessages
    held: Task | None = None
    owner: str | None = None

    def change(self, task_id: str, decide: Decide, *, task: Task | None = None) -> Task:
        """Read, decide and write; repeat if another writer was first. A fresh `task` saves the first read."""
        return self.written(task_id, decide, task).after

    def written(self, task_id: str, decide: Decide, task: Task | None) -> Written:
        """Do as `change` does, and also return the head that was decided on."""
        current = task or self.reads.get(task_id)
        for _ in range(RACES):
            self.require_lease(current)
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
            change = self.step(current, *path)
            try:
                written = Written(current, self.reads.store.apply(change))
            except (StaleTask, RevisionConflict) as refused:
                if refused.stored is None:
                    raise TaskNotFound(task_id) from None
                current = refused.stored
                continue
            if reports:
                self.hooks.left_partly_done(written.after)
            for former, row in pairwise((current, *path)):
                self.hooks.counted(former, row)
                if row.is_terminal and row.version > current.version:
                    self.hooks.ended(row)
            if isinstance(change, Advance) and change.owed:
                self.hooks.announce(change.owed)
            ended = written.after.is_terminal and not current.is_terminal
            if ended and written.after.parent_id is not None:
                self._wake_parent(written.after)
            return written
        raise StoreUnavailable(f"task {task_id} kept changing, so nothing was written. Repeat the request")

    def hasten(self, task_id: str, code: str) -> Task:
        """Run a task now that waits for its next attempt after the error `code`, because its cause is gone. The sweeper
        or a worker finds it within a minute, admission at once. Any other task is returned unchanged."""
        task = self.change(task_id, lambda task, now: decisions.hasten(task, code, now))
        if task.is_queued:
            self.messages.wake()
        return task

    def report_partly_done(self, task: Task) -> None:
        """Report a FAILURE whose work had effects, once: the call whose write notes it reports it. For failures
        recorded by a process that cannot report. Other tasks are not reported."""

        def noted(current: Task, _now: datetime) -> Task:
            due = current.version == task.version and self._reports(None, current)
            return current.evolve(reported_version=current.version) if due else current

        if self._reports(None, task):
            written = self.written(task.task_id, noted, task)
            if written.after is not written.before:
                self.hooks.left_partly_done(written.after)

    def remove(self, head: Task) -> bool:
        """Delete a terminal task with its versions and return True; False if it was submitted again meanwhile."""
        try:
            return self.reads.store.remove(head)
        except (StaleTask, RevisionConflict):
            return False

    def require_lease(self, task: Task) -> None:
        """Raise LeaseLost if a task has another lease than this loop requires. The change itself refuses another
        attempt number (`transitions.held_by`)."""
        held, owner = self.held, self.owner
        if held is not None and (task.task_id, task.attempt_count) == (held.task_id, held.attempt_count):
            if not is_same_lease(task, held):
                raise other_lease(task, held.lease.owner)
        elif owner is not None and task.is_held and task.lease.owner != owner:
            raise other_lease(task, owner)

    def step(self, before: Task, *path: Task) -> Advance | Revise:
        """Return decided versions as one write, with the next revision and a new nonce."""
        nonce = self.hooks.nonce()
        *via, after = (step.evolve(revision=before.revision + 1, nonce=nonce) for step in path)
        return Revise(before, after) if after.version == before.version else Advance(before, after, tuple(via))

    def notifying(self, task: Task) -> Task:
        """Return a resubmitted task with its own channels and those of this deployment's tasks."""
        channels = tuple(dict.fromkeys((*task.notify, *self.policies.channels())))
        return task if channels == task.notify else task.evolve(notify=channels)

    def ended_attempt(self, task: Task) -> int | None:
        """Return the attempt's number if it is lost and its work has stopped; called before its loss is written. An
        attempt that renews its lease just now finds its job ended, and ends like any failed attempt."""
        lost = outcomes.is_lost(task, self.clock()) and self.hooks.external_jobs.end(task)
        return task.attempt_count if lost else None

    def _wake_parent(self, child: Task) -> None:
        """Run the parent that waits for this child now; if that fails, it runs by itself later."""
        with suppress(TaskError):
            parent = self.reads.find(child.parent_id or "")
            if parent is not None and parent.details.get(AWAITS) == child.task_id:
                self.hasten(parent.task_id, ChildrenPending.code)

    def _reports(self, before: Task | None, after: Task) -> bool:
        """Return whether this process has to report `after` as newly left partly done."""
        if self.hooks.left_partly_done is ignored or not after.is_left_partly_done:
            return False
        return after.reported_version != after.version and not (before and before.is_left_partly_done)

    def _next_run(self, ended: Task, now: datetime) -> tuple[Task, ...]:
        """Return what follows a run of a recurring task; a late cancellation cancels the next run. If this process
        cannot compute its time, the task fails: otherwise no run could end, and all would be repeated."""
        task_type = self.hooks.types.of(ended)
        restarted = declared.next_details(task_type.details.restarted(ended.details))
        at, grace, unknown = now, self.policies.dispatch.grace, None
        try:
            at = declared.Recurrence.of(ended).next_run(now)
        except DelegationError as error:
            unknown = f"the schedule has no next time: {error}. Submit the task again with another schedule"
        if ended.admission.lane is not None and task_type.is_housekeeping:
            # A release before 0.1.0 let it wait for a place.
            ended = ended.evolve(admission=ended.admission.evolve(lane=None))
        following = t.resubmit(
            ended,
            now,
            payload=declared.next_payload(ended),
            synchronous=False,
            grace=grace,
            restarted=restarted,
            at=at,
            deadline_ts=self.policies.deadline(ended.task_type, at),
        )
        following = self.notifying(following)
        if unknown is not None:
            return following, t.fail(following, now, code=t.BAD_SCHEDULE, summary=unknown)
        if not ended.cancel_requested:
            return (following,)
        return following, decisions.cancelled(following.evolve(cancelled_by=ended.cancelled_by), now)


class Leases:
    """Acquires, renews and ends attempts. Raises TaskNotFound, LeaseLost and the store's errors."""

    def __init__(self, writes: WriteLoop) -> None:
        self._writes = writes
        self._reads = writes.reads

    def acquire(
        self, task_id: str, owner: str, lease: Callable[[datetime], Lease], *, task: Task | None = None
    ) -> Task:
        """Try to make `owner` the holder and return the task, which `owner` holds if it is the `lease_owner`. A task
        that is not due, terminal, paused, or held by another process is returned unchanged (`decisions.claim`)."""
        task = task or self._reads.get(task_id)
        if task.lease.owner != owner and self._writes.hooks.pauses.start(task) is not None:
            return task
        ended, policies = self._writes.ended_attempt(task), self._writes.policies
        return self._writes.change(
            task_id,
            lambda task, now: decisions.claim(task, owner, now, policies, lease, ended_attempt=ended),
            task=task,
        )

    def heartbeat(self, task_id: str, attempt: int, lease: Callable[[datetime], Lease], **fields: Any) -> Task:
        """Renew the lease and set other fields of the head; write nothing if the lease already lasts that long."""

        def decide(task: Task, now: datetime) -> Task:
            renewed = t.renew(task, attempt, lease(now))
            return renewed.evolve(**fields) if fields else renewed

        return self._writes.change(task_id, decide)

    def note(self, task_id: str, attempt: int, *, details: Mapping[str, Any] = t.NOTHING, **fields: Any) -> Task:
        """Set details and fields of the head as the task's holder, without renewing the lease."""
        return self._writes.change(task_id, lambda task, _now: t.held_by(task, attempt).with_details(details, **fields))

    def start(self, task_id: str, attempt: int, *, effects: bool = False) -> Task:
        """Start the attempt's main work (RUNNING), with or without `effects` that cannot be undone."""
        return self._writes.change(task_id, lambda task, now: t.start(task, attempt, now, effects=effects))

    def succeed(
        self, task_id: str, attempt: int, summary: str, *, details: Mapping[str, Any] = t.NOTHING, **results: Any
    ) -> Task:
        """Record SUCCESS for the attempt; a repeat after an unclear answer returns the recorded one."""
        return self._writes.change(
            task_id, lambda task, now: decisions.succeed(task, attempt, now, summary, details=details, **results)
        )

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
            after = decisions.end_attempt(task, attempt, error, now, self._writes.policies, wait=wait)
            return after if after is task else after.with_details(details)

        return self._writes.change(task_id, decide)

    def await_child(self, task_id: str, attempt: int, error: AttemptError, child_id: str, *, wait: timedelta) -> Task:
        """End the attempt of a parent that waits for its children until this one has ended, or for `wait`. The child's
        end wakes it. If the child ended before the parent's wait was stored, this call wakes it."""
        after = self.end_attempt(task_id, attempt, error, wait=wait, details={AWAITS: child_id})
        if after.status is Status.RETRY_SCHEDULED:
            child = self._reads.find(child_id)
            if child is None or child.is_terminal:
                return self._writes.hasten(task_id, error.code)
        return after

    def hand_to_next_execution(self, task_id: str, attempt: int, owner: str, name: Callable[[int], str]) -> Task:
        """Let the execution of the next dispatch continue this attempt of `owner`; a repeat only sends again. It counts
        as a dispatch that started an attempt, so the base moves too."""

        def decide(task: Task, _now: datetime) -> Task:
            dispatches = t.held_by(task, attempt).dispatches.next().answered()
            if task.lease.owner != owner:
                return task
            return task.evolve(lease=task.lease.evolve(owner=name(dispatches.count)), dispatches=dispatches)

        return self._writes.messages.send_again(self._writes.change(task_id, decide))

    def adopt(self, task_id: str, attempt: int, child: Task, *, nameless: bool = False) -> Task:
        """Record a child before it is created, and return its first version; may be repeated. Raises DelegationError
        (WAITS_FOR_ITSELF) for a child that would wait for its parent."""
        return self.adopt_all(task_id, attempt, ((child, nameless),))[0]

    def adopt_all(self, task_id: str, attempt: int, children: Sequence[tuple[Task, bool]]) -> list[Task]:
        """Record children, each nameless or not, as `adopt` does: a write for every MOST_AT_ONCE."""
        current = self._reads.get(task_id)
        refuse_circles(self._reads, current, [child.task_id for child, nameless in children if not nameless])
        adopted: list[Task] = []
        for start in range(0, len(children), MOST_AT_ONCE):
            current, firsts = self._adopt_some(current, attempt, children[start : start + MOST_AT_ONCE])
            adopted += firsts
        return adopted

    def _adopt_some(
        self, current: Task, attempt: int, children: Sequence[tuple[Task, bool]]
    ) -> tuple[Task, list[Task]]:
        """Return the changed parent and the first versions of the children."""
        for _ in range(RACES):
            self._writes.require_lease(current)
            after, firsts = current, []
            for child, nameless in children:
                after, first = t.adopt(after, attempt, child, nameless=nameless)
                firsts.append(first)
            if after is not current:
                after = after.evolve(revision=current.revision + 1, nonce=self._writes.hooks.nonce())
            records = {
                first.task_id: Child(first.task_id, attempt, first.task_type, first.task_payload) for first in firsts
            }
            adopted, *more = records.values()
            try:
                return self._reads.store.apply(Adopt(current, after, adopted, tuple(more))), firsts
            except (StaleTask, RevisionConflict) as refused:
                if refused.stored is None:
                    raise TaskNotFound(current.task_id) from None
                current = refused.stored
        raise StoreUnavailable(f"task {current.task_id} kept changing, so nothing was written. Repeat the request")
