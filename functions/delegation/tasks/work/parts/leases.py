"""`Leases`: what the holder of a task does with it, from acquiring its lease to the end of the attempt."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from delegation.tasks.errors import RevisionConflict, StaleTask, StoreUnavailable, TaskNotFound
from delegation.tasks.life import decisions
from delegation.tasks.life import transitions as t
from delegation.tasks.life.decisions import Decision
from delegation.tasks.life.declared.recurrence import AWAITS
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import AttemptError
from delegation.tasks.stores import results as kept_results
from delegation.tasks.stores.base import MOST_AT_ONCE, Adopt, Child
from delegation.tasks.work.parts.reads import refuse_circles
from delegation.tasks.work.parts.writes import RACES, WriteLoop


class Leases:
    """Acquires, renews and ends attempts; raises TaskNotFound, LeaseLost and the store's errors."""

    def __init__(self, writes: WriteLoop) -> None:
        self._writes = writes
        self._reads = writes.reads

    def acquire(
        self, task_id: str, owner: str, lease: Callable[[datetime], Lease], *, task: Task | None = None
    ) -> Task:
        """Try to make `owner` the holder, and return the task: `owner` holds it if it is the `lease_owner`.

        A task that is not due, terminal, paused, or held by another process is returned unchanged (`decisions.claim`).
        """
        task = task or self._reads.get(task_id)
        if task.lease.owner != owner and self._writes.hooks.pauses.start(task) is not None:
            return task
        ended, policies = self._writes.ended_attempt(task), self._writes.policies

        def decide(task: Task, now: datetime) -> Decision:
            return decisions.claim(task, owner, now, policies, lease, ended_attempt=ended)

        return self._writes.change(task_id, decide, task=task)

    def heartbeat(self, task_id: str, attempt: int, lease: Callable[[datetime], Lease], **fields: Any) -> Task:
        """Renew the lease and set other fields of the head; writes nothing if the lease already lasts that long."""

        def decide(task: Task, now: datetime) -> Task:
            renewed = t.renew(task, attempt, lease(now))
            return renewed.evolve(**fields) if fields else renewed

        return self._writes.change(task_id, decide)

    def note(self, task_id: str, attempt: int, *, details: Mapping[str, Any] = t.NOTHING, **fields: Any) -> Task:
        """Set details and fields of the head as the holder of the task; the lease stays."""
        return self._writes.change(task_id, lambda task, _now: t.held_by(task, attempt).with_details(details, **fields))

    def start(self, task_id: str, attempt: int, *, effects: bool = False) -> Task:
        """Begin the attempt's main work (RUNNING), with `effects` that cannot be undone or without."""
        return self._writes.change(task_id, lambda task, now: t.start(task, attempt, now, effects=effects))

    def pending_result(self, task: Task, result: str) -> str:
        """Return what the record holds of a result.

        Raises DelegationError (RESULT_TOO_LARGE), and what the record bucket raises.
        """
        return kept_results.pending(self._reads.results, task, result)

    def succeed(
        self, task_id: str, attempt: int, summary: str, *, details: Mapping[str, Any] = t.NOTHING, **results: Any
    ) -> Task:
        """Record SUCCESS for the attempt; a repeat after an unclear answer returns the recorded one."""

        def decide(task: Task, now: datetime) -> Decision:
            return decisions.succeed(task, attempt, now, summary, details=details, **results)

        return self._writes.change(task_id, decide)

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
        """End the attempt of a parent that waits for its children until this one has ended, or for `wait`.

        The child's end wakes it, or this call if that was before the parent's waiting was stored.
        """
        after = self.end_attempt(task_id, attempt, error, wait=wait, details={AWAITS: child_id})
        if after.status is Status.RETRY_SCHEDULED:
            child = self._reads.find(child_id)
            if child is None or child.is_terminal:
                return self._writes.hasten(task_id, error.code)
        return after

    def hand_to_next_execution(self, task_id: str, attempt: int, owner: str, name: Callable[[int], str]) -> Task:
        """Let the execution of the next dispatch continue this attempt of `owner`; a repeat only sends again.

        It counts as a dispatch that started an attempt, so the base moves too.
        """

        def decide(task: Task, _now: datetime) -> Task:
            dispatches = t.held_by(task, attempt).dispatches.next().answered()
            if task.lease.owner != owner:
                return task
            return task.evolve(lease=task.lease.evolve(owner=name(dispatches.count)), dispatches=dispatches)

        return self._writes.messages.send_again(self._writes.change(task_id, decide))

    def adopt(self, task_id: str, attempt: int, child: Task, *, nameless: bool = False) -> Task:
        """Record a child before it is created, and return its first version; see `transitions.adopt`.

        It may be repeated. Raises DelegationError (WAITS_FOR_ITSELF) for a child that would wait for its parent.
        """
        return self.adopt_all(task_id, attempt, ((child, nameless),))[0]

    def adopt_all(self, task_id: str, attempt: int, children: Sequence[tuple[Task, bool]]) -> list[Task]:
        """Record children, each nameless or not, as `adopt` does one: a write for every MOST_AT_ONCE."""
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
        """Return the parent as it is then, and the first versions of the children."""
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
            one, *more = records.values()
            try:
                return self._reads.store.apply(Adopt(current, after, one, tuple(more))), firsts
            except (StaleTask, RevisionConflict) as refused:
                if refused.stored is None:
                    raise TaskNotFound(current.task_id) from None
                current = refused.stored
        raise StoreUnavailable(f"task {current.task_id} kept changing; nothing was written")
