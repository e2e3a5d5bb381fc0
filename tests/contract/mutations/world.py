"""Callers that perform mutations of a small catalog, with a fault at any of their calls."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from delegation.idempotency.answers import MutationAnswer
from delegation.idempotency.keys import KeyConflict, Scope
from delegation.idempotency.mutations import AnswerSource, Mutation, MutationAttempt, Mutations, Performed
from delegation.idempotency.reservations import (
    KeyPolicy,
    MutationInProgress,
    RecordOutcomeUnknown,
    RecordsUnavailable,
    Reservation,
    ReservationStore,
)
from delegation.testing.reservations import NOW, nonce
from tests.kit.clocks import Clock

POLICY: Final = KeyPolicy(lifetime=timedelta(minutes=30), lease=timedelta(seconds=60))
AFTER_LEASE: Final = POLICY.lease + POLICY.clock_drift + timedelta(seconds=1)


class Crashed(BaseException):
    """The process of a caller was killed; all its further calls raise this too."""


class CatalogFailed(Exception):
    """The catalog gave no answer."""


@dataclass
class Calls:
    """The I/O calls of one caller in order, each before and after; `at` one of them `act` is called."""

    at: int | None = None
    act: Callable[[str], None] = lambda _point: None
    points: list[str] = field(default_factory=list)
    is_dead: bool = False

    def __call__(self, point: str) -> None:
        if self.is_dead:
            raise Crashed
        self.points.append(point)
        if len(self.points) - 1 == self.at:
            try:
                self.act(point)
            except Crashed:
                self.is_dead = True
                raise


def crash(_point: str) -> None:
    raise Crashed


def fail(point: str) -> None:
    """What the caller sees when a call got no answer; after a write it may have been applied."""
    if point.endswith(("run", "verify", "observe")):
        raise CatalogFailed
    raise RecordsUnavailable("") if point.startswith("before") else RecordOutcomeUnknown("")


@dataclass
class ObservedStore:
    """A store whose calls are points of a caller."""

    store: ReservationStore
    calls: Calls

    def get(self, scope: str) -> Reservation | None:
        return self.store.get(scope)

    def reserve(self, record: Reservation, now: datetime) -> None:
        self.calls("before reserve")
        self.store.reserve(record, now)
        self.calls("after reserve")

    def replace(self, record: Reservation, before: Reservation) -> None:
        self.calls("before replace")
        self.store.replace(record, before)
        self.calls("after replace")


@dataclass(frozen=True)
class Effect:
    key: str
    payload: str
    at: datetime


@dataclass(frozen=True)
class Outcome:
    """What a caller saw: a performed mutation, or the error that it got."""

    performed: Performed | None = None
    error: BaseException | None = None

    @property
    def status(self) -> int | None:
        return None if self.performed is None else self.performed.answer.status

    @property
    def how(self) -> AnswerSource | None:
        return None if self.performed is None else self.performed.how


@dataclass
class EffectfulCatalog:
    """A catalog that appends an effect for every call, however often: nothing in it prevents a second one."""

    store: ReservationStore
    clock: Clock = field(default_factory=lambda: Clock(NOW))
    policy: KeyPolicy = POLICY
    effects: list[Effect] = field(default_factory=list)
    runs: int = 0

    def call(
        self, key: str = "k", payload: str = "p", *, mode: str = "apply", calls: Calls | None = None, **changes: Any
    ) -> Outcome:
        """Perform a mutation: `apply`, `refuse` (404), `break` (500), `break after` it was applied, `busy` (429)."""
        calls = calls or Calls()
        mutations = Mutations(ObservedStore(self.store, calls), policy=self.policy, clock=self.clock, nonce=nonce)
        try:
            return Outcome(mutations.perform(self.mutation(key, payload, mode, calls, **changes)))
        except (Crashed, CatalogFailed, MutationInProgress, KeyConflict, RecordsUnavailable, RecordOutcomeUnknown) as e:
            return Outcome(error=e)

    def mutation(self, key: str, payload: str, mode: str, calls: Calls, **changes: Any) -> Mutation:
        def run(attempt: MutationAttempt) -> MutationAnswer:
            calls("before run")
            attempt.require_time()
            self.runs += 1
            if mode.startswith("apply") or mode == "break after":
                self.effects.append(Effect(key, payload, self.clock()))
            calls("after run")
            return answers[mode]

        def verify(attempt: MutationAttempt) -> MutationAnswer | None:
            calls("before verify")
            done = any(one.key == key and one.at >= attempt.began_at for one in self.effects)
            calls("after verify")
            return answers["apply"] if done else None

        def observe() -> str:
            calls("before observe")
            return str(len(self.effects))

        done = f'{{"key":"{key}","payload":"{payload}"}}'.encode()
        answers = {
            "apply": MutationAnswer(200, done, {"ETag": "1"}),
            "refuse": MutationAnswer(404, b'{"error":"none"}'),
            "break": MutationAnswer(500, b"{}"),
            "break after": MutationAnswer(500, b"{}"),
            "busy": MutationAnswer(429, b"{}"),
        }
        scope = Scope("spark", "POLARIS", "POST", "/v1/lake/namespaces/ns/tables/t", key)
        values = {"run": run, "verify": verify, "observe": observe, **changes}
        return Mutation(scope=scope, payload_hash=lambda _rule: payload, **values)
