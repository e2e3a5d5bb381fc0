"""Reserve, run, finalize, reconcile, replay: each rule of the Idempotency-Key proposal, without faults of the store."""

import random
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.idempotency.answers import MutationAnswer
from delegation.idempotency.keys import KeyConflict
from delegation.idempotency.mutations import AnswerSource, MutationAttempt, Mutations
from delegation.idempotency.reservations import LARGEST_BODY, MemoryReservationStore, MutationInProgress
from delegation.testing.reservations import nonce
from tests.contract.mutations.world import AFTER_LEASE, POLICY, Calls, EffectfulCatalog, crash

SECOND = timedelta(seconds=1)


@pytest.fixture
def world() -> EffectfulCatalog:
    return EffectfulCatalog(MemoryReservationStore())


def test_a_mutation_takes_two_calls_of_the_store_and_a_replay_one(world: EffectfulCatalog) -> None:
    first, second = Calls(), Calls()
    done, again = world.call(calls=first), world.call(calls=second)
    assert (done.status, done.how, again.how) == (200, AnswerSource.EXECUTED, AnswerSource.REPLAYED)
    assert done.performed is not None
    assert again.performed is not None
    assert again.performed.answer == done.performed.answer
    assert first.points == [
        "before observe",
        "before reserve",
        "after reserve",
        "before run",
        "after run",
        "before replace",
        "after replace",
    ]
    assert second.points == ["before observe", "before reserve"]
    assert len(world.effects) == 1


def test_a_refusal_is_replayed_too(world: EffectfulCatalog) -> None:
    assert [world.call(mode="refuse").status, world.call().status] == [404, 404]
    assert world.effects == []


def test_another_payload_is_refused_while_it_runs_and_afterwards(world: EffectfulCatalog) -> None:
    during = Calls(at=4, act=lambda _point: seen.append(world.call(payload="q")))
    seen = []
    world.call(calls=during)
    assert isinstance(seen[0].error, KeyConflict)
    assert isinstance(world.call(payload="q").error, KeyConflict)
    assert world.call("other", payload="q").status == 200


def test_a_duplicate_while_it_runs_is_in_progress(world: EffectfulCatalog) -> None:
    seen = []
    world.call(calls=Calls(at=4, act=lambda _point: seen.append(world.call())))
    assert isinstance(seen[0].error, MutationInProgress)
    assert len(world.effects) == 1


@pytest.mark.parametrize("mode", ["break", "break after", "busy"])
def test_an_answer_that_is_not_final_is_never_stored_and_the_next_call_reconciles_at_once(
    world: EffectfulCatalog, mode: str
) -> None:
    assert world.call(mode=mode).status in {500, 429}
    again = world.call()
    assert (again.status, again.how) == (200, AnswerSource.VERIFIED if mode == "break after" else AnswerSource.EXECUTED)
    assert len(world.effects) == 1
    assert world.call().how is AnswerSource.REPLAYED


def test_after_an_unclear_outcome_the_next_call_waits_until_effects_have_settled() -> None:
    world = EffectfulCatalog(MemoryReservationStore(), policy=replace(POLICY, settle=20 * SECOND))
    world.call(mode="break")
    assert isinstance(world.call().error, MutationInProgress)
    world.clock.advance(20 * SECOND)
    assert world.call().status == 200


def test_the_key_of_a_holder_that_died_is_taken_over_when_its_lease_is_over(world: EffectfulCatalog) -> None:
    world.call(calls=Calls(at=3, act=crash))
    world.clock.advance(AFTER_LEASE - 2 * SECOND)
    assert isinstance(world.call().error, MutationInProgress)
    world.clock.advance(2 * SECOND)
    assert world.call().how is AnswerSource.EXECUTED
    assert len(world.effects) == 1


def test_a_key_is_held_until_its_holder_counts_as_dead(world: EffectfulCatalog) -> None:
    world.call(calls=Calls(at=3, act=crash))
    scope = world.mutation("k", "p", "apply", Calls()).scope
    stored = world.store.get(scope.id)
    assert stored is not None
    mutations = Mutations(world.store, policy=POLICY, clock=world.clock, nonce=nonce)
    world.clock.advance(stored.lost_not_before - world.clock() - SECOND)
    assert mutations.is_held(scope)
    world.clock.advance(SECOND)
    assert not mutations.is_held(scope)


def test_a_holder_that_was_taken_for_dead_has_no_effect_and_answers_the_truth(world: EffectfulCatalog) -> None:
    seen = []

    def paused(_point: str) -> None:
        world.clock.advance(AFTER_LEASE)
        seen.append(world.call())

    late = world.call(calls=Calls(at=3, act=paused))
    assert isinstance(late.error, MutationInProgress)
    assert seen[0].how is AnswerSource.EXECUTED
    assert len(world.effects) == 1


def test_a_holder_that_finishes_late_answers_what_its_successor_stored(world: EffectfulCatalog) -> None:
    seen = []

    def paused(_point: str) -> None:
        world.clock.advance(AFTER_LEASE)
        seen.append(world.call())

    late = world.call(mode="refuse", calls=Calls(at=4, act=paused))
    assert (late.status, late.how, seen[0].status) == (200, AnswerSource.REPLAYED, 200)


def test_a_holder_that_extends_its_lease_keeps_the_key(world: EffectfulCatalog) -> None:
    seen = []

    def long(attempt: MutationAttempt) -> MutationAnswer:
        for _ in range(3):
            world.clock.advance(POLICY.lease - SECOND)
            attempt.extend()
            seen.append(world.call())
        return MutationAnswer(200, b"{}")

    assert world.call(run=long).status == 200
    assert all(isinstance(one.error, MutationInProgress) for one in seen)


def test_a_holder_that_extends_too_late_learns_that_it_lost_the_key(world: EffectfulCatalog) -> None:
    def long(attempt: MutationAttempt) -> MutationAnswer:
        world.clock.advance(AFTER_LEASE)
        assert world.call().status == 200
        attempt.extend()
        raise AssertionError("extended a lost lease")

    assert isinstance(world.call(run=long).error, MutationInProgress)


def test_a_refusal_caused_by_the_former_calls_late_effect_becomes_its_success(world: EffectfulCatalog) -> None:
    """The former call's effect appears between verifying and running again; the catalog refuses the second."""
    world.call(mode="break")

    def run(_attempt: MutationAttempt) -> MutationAnswer:
        return MutationAnswer(409, b'{"error":"exists"}')

    seen = iter([None, MutationAnswer(200, b'{"exists":true}')])
    again = world.call(run=run, verify=lambda _attempt: next(seen))
    assert (again.status, again.how) == (200, AnswerSource.VERIFIED)
    assert world.call().status == 200


def test_a_state_that_became_incompatible_is_refused_terminally(world: EffectfulCatalog) -> None:
    world.call(mode="break")
    refused = world.call(verify=lambda _attempt: MutationAnswer(422, b'{"error":"incompatible"}'))
    assert (refused.status, refused.how) == (422, AnswerSource.VERIFIED)
    assert (world.call().status, world.effects) == (422, [])


def test_verifying_knows_what_was_observed_before_the_first_call(world: EffectfulCatalog) -> None:
    world.call("x")
    world.call(mode="break after")
    seen = []
    world.call(verify=lambda attempt: seen.append((attempt.number, attempt.before, attempt.began_at)))
    assert seen == [(2, "1", world.clock())]


def test_a_key_is_forgotten_a_lifetime_after_its_answer(world: EffectfulCatalog) -> None:
    world.call()
    world.clock.advance(POLICY.lifetime)
    assert world.call().how is AnswerSource.REPLAYED
    world.clock.advance(POLICY.clock_drift + SECOND)
    assert world.call(payload="q").how is AnswerSource.EXECUTED
    assert len(world.effects) == 2


def test_credentials_are_not_stored_and_a_replay_vends_them_anew(world: EffectfulCatalog) -> None:
    full = (
        b'{"metadata":{"a":1},"config":{"s3.secret-access-key":"hush"},"storage-credentials":[{"config":{"t":"hush"}}]}'
    )
    answered = world.call(run=lambda _attempt: MutationAnswer(200, full, {"ETag": "e", "Set-Cookie": "hush"}))
    assert answered.performed is not None
    assert answered.performed.answer.body == full
    assert "hush" not in repr(list(world.store._records.values()))
    assert b"hush" not in world.call().performed.answer.body  # type: ignore[union-attr]
    anew = world.call(restore=lambda answer: replace(answer, body=answer.body + b" vended", is_whole=True))
    assert anew.performed is not None
    assert anew.performed.answer.body == b'{"metadata":{"a":1},"config":{}} vended'
    assert anew.performed.answer.headers == {"ETag": "e"}


def test_an_answer_too_large_to_store_is_restored_at_its_replay(world: EffectfulCatalog) -> None:
    noise = random.Random(1).randbytes(LARGEST_BODY).hex()
    body = f'"{noise}{noise[::-1]}"'.encode()
    world.call(run=lambda _attempt: MutationAnswer(200, body))
    again = world.call(restore=lambda answer: replace(answer, body=b"loaded", is_whole=True))
    assert again.performed is not None
    assert (again.how, again.performed.answer.body) == (AnswerSource.REPLAYED, b"loaded")


def test_of_64_duplicates_at_once_one_has_an_effect_and_the_others_answer_the_truth(world: EffectfulCatalog) -> None:
    barrier, seen = threading.Barrier(64), []

    def call() -> None:
        barrier.wait()
        seen.append(world.call())

    threads = [threading.Thread(target=call) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(world.effects) == 1
    assert sum(one.how is AnswerSource.EXECUTED for one in seen) == 1
    assert {one.status for one in seen if one.performed} == {200}
    assert all(one.performed or isinstance(one.error, MutationInProgress) for one in seen)
    assert world.call().how is AnswerSource.REPLAYED
