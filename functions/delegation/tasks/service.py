"""Tasks in use: acquire, heartbeat, start, finish, retry, cancel, dispatch. Decisions are elsewhere; this applies them.

Every method reads the head, lets a pure function decide, and writes conditionally; a lost race means reading and
deciding again, so a method returns what is true in the store, never what it hoped for.
"""

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from delegation.tasks import outcomes
from delegation.tasks import transitions as t
from delegation.tasks.errors import RevisionConflict, StaleTask, StoreUnavailable, TaskNotFound
from delegation.tasks.model import PlanSegment, Status, Task
from delegation.tasks.outcomes import AttemptError
from delegation.tasks.outside import NothingOutside, Outside
from delegation.tasks.policy import Policies
from delegation.tasks.store import Advance, Revise, TaskStore

_RACES: Final = 20
"""Tries before a head that never stands still is given up; each lost race means that somebody else made progress."""


Decide = Callable[[Task, datetime], Task | tuple[Task, ...]]
"""A pure decision: what becomes of a task at a moment."""


class DispatchQueue(Protocol):
    """Where a dispatch goes (DESIGN §4: a message holds only the task id and its dispatch number)."""

    def send(self, task_id: str, n: int) -> None:
        """Enqueue one dispatch; raises StoreUnavailable when the queue did not take it."""


class NoDispatchQueue:
    """DispatchQueue of a process that has no right to dispatch: what it makes due, the sweeper dispatches."""

    def send(self, task_id: str, n: int) -> None:
        """See DispatchQueue.send; always raises StoreUnavailable."""
        raise StoreUnavailable(f"dispatch {n} of task {task_id} cannot be sent from here: no queue is configured")


@dataclass(frozen=True, slots=True)
class Lease:
    """The deadlines of a holder: presumed lost from, and not expected to change before."""

    lost_not_before: datetime
    recheck_not_before: datetime

    @classmethod
    def until(cls, lost_not_before: datetime, now: datetime) -> "Lease":
        """A lease that ends at a known moment; others look again half way."""
        return cls(lost_not_before, now + (lost_not_before - now) / 2)

    @classmethod
    def lasting(cls, duration: timedelta, now: datetime) -> "Lease":
        """A lease of some duration from now."""
        return cls.until(now + duration, now)


def new_nonce() -> str:
    """A fresh nonce for one write; also fits a DynamoDB ClientRequestToken (36 characters)."""
    return str(uuid.uuid4())


class TaskService:
    """What handlers, engines and the command do with tasks.

    `clock` answers aware UTC datetimes. Methods raise TaskNotFound for unknown ids, LeaseLost for a stale attempt,
    StoreUnavailable and OutcomeUnknown as the store does.
    """

    def __init__(
        self,
        store: TaskStore,
        policies: Policies,
        queue: DispatchQueue,
        *,
        clock: Callable[[], datetime],
        nonce: Callable[[], str] = new_nonce,
        outside: Outside = NothingOutside(),  # noqa: B008 - it holds nothing
    ) -> None:
        self.store = store
        self.policies = policies
        self.queue = queue
        self.clock = clock
        self.nonce = nonce
        self.outside = outside
        self.draining = threading.Event()
        """Set when this process is about to end: runs are handed over at their next checkpoint."""

    def get(self, task_id: str) -> Task:
        """The task as it stands."""
        task = self.store.get(task_id)
        if task is None:
            raise TaskNotFound(task_id)
        return task

    def change(self, task_id: str, decide: Decide, *, task: Task | None = None) -> Task:
        """Read, decide, write; again when somebody else was faster. `task` saves the first read when it is fresh.

        `decide` returns the same task to write nothing, one with the same version to rewrite the head, one with the
        next version to make it, or several versions to make them all in one write.
        """
        current = task or self.get(task_id)
        for _ in range(_RACES):
            now = self.clock()
            wanted = decide(current, now)
            path = wanted if isinstance(wanted, tuple) else (wanted,)
            if path[-1] is current:
                return current
            if _recurs(path[-1]):
                # In the same write: a crash in between would end a recurring task for good.
                path = (*path, *self._next_run(path[-1], now))
            try:
                return self.store.apply(self.written(current, *path))
            except (StaleTask, RevisionConflict) as refused:
                if refused.stored is None:
                    raise TaskNotFound(task_id) from None
                current = refused.stored
        raise StoreUnavailable(f"task {task_id} kept changing; nothing was written")

    def _next_run(self, ended: Task, now: datetime) -> tuple[Task, ...]:
        """What follows a run of a recurring task; a cancellation that came too late for the run stops the next one."""
        following = t.recur(ended, now, grace=self.policies.dispatch.grace)
        if not ended.cancel_requested:
            return (following,)
        return following, t.fail(following, now, code=t.CANCELLED, summary="cancelled on request")

    def written(self, before: Task, *path: Task) -> Advance | Revise:
        """Decided versions as one write, with the next revision and a nonce of its own."""
        nonce = self.nonce()
        *via, after = (step.evolve(revision=before.revision + 1, nonce=nonce) for step in path)
        return Revise(before, after) if after.version == before.version else Advance(before, after, tuple(via))

    def acquire(
        self, task_id: str, owner: str, lease: Callable[[datetime], Lease], *, task: Task | None = None
    ) -> Task:
        """Try to make `owner` the holder, and return the task: `owner` holds it if `lease_owner` says so.

        A task that is not due, terminal, or held by somebody else comes back as it is. One whose holder is lost is
        retried on the spot, if what that one has running elsewhere could be ended. The owner of a task still held gets
        the same attempt again, with its lease renewed.
        """
        task = task or self.get(task_id)
        ended = self._ended(task)

        def decide(task: Task, now: datetime) -> Task | tuple[Task, ...]:
            if outcomes.is_lost(task, now) and task.attempt_count != ended:
                return task
            found = outcomes.after_loss(task, now, self.policies)
            again = claim(found, now)
            return again if found is task or again is found else (found, again)

        def claim(task: Task, now: datetime) -> Task:
            granted = lease(now)
            if task.is_held:
                if task.lease_owner != owner:
                    return task
                return t.renew(
                    task,
                    task.attempt_count,
                    lost_not_before=granted.lost_not_before,
                    recheck_not_before=granted.recheck_not_before,
                )
            if task.next_scheduled_run_ts is None or now < task.next_scheduled_run_ts:
                return task
            if task.cancel_requested and not task.children:
                return t.fail(task, now, code=t.CANCELLED, summary="cancelled on request")
            return t.acquire(
                task,
                owner,
                now,
                lost_not_before=granted.lost_not_before,
                recheck_not_before=granted.recheck_not_before,
            )

        return self.change(task_id, decide, task=task)

    def heartbeat(self, task_id: str, attempt: int, lease: Callable[[datetime], Lease], **fields: Any) -> Task:
        """Renew the lease, and set other fields of the head with it; writes nothing if it lasts that long already."""

        def decide(task: Task, now: datetime) -> Task:
            granted = lease(now)
            renewed = t.renew(
                task, attempt, lost_not_before=granted.lost_not_before, recheck_not_before=granted.recheck_not_before
            )
            return renewed.evolve(**fields) if fields else renewed

        return self.change(task_id, decide)

    def note(self, task_id: str, attempt: int, **fields: Any) -> Task:
        """Set fields of the head as the holder of the task (progress, engine, job run id); the lease stays."""
        return self.change(task_id, lambda task, _now: t.held_by(task, attempt).evolve(**fields))

    def publish_plan(self, task_id: str, attempt: int, segment: PlanSegment, *, seen: int, files_planned: int) -> Task:
        """Append `segment` to the plan if it still has the `seen` segments its author knew; else return what stands.

        `files_planned` is the total over all segments, this one included.
        So the first plan wins, and a paused planner that wakes up changes nothing (DESIGN §5).
        """

        def decide(task: Task, _now: datetime) -> Task:
            if len(t.held_by(task, attempt).plan_segments) != seen:
                return task
            return task.evolve(plan_segments=(*task.plan_segments, segment), files_planned=files_planned)

        return self.change(task_id, decide)

    def start(self, task_id: str, attempt: int, *, first_delete: bool) -> Task:
        """The attempt's main work begins (RUNNING)."""
        return self.change(task_id, lambda task, now: t.start(task, attempt, now, first_delete=first_delete))

    def succeed(self, task_id: str, attempt: int, summary: str, **results: Any) -> Task:
        """Record SUCCESS for the attempt; repeating it after an unclear answer returns the recorded one."""

        def decide(task: Task, now: datetime) -> Task | tuple[Task, ...]:
            if task.status is Status.SUCCESS and task.attempt_count == attempt:
                return task
            running = t.start(task, attempt, now)
            done = t.succeed(running, attempt, now, summary=summary, **results)
            return done if running is task else (running, done)

        return self.change(task_id, decide)

    def give_back(self, task_id: str, attempt: int, error: AttemptError, *, wait: timedelta | None = None) -> Task:
        """End the attempt with an error: RETRY_SCHEDULED (after `wait` if stated) or FAILURE, as policies decide."""

        def decide(task: Task, now: datetime) -> Task:
            if task.attempt_count == attempt and not task.is_held and task.error_code in {error.code, t.CANCELLED}:
                return task  # a repetition after a lost answer; a cancelled task ends as that, whatever the error
            return outcomes.after_error(t.held_by(task, attempt), error, now, self.policies, wait=wait)

        return self.change(task_id, decide)

    def cancel(self, task_id: str) -> Task:
        """FAILURE (`CANCELLED`) for a waiting task, a request to stop for a held one; terminal tasks stay.

        A parent is asked to stop too: it cancels its children and ends after them.
        """

        def decide(task: Task, now: datetime) -> Task:
            if task.is_terminal or task.cancel_requested:
                return task
            if task.is_held or task.children:
                return task.evolve(cancel_requested=True)
            return t.fail(task, now, code=t.CANCELLED, summary="cancelled on request")

        return self.change(task_id, decide)

    def retry(self, task_id: str) -> Task:
        """A FAILURE is SUBMITTED as it was asked for, due at once, with all its attempts again; other tasks stay.

        A purge that began to delete goes on with its plan, for only that can finish it (DESIGN §2).
        """

        def decide(task: Task, now: datetime) -> Task:
            if task.status is not Status.FAILURE:
                return task
            new_plan = task.first_delete_ts is None
            payload = task.task_payload
            return t.resubmit(task, now, payload=payload, synchronous=False, grace=timedelta(0), new_plan=new_plan)

        return self.change(task_id, decide)

    def dispatch(self, task_id: str, *, task: Task | None = None) -> Task:
        """Count one more dispatch and move `due_at` in one write, then send the message.

        A message that is lost after the write is made up for by the sweeper at `due_at`.
        """

        def decide(task: Task, now: datetime) -> Task:
            if not _awaits_dispatch(task):
                return task
            return t.dispatched(task, due_at=self.policies.dispatch.next_look(task, now))

        before = task or self.get(task_id)
        after = self.change(task_id, decide, task=before)
        if after.dispatch_count > before.dispatch_count and not after.is_terminal:
            self.queue.send(task_id, after.dispatch_count)
        return after

    def look_again(self, task_id: str) -> Task:
        """What the sweeper does with a task that is due: presume lost, give up dispatching, or dispatch again.

        Loss and dispatch are one write. A task that is not due (any more) comes back untouched, and so does a lost one
        while what its attempt has running elsewhere cannot be ended.
        """
        sent: list[int] = []
        before = self.get(task_id)
        ended = self._ended(before)

        def decide(task: Task, now: datetime) -> Task:
            sent.clear()
            if task.due_at is None or now < task.due_at:
                return task
            if outcomes.is_lost(task, now) and task.attempt_count != ended:
                return task
            found = outcomes.after_loss(task, now, self.policies)
            if not _awaits_dispatch(found):
                return found
            if found.next_scheduled_run_ts is not None and now < found.next_scheduled_run_ts:
                return found
            if self.policies.dispatch.exhausted(found):
                reason = f"{found.dispatch_count - found.dispatch_base} dispatches led to nothing"
                return t.fail(found, now, code=t.DISPATCH_FAILED, summary=reason) if found is task else found
            sent.append(found.dispatch_count + 1)
            return t.dispatched(found, due_at=self.policies.dispatch.next_look(found, now))

        after = self.change(task_id, decide, task=before)
        if sent:
            self.queue.send(task_id, sent[0])
        return after

    def _ended(self, task: Task) -> int | None:
        """The attempt, if it is lost and nothing of it is left running; before its loss is written, or never would be.

        A holder that renews its lease at this very moment finds its job ended, and is given back like any other.
        """
        return task.attempt_count if outcomes.is_lost(task, self.clock()) and self.outside.end(task) else None

    def adopt(self, task_id: str, attempt: int, child_id: str) -> Task:
        """Note a child on its parent's head, before the child is created; repeats are harmless."""

        def decide(task: Task, _now: datetime) -> Task:
            if child_id in t.held_by(task, attempt).children:
                return task
            return task.evolve(children=(*task.children, child_id))

        return self.change(task_id, decide)

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

        after = self.change(task_id, decide)
        self.queue.send(task_id, after.dispatch_count)
        return after


def _recurs(task: Task) -> bool:
    return task.is_terminal and task.recurrence_seconds is not None and task.error_code != t.CANCELLED


def _awaits_dispatch(task: Task) -> bool:
    return task.status in {Status.SUBMITTED, Status.RETRY_SCHEDULED}
