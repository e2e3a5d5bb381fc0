"""Accepting a request: one transaction binds its key, if it has one, to its task (DESIGN §3)."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from delegation.idempotency import record as records
from delegation.idempotency.errors import KeyConflict, RecordConflict, RequestInProgress, TaskConflict
from delegation.idempotency.record import KeyState, Record, Scope, StoredAnswer
from delegation.idempotency.store import IdempotencyStore, RecordWrite, start_expiry
from delegation.tasks.errors import RevisionConflict, StaleTask, StoreUnavailable, TaskExists
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Advance, Create, Expect, TaskChange, TaskStore
from delegation.tasks.stores.history import first_outcome

_RACES: Final = 20


class Relation(StrEnum):
    """How a request relates to the task that stands under its id."""

    ATTACH = "attach"
    REPLAY = "replay"
    RESUBMIT = "resubmit"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A mutation to be accepted at most once.

    `first` is version 1 of its task, `relate` judges one that stands already, `again` makes the next version of a
    terminal one. `answer_now` is the answer known at acceptance (202), None for a synchronous request, whose answer is
    `answer_of` its outcome.
    """

    scope: Scope | None
    payload_hash: str
    first: Task
    relate: Callable[[Task], Relation]
    conflict: Callable[[Task], str]
    again: Callable[[Task, datetime], Task]
    answer_now: Callable[[Task], StoredAnswer] | None
    answer_of: Callable[[Task], StoredAnswer]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The request was answered before: this is that answer."""

    answer: StoredAnswer
    task_id: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request stands; `submitted` says that it made the task SUBMITTED, otherwise it attached to it.

    `bound_version` is the version from which on the first terminal one is the outcome.
    """

    task: Task
    submitted: bool
    bound_version: int
    record: Record | None


class Acceptance:
    """Accepts requests over a task store and a record store that share transactions."""

    def __init__(
        self,
        tasks: TaskStore,
        store: IdempotencyStore,
        *,
        lifetime: timedelta,
        clock: Callable[[], datetime],
        nonce: Callable[[], str],
    ) -> None:
        self._tasks = tasks
        self._store = store
        self._lifetime = lifetime
        self._clock = clock
        self._nonce = nonce

    def known(
        self, scope: Scope | None, payload_hash: str, answer_of: Callable[[Task], StoredAnswer]
    ) -> Replayed | None:
        """The answer to a repeated request, before anything is looked up for it; None when it has to be accepted.

        Raises KeyConflict and RequestInProgress.
        """
        settled = self._settle(scope, payload_hash, answer_of)
        return settled if isinstance(settled, Replayed) else None

    def accept(self, request: IdempotentRequest) -> Accepted | Replayed:
        """Accept, attach or replay a request.

        Raises KeyConflict, RequestInProgress, TaskConflict, and what the stores raise; after any of them nothing is
        half done: key and task are written together or not at all.
        """
        for _ in range(_RACES):
            replaces = self._settle(request.scope, request.payload_hash, request.answer_of)
            if isinstance(replaces, Replayed):
                return replaces
            change, submitted = self._change(request)
            try:
                return self._write(request, change, replaces, submitted=submitted)
            except (TaskExists, StaleTask, RevisionConflict, RecordConflict):
                continue
        raise StoreUnavailable(f"task {request.first.task_id} kept changing; nothing was written")

    def outcome(self, task_id: str, bound_version: int) -> Task | None:
        """The first terminal version of a task from `bound_version` on, None while there is none."""
        return first_outcome(self._tasks, task_id, bound_version)

    def conclude(self, accepted: Accepted, outcome: Task, answer_of: Callable[[Task], StoredAnswer]) -> StoredAnswer:
        """The answer of a synchronous request's outcome, stored unless it is a 5xx; whoever stores it first decides."""
        answer = answer_of(outcome)
        if accepted.record is None or not answer.is_final:
            return answer
        return self._finalize(accepted.record, answer)

    def _settle(
        self, scope: Scope | None, payload_hash: str, answer_of: Callable[[Task], StoredAnswer]
    ) -> Replayed | Record | None:
        """The replay of a record, or the record that the request may replace (None: there is none)."""
        record = self._store.get(scope.id) if scope else None
        outcome: StoredAnswer | None = None
        if record is not None and record.state is records.State.IN_PROGRESS:
            terminal = self.outcome(record.task_id, record.bound_version)
            outcome = answer_of(terminal) if terminal else None
        match records.judge(record, payload_hash, outcome, self._clock()):
            case KeyState.CONFLICT:
                raise KeyConflict
            case KeyState.IN_PROGRESS if record:
                raise RequestInProgress(record.task_id)
            case KeyState.REPLAY if record and record.answer:
                self._start_expiry(record)
                return Replayed(record.answer, record.task_id)
            case KeyState.FINALIZE if record and outcome:
                return Replayed(self._finalize(record, outcome), record.task_id)
            case _:
                return record

    def _finalize(self, record: Record, answer: StoredAnswer) -> StoredAnswer:
        final = records.finalize(record, answer, self._clock(), lifetime=self._lifetime, nonce=self._nonce())
        try:
            return self._store.put(RecordWrite(final, replaces=record)).answer or answer
        except RecordConflict as conflict:
            stored = conflict.stored
            return (stored.answer if stored and stored.payload_hash == record.payload_hash else None) or answer

    def _start_expiry(self, record: Record) -> None:
        if record.expires_at is None and self.outcome(record.task_id, record.bound_version) is not None:
            start_expiry(self._store, record, self._clock(), lifetime=self._lifetime, nonce=self._nonce())

    def _change(self, request: IdempotentRequest) -> tuple[TaskChange, bool]:
        head = self._tasks.get(request.first.task_id)
        if head is None:
            return Create(request.first), True
        match request.relate(head):
            case Relation.CONFLICT:
                raise TaskConflict(head.task_id, request.conflict(head))
            case Relation.RESUBMIT:
                again = request.again(head, self._clock())
                return Advance(head, again.evolve(revision=head.revision + 1, nonce=self._nonce())), True
            case Relation.ATTACH | Relation.REPLAY:
                return Expect(head), False

    def _write(
        self, request: IdempotentRequest, change: TaskChange, replaces: Record | None, *, submitted: bool
    ) -> Accepted:
        target = change.after if isinstance(change, Advance) else change.task  # type: ignore[union-attr]
        if request.scope is None:
            task = target if isinstance(change, Expect) else self._tasks.apply(change)
            return Accepted(task, submitted, target.version, None)
        record = records.bind(
            request.scope,
            payload_hash=request.payload_hash,
            task=target,
            answer=request.answer_now(target) if request.answer_now else None,
            now=self._clock(),
            nonce=self._nonce(),
            created_at=replaces.created_at if replaces and not replaces.is_expired(self._clock()) else None,
        )
        task = self._store.accept(change, RecordWrite(record, replaces))
        return Accepted(task, submitted, target.version, record)
