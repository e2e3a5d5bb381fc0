"""Any order of calls, faults, interleavings and time: one effect in a key's lifetime, and answers that agree."""

import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from delegation.idempotency.keys import KeyConflict
from delegation.idempotency.mutations import AnswerSource
from delegation.idempotency.reservations import MemoryReservationStore, MutationInProgress
from tests.contract.mutations.world import AFTER_LEASE, POLICY, Calls, EffectfulCatalog, Outcome, crash, fail
from tests.effort import examples

KEYS = st.sampled_from(["k", "l"])
PAYLOADS = st.sampled_from(["p", "p", "p", "q"])
MODES = st.sampled_from(["apply", "apply", "refuse", "break", "break after", "busy"])
POINTS = st.integers(0, 11)
PAUSES = st.sampled_from([timedelta(0), timedelta(seconds=30), AFTER_LEASE])


@dataclass(frozen=True)
class Seen:
    """An outcome, and when its call began and ended."""

    key: str
    payload: str
    began: datetime
    ended: datetime
    outcome: Outcome


class Callers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryReservationStore()
        self.world = EffectfulCatalog(self.store)
        self.seen: list[Seen] = []

    def perform(self, key: str, payload: str, mode: str = "apply", calls: Calls | None = None) -> None:
        began = self.world.clock()
        outcome = self.world.call(key, payload, mode=mode, calls=calls)
        self.check(Seen(key, payload, began, self.world.clock(), outcome))

    def check(self, one: Seen) -> None:
        """What a caller sees is true at that moment."""
        if isinstance(one.outcome.error, KeyConflict):
            assert any(other.key == one.key and other.payload != one.payload for other in [*self.seen, *self.open])
        performed = one.outcome.performed
        if performed is not None and performed.answer.is_success:
            assert any(effect.key == one.key and effect.payload == one.payload for effect in self.world.effects)
        self.seen.append(one)

    @property
    def open(self) -> list[Seen]:
        """The call that is paused at a fault point, if any."""
        return self._open

    _open: list[Seen] = []  # noqa: RUF012 - replaced, never changed

    @rule(key=KEYS, payload=PAYLOADS, mode=MODES)
    def call(self, key: str, payload: str, mode: str) -> None:
        self.perform(key, payload, mode)

    @rule(key=KEYS, payload=PAYLOADS, mode=MODES, at=POINTS, act=st.sampled_from([crash, fail]))
    def call_with_a_fault(self, key: str, payload: str, mode: str, at: int, act) -> None:
        self.perform(key, payload, mode, Calls(at, act))

    @rule(key=KEYS, payload=PAYLOADS, mode=MODES, at=POINTS, other=PAYLOADS, pause=PAUSES)
    def call_with_another_in_between(
        self, key: str, payload: str, mode: str, at: int, other: str, pause: timedelta
    ) -> None:
        def act(_point: str) -> None:
            self.world.clock.advance(pause)
            self._open = [Seen(key, payload, self.world.clock(), self.world.clock(), Outcome())]
            self.perform(key, other)
            self._open = []

        self.perform(key, payload, mode, Calls(at, act))

    @rule(seconds=st.sampled_from([1, 30, 70, 900, 1900]))
    def wait(self, seconds: int) -> None:
        self.world.clock.advance(timedelta(seconds=seconds))

    @rule()
    def clean_up(self) -> None:
        for scope, record in list(self.store._records.items()):
            if record.is_expired(self.world.clock()):
                self.store.remove(scope)

    @invariant()
    def effects_of_a_key_are_a_lifetime_apart(self) -> None:
        for key in ("k", "l"):
            times = [effect.at for effect in self.world.effects if effect.key == key]
            assert all(later - earlier >= POLICY.lifetime for earlier, later in itertools.pairwise(times))

    @invariant()
    def final_answers_within_a_lifetime_agree(self) -> None:
        """A replay is byte for byte the answer that was stored."""
        for key in ("k", "l"):
            final = [
                one
                for one in self.seen
                if one.key == key and one.outcome.performed and one.outcome.performed.answer.is_final
            ]
            for earlier, later in itertools.pairwise(final):
                if later.began - earlier.ended < POLICY.lifetime and earlier.outcome.how is not AnswerSource.REPLAYED:
                    assert later.payload == earlier.payload
                    assert later.outcome.performed.answer == earlier.outcome.performed.answer  # type: ignore[union-attr]

    def teardown(self) -> None:
        """Whatever happened, a key that is repeated until its lease is over gets an answer."""
        for key in ("k", "l"):
            self.world.clock.advance(AFTER_LEASE)
            outcome = self.world.call(key)
            assert outcome.status is not None or isinstance(outcome.error, KeyConflict)
            assert not isinstance(outcome.error, MutationInProgress)


Callers.TestCase.settings = settings(
    max_examples=examples(90), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCallers = Callers.TestCase
