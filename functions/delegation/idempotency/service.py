"""Accepting a request (docs/architecture/requests.md)."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final

from delegation.idempotency.keys import (
    RULE,
    KeyConflict,
    KeyState,
    RequestInProgress,
    ResubmitsExhausted,
    ResubmittedTooSoon,
    Scope,
    State,
    task_conflict,
)
from delegation.idempotency.store import (
    IdempotencyStore,
    Record,
    RecordConflict,
    RecordWrite,
    ResubmitPolicy,
    StoredAnswer,
    finalize,
    start_expiry,
)
from delegation.tasks.errors import RevisionConflict, StaleTask, StoreUnavailable, TaskExists
from delegation.tasks.life.model import Task
from delegation.tasks.life.notifications import joined
from delegation.tasks.life.transitions import REST
from delegation.tasks.stores.base import Advance, Create, Expect, Revise, TaskChange, TaskStore
from delegation.tasks.work.reads import first_outcome

_RACES: Final = 20
_RESUBMITS: Final = ResubmitPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentRequest:
    """A request to be accepted at most once. `payload_hash` returns the payload's hash under an identity rule.
    `answer_now` makes the answer at acceptance (202); it is None for a synchronous request, which gets `answer_of` the
    outcome. The rest is called only if the key's record does not answer the request: `first` returns version 1 of the
    task, `obstacle` why the request conflicts with the stored task of its id, `again` the next version of a stored
    task, None if the request gets that task's outcome."""

    scope: Scope | None
    payload_hash: Callable[[int], str]
    answer_now: Callable[[Task], StoredAnswer] | None
    answer_of: Callable[[Task], StoredAnswer]
    first: Callable[[], Task]
    obstacle: Callable[[Task], str | None]
    again: Callable[[Task, datetime], Task | None]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The stored answer of a repeated request."""

    answer: StoredAnswer
    task_id: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request was accepted; `submitted` if it made the task SUBMITTED, otherwise it attached to it. The first
    terminal version from `bound_version` on is the outcome."""

    task: Task
    submitted: bool
    bound_version: int
    record: Record | None


class Acceptance:
    """Accepts requests; one transaction writes the task and the record of the request's key, if it has one."""

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

    def accept(self, request: IdempotentRequest) -> Accepted | Replayed:
        """Accept, attach or replay a request; key and task are written together or not at all. Raises KeyConflict,
        RequestInProgress, ResubmittedTooSoon, ResubmitsExhausted, IdempotencyError (TASK_EXISTS), the errors of the
        request's functions and of the stores."""
        known = self._settle(request)
        if isinstance(known, Replayed):
            return known
        first = request.first()
        for _ in range(_RACES):
            replaces = self._settle(request)  # again: loading the table may have taken long
            if isinstance(replaces, Replayed):
                return replaces
            change, submitted = self._change(request, first)
            if isinstance(change, Advance):
                self._check_resubmit(replaces, change.before)
                self._check_repeat(change)
            try:
                return self._write(request, change, replaces, submitted=submitted)
            except (TaskExists, StaleTask, RevisionConflict, RecordConflict):
                continue
        raise StoreUnavailable(f"task {first.task_id} kept changing, so nothing was written. Repeat the request")

    def outcome(self, task_id: str, bound_version: int) -> Task | None:
        """Return the first terminal version of a task from `bound_version` on, None without one."""
        return first_outcome(self._tasks, task_id, bound_version)

    def conclude(self, accepted: Accepted, outcome: Task, answer_of: Callable[[Task], StoredAnswer]) -> StoredAnswer:
        """Return the answer of a synchronous request, stored unless it is a 5xx; the first stored answer wins."""
        answer = answer_of(outcome)
        if accepted.record is None or not answer.is_final:
            return answer
        return self._finalize(accepted.record, answer)

    def _settle(self, request: IdempotentRequest) -> Replayed | Record | None:
        if request.scope is None:
            return None
        record = self._store.get(request.scope.id)
        if record is None:
            return None
        match record.found_by(request.payload_hash, self._clock()):
            case KeyState.CONFLICT:
                raise KeyConflict
            case KeyState.REPLAY if record.answer:
                self._start_expiry(record)
                return Replayed(record.answer, record.task_id)
            case KeyState.HELD:
                return self._reconciled(request, record)
            case _:
                return record

    def _reconciled(self, request: IdempotentRequest, record: Record) -> Replayed | Record:
        """Store and return the outcome of the key's task (R1 of the proposal). A 5xx is not stored: the request runs
        the task again (R2). Raises RequestInProgress without an outcome."""
        terminal = self.outcome(record.task_id, record.bound_version)
        if terminal is None:
            raise RequestInProgress(record.task_id)
        answer = request.answer_of(terminal)
        return Replayed(self._finalize(record, answer), record.task_id) if answer.is_final else record

    def _finalize(self, record: Record, answer: StoredAnswer) -> StoredAnswer:
        final = finalize(record, answer, self._clock(), lifetime=self._lifetime, nonce=self._nonce())
        try:
            return self._store.put(RecordWrite(final, replaces=record)).answer or answer
        except RecordConflict as conflict:
            stored = conflict.stored
            return (stored.answer if stored and stored.payload_hash == record.payload_hash else None) or answer

    def _start_expiry(self, record: Record) -> None:
        if record.expires_at is None and self.outcome(record.task_id, record.bound_version) is not None:
            start_expiry(self._store, record, self._clock(), lifetime=self._lifetime, nonce=self._nonce())

    def _change(self, request: IdempotentRequest, first: Task) -> tuple[TaskChange, bool]:
        head = self._tasks.get(first.task_id)
        if head is None:
            return Create(first), True
        obstacle = request.obstacle(head)
        if obstacle is not None:
            raise task_conflict(head.task_id, obstacle)
        again = request.again(head, self._clock())
        if again is None:
            return self._attached(head, first), False
        return Advance(head, again.evolve(revision=head.revision + 1, nonce=self._nonce())), True

    def _attached(self, head: Task, first: Task) -> TaskChange:
        """Return the change for a request that attaches to an existing task, with its own channels."""
        after, owed = joined(head, first.notify)
        if after is head:
            return Expect(head, owed)
        return Revise(head, after.evolve(revision=head.revision + 1, nonce=self._nonce()))

    def _check_resubmit(self, replaces: Record | None, failed: Task) -> None:
        """Raise ResubmittedTooSoon or ResubmitsExhausted if a repeat of the record's key may not run the task again."""
        now = self._clock()
        if replaces is None or replaces.is_expired(now):
            return
        before = replaces.resubmits or 0
        allowed_at = _RESUBMITS.allowed_at(before, failed.last_status_change_ts)
        if allowed_at is None:
            raise ResubmitsExhausted(failed.task_id, before + 1, failed.error_code)
        if now < allowed_at:
            raise ResubmittedTooSoon(failed.task_id, (allowed_at - now).total_seconds())

    def _check_repeat(self, again: Advance) -> None:
        """Raise ResubmittedTooSoon if requests, with any key or none, run the task again too often. After the last
        allowed repeat the task rests for REST; then a new series starts."""
        number, ended = again.after.repeats, again.before.last_status_change_ts
        if number is None:
            return
        allowed_at = _RESUBMITS.allowed_at(number - 1, ended) or ended + REST
        now = self._clock()
        if now < allowed_at:
            raise ResubmittedTooSoon(again.before.task_id, (allowed_at - now).total_seconds())

    def _write(
        self, request: IdempotentRequest, change: TaskChange, replaces: Record | None, *, submitted: bool
    ) -> Accepted:
        target = change.after
        if request.scope is None:
            is_unchanged = isinstance(change, Expect) and not change.owed
            task = target if is_unchanged else self._tasks.apply(change)
            return Accepted(task, submitted, target.version, None)
        live = None if replaces is None or replaces.is_expired(self._clock()) else replaces
        record = bind(
            request.scope,
            payload_hash=request.payload_hash(RULE),
            task=target,
            answer=request.answer_now(target) if request.answer_now else None,
            now=self._clock(),
            nonce=self._nonce(),
            created_at=live.created_at if live else None,
            resubmits=_resubmits(live, submitted=submitted),
        )
        task = self._store.accept(change, RecordWrite(record, replaces))
        return Accepted(task, submitted, target.version, record)


def _resubmits(replaced: Record | None, *, submitted: bool) -> int | None:
    if replaced is None:
        return None
    return (replaced.resubmits or 0) + 1 if submitted else replaced.resubmits


def bind(
    scope: Scope,
    *,
    payload_hash: str,
    task: Task,
    answer: StoredAnswer | None,
    now: datetime,
    nonce: str,
    created_at: datetime | None = None,
    resubmits: int | None = None,
) -> Record:
    """Return a record that binds a key to a task's version; FINALIZED if its answer is known. `payload_hash` is the
    hash under the current rule."""
    return Record(
        scope=scope.id,
        **asdict(scope),
        payload_hash=payload_hash,
        state=State.FINALIZED if answer else State.IN_PROGRESS,
        task_id=task.task_id,
        bound_version=task.version,
        resubmits=resubmits,
        http_status=answer.status if answer else None,
        response_body=answer.body if answer else None,
        created_at=created_at or now,
        updated_at=now,
        nonce=nonce,
        identity_rule=RULE,
    )
