"""`TaskSubmission`: makes, stores and sends tasks, including those of requests."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from delegation.tasks.errors import RevisionConflict, StaleTask, StoreUnavailable, TaskExists, TaskNotFound
from delegation.tasks.life import declared
from delegation.tasks.life import transitions as t
from delegation.tasks.life.lanes import Lane, Traits
from delegation.tasks.life.model import Caller, LanePlace, Status, Task
from delegation.tasks.stores.base import MOST_AT_ONCE, Child, Create
from delegation.tasks.work.hooks import NoDispatchQueue
from delegation.tasks.work.writes import RACES, WriteLoop
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.tasks.options import AskedTask


MOST_PAYLOAD: Final = 131_072
"""Bytes of a task's payload, which every version of the task holds (see `tasks.work.reads` on item sizes)."""


class TaskSubmission:
    """Makes, stores and sends tasks. Raises DelegationError (TASK_PAYLOAD_TOO_LARGE) and the store's errors."""

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
        """Return version 1 of a task due `at` or now, not stored; if this process dispatches it now, that is counted.
        With limits it waits for admission instead; a synchronous one, which its caller runs, is admitted. `traits`
        replace those of its payload. `deadline` is its behavior's; a property of the task type overrides it. `callback`
        names the callback for its end. Raises DelegationError (TASK_PAYLOAD_TOO_LARGE)."""
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
        it continues where it stopped, `deadline_ts` when it must be done; None leaves both to its type's rules and
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
        raise StoreUnavailable(f"task {first.task_id} kept changing, so nothing was written. Repeat the request")

    def create_all(
        self, firsts: Sequence[Task], *, rerun: bool = False, moved: bool = False
    ) -> list[tuple[Task, bool]]:
        """Store and dispatch tasks as `create` does, with a write for every MOST_AT_ONCE where none exists."""
        created: list[tuple[Task, bool]] = []
        for start in range(0, len(firsts), MOST_AT_ONCE):
            some = firsts[start : start + MOST_AT_ONCE]
            if len({first.task_id for first in some}) == len(some) and self._writes.reads.store.create_all(some):
                created += [(self._writes.messages.send(first), True) for first in some]
            else:
                created += [self.create(first, rerun=rerun, moved=moved) for first in some]
        return created

    def create_child(self, parent: Task, child: Child) -> Task:
        """Create an adopted child that is absent, or return the existing one."""
        first = self.first(
            task_id=child.task_id, task_type=child.task_type, payload=child.task_payload, parent_id=parent.task_id
        )
        return self.create(first)[0]

    def requested(self, read: "Callable[[], AskedTask]", *, synchronous: bool, requested_by: Caller) -> Task:
        """Return version 1 of a request's task, not stored. `read` may load a table, so it must cache its result; it is
        called only for a request that its key's record does not answer."""
        asked = read()
        return self.first(
            task_id=asked.task_id,
            task_type=asked.task_type,
            payload=asked.payload,
            payload_version=asked.payload_version,
            synchronous=synchronous,
            requested_by=requested_by,
            traits=asked.traits,
            callback=asked.callback,
            deadline=asked.deadline,
        )

    def requested_again(
        self, read: "Callable[[], AskedTask]", stored: Task, now: datetime, *, synchronous: bool, requested_by: Caller
    ) -> Task | None:
        """Return the next version of a stored task that ended, not stored. None if its outcome answers the request."""
        asked = read()
        if not stored.is_terminal or asked.replays(stored):
            return None
        return self.resubmitted(
            stored,
            now,
            payload=asked.payload,
            payload_version=asked.payload_version,
            synchronous=synchronous,
            resumes=asked.resumes(stored),
            requested_by=requested_by,
            traits=asked.traits,
            callback=asked.callback,
        )

    @staticmethod
    def obstacle(read: "Callable[[], AskedTask]", stored: Task) -> str | None:
        return read().obstacle(stored)

    def _again(self, stored: Task, first: Task, *, resumes: bool, rerun: bool, moved: bool) -> Task:
        """Return an existing task as its repeated submission wants it; the same task if nothing changes."""
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
        """Queue a task for its admission, or count its dispatch if no limits apply to it. A synchronous task (its
        caller runs it) and one of a process without queue (a poller runs it) need no dispatch."""
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
            f"the payload of a {task_type} has {size:,} bytes, more than {MOST_PAYLOAD:,}. Store large values "
            "elsewhere and pass their names",
            code="TASK_PAYLOAD_TOO_LARGE",
        )
    return payload
