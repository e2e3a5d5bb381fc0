"""Performs a mutation at most once: reserve, run, finalize; reconcile after an unknown outcome; replay."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from delegation.idempotency import reservations as records
from delegation.idempotency.answers import MutationAnswer
from delegation.idempotency.keys import KeyConflict, KeyState, Scope, State
from delegation.idempotency.reservations import (
    KeyPolicy,
    MutationInProgress,
    NothingDone,
    RecordOutcomeUnknown,
    RecordsUnavailable,
    Reservation,
    ReservationConflict,
    ReservationStore,
)

_RACES: Final = 20


class AnswerSource(StrEnum):
    EXECUTED = "executed"
    VERIFIED = "verified"
    REPLAYED = "replayed"


@dataclass(frozen=True, slots=True)
class Performed:
    """The answer to a mutation, and where it came from."""

    answer: MutationAnswer
    how: AnswerSource


class MutationAttempt:
    """One call's hold on a key; `number` counts the calls that held it, from 1. `is_clear`: no earlier call can have
    had an effect."""

    def __init__(
        self,
        record: Reservation,
        store: ReservationStore,
        policy: KeyPolicy,
        *,
        is_clear: bool,
        clock: Callable[[], datetime],
        nonce: Callable[[], str],
    ) -> None:
        self.is_clear = is_clear
        self._record = record
        self._store = store
        self._policy = policy
        self._clock = clock
        self._nonce = nonce

    @property
    def number(self) -> int:
        return self._record.attempt

    @property
    def before(self) -> str | None:
        """What the first call observed before it ran."""
        return self._record.before

    @property
    def began_at(self) -> datetime:
        return self._record.created_at

    @property
    def deadline(self) -> datetime:
        """The time from which this call must have no effect, because another one may take over the key."""
        return self._record.lost_not_before - self._policy.clock_drift

    def extend(self) -> None:
        """Move the deadline to a lease from now. Raises MutationInProgress if another call has taken over the key."""
        try:
            self._write(records.extended(self._record, self._clock(), self._policy, self._nonce()))
        except ReservationConflict:
            raise MutationInProgress from None

    def keep(self) -> None:
        """Extend the deadline if less than two thirds of a lease are left. Raises like `extend`."""
        if self.deadline - self._clock() < self._policy.lease * 2 / 3:
            self.extend()

    def require_time(self) -> None:
        """Raise MutationInProgress after the deadline."""
        if self._clock() >= self.deadline:
            raise MutationInProgress

    def release(self, *, nothing_done: bool = False) -> ReservationConflict | None:
        """Let the next call reconcile at once; if that cannot be written it waits for the end of the lease. With
        `nothing_done` this call had no effect; if no other can have had one, the next is like the first. Returns the
        conflict if another call has taken over the key."""
        is_clear = self.is_clear and nothing_done
        now, nonce = self._clock(), self._nonce()
        with suppress(RecordsUnavailable, RecordOutcomeUnknown):
            try:
                self._write(records.released(self._record, now, self._policy, nonce, nothing_done=is_clear))
            except ReservationConflict as conflict:
                return conflict
        return None

    def finalize(self, answer: MutationAnswer) -> None:
        """Store the final answer. Raises ReservationConflict if another call has taken over the key."""
        self._write(records.finalized(self._record, answer, self._clock(), self._policy, self._nonce()))

    def _write(self, record: Reservation) -> None:
        self._store.replace(record, self._record)
        self._record = record


def as_stored(answer: MutationAnswer) -> MutationAnswer:
    """Return a replayed answer without the parts that were not stored."""
    return answer


def nothing() -> None:
    """Observe nothing before a mutation."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A request that changes something, to be performed at most once.

    - `payload_hash` returns the payload's hash under an identity rule (`keys.payload_hashes`).
    - `run` performs it, has no effect after the attempt's deadline, and returns the answer or raises. After an answer
      that is not final, or an exception, the outcome is unknown, unless the answer (`did_nothing`) or the exception
      (NothingDone) states that there was no effect.
    - `verify` returns the final answer if the state shows that the payload was applied (R1) or can no longer be applied
      (422), and None if it certainly was not applied, so that it may be run (R2). If neither is certain, it raises the
      caller's error; the key is kept. It changes nothing.
    - `observe` returns what `verify` must know about the state before the mutation, None if nothing. It is called for
      repeats too and must not fail because the mutation was applied.
    - `restore` returns a replayed answer with the parts that were not stored, such as newly vended credentials.
    """

    scope: Scope
    payload_hash: Callable[[int], str]
    run: Callable[[MutationAttempt], MutationAnswer]
    verify: Callable[[MutationAttempt], MutationAnswer | None]
    observe: Callable[[], str | None] = nothing
    restore: Callable[[MutationAnswer], MutationAnswer] = as_stored


class Mutations:
    """Performs mutations with two calls of the store, and replays them with one."""

    def __init__(
        self,
        store: ReservationStore,
        *,
        policy: KeyPolicy,
        clock: Callable[[], datetime],
        nonce: Callable[[], str],
    ) -> None:
        """`clock` returns aware UTC datetimes, `nonce` a new text of at most 36 characters."""
        self._store = store
        self._policy = policy
        self._clock = clock
        self._nonce = nonce

    def perform(self, mutation: Mutation) -> Performed:
        """Perform or replay a mutation (Idempotency-Key proposal, Request Flow). Raises KeyConflict,
        MutationInProgress, the errors of the store, and what the mutation's functions raise."""
        before = mutation.observe()
        for _ in range(_RACES):
            now = self._clock()
            first = records.reserved(
                mutation.scope, mutation.payload_hash, before, now=now, policy=self._policy, nonce=self._nonce()
            )
            try:
                self._store.reserve(first, now)
            except ReservationConflict as conflict:
                performed = self._repeat(mutation, conflict.stored, now)
            else:
                performed = self._hold(mutation, first, is_clear=True)
            if performed is not None:
                return performed
        raise RecordsUnavailable("the idempotency record kept changing, so nothing was done. Repeat the request")

    def is_held(self, scope: Scope) -> bool:
        """Return whether a call holds a key now, with one read. Raises the errors of the store."""
        stored = self._store.get(scope.id)
        if stored is None or stored.state is not State.IN_PROGRESS:
            return False
        return self._clock() < stored.lost_not_before

    def may_have_run(self, scope: Scope) -> bool:
        """Return whether a call with the key may have had an effect. Raises the errors of the store."""
        stored = self._store.get(scope.id)
        return stored is not None and not stored.is_expired(self._clock()) and stored.nothing_done is not True

    def _repeat(self, mutation: Mutation, stored: Reservation | None, now: datetime) -> Performed | None:
        """Answer a request whose key has a record; None if the record changed meanwhile."""
        if stored is None:
            return None
        match stored.found_by(mutation.payload_hash, now):
            case KeyState.CONFLICT:
                raise KeyConflict
            case KeyState.HELD if now < stored.lost_not_before:
                raise MutationInProgress
            case KeyState.HELD:
                return self._take_over(mutation, stored, now)
            case KeyState.REPLAY:
                return _replayed(mutation, stored)
            case KeyState.FRESH:
                return None

    def _take_over(self, mutation: Mutation, stored: Reservation, now: datetime) -> Performed | None:
        """Take the key of a call that ended without a final outcome; None if another call did so first."""
        mine = records.taken_over(stored, now, self._policy, self._nonce())
        try:
            self._store.replace(mine, stored)
        except ReservationConflict:
            return None
        return self._hold(mutation, mine, is_clear=stored.nothing_done is True)

    def _hold(self, mutation: Mutation, record: Reservation, *, is_clear: bool) -> Performed:
        """Run or reconcile as the holder of the key, which is always released."""
        attempt = MutationAttempt(
            record, self._store, self._policy, is_clear=is_clear, clock=self._clock, nonce=self._nonce
        )
        try:
            attempt.require_time()
            answer, how = _executed(mutation, attempt) if is_clear else _reconciled(mutation, attempt)
        except BaseException as error:
            attempt.release(nothing_done=isinstance(error, NothingDone))
            raise
        if not answer.is_final:
            conflict = attempt.release(nothing_done=answer.did_nothing)
            performed = Performed(answer, how)
            return performed if conflict is None else self._of_successor(mutation, performed, conflict)
        return self._finalize(mutation, attempt, Performed(answer, how))

    def _finalize(self, mutation: Mutation, attempt: MutationAttempt, performed: Performed) -> Performed:
        """Store the answer; if another call has taken over the key, that call's answer counts."""
        try:
            attempt.finalize(performed.answer)
        except ReservationConflict as conflict:
            return self._of_successor(mutation, performed, conflict)
        except (RecordsUnavailable, RecordOutcomeUnknown):
            # The state shows a success to the next call too. A refusal might be followed by another answer.
            if not performed.answer.is_success:
                raise
        return performed

    def _of_successor(self, mutation: Mutation, performed: Performed, conflict: ReservationConflict) -> Performed:
        """Return the outcome of the call that took over the key, in place of this call's answer."""
        stored = conflict.stored
        if stored is None or stored.is_expired(self._clock()) or not stored.has_payload(mutation.payload_hash):
            return performed
        if stored.state is State.IN_PROGRESS:
            raise MutationInProgress from None
        return _replayed(mutation, stored)


def _executed(mutation: Mutation, attempt: MutationAttempt) -> tuple[MutationAnswer, AnswerSource]:
    return mutation.run(attempt), AnswerSource.EXECUTED


def _reconciled(mutation: Mutation, attempt: MutationAttempt) -> tuple[MutationAnswer, AnswerSource]:
    """Verify, and run the mutation if it was not applied (Idempotency-Key proposal, Reconciliation branches R1, R2)."""
    verified = mutation.verify(attempt)
    if verified is not None:
        return verified, AnswerSource.VERIFIED
    attempt.require_time()
    answer = mutation.run(attempt)
    # An effect of a former call that shows only now makes the repeat fail as a conflict with itself.
    late = mutation.verify(attempt) if answer.is_refusal else None
    return (answer, AnswerSource.EXECUTED) if late is None else (late, AnswerSource.VERIFIED)


def _replayed(mutation: Mutation, stored: Reservation) -> Performed:
    answer = stored.answer
    if answer is None:
        raise MutationInProgress
    return Performed(answer if answer.is_whole else mutation.restore(answer), AnswerSource.REPLAYED)
