"""The contract of a ReservationStore, one function per promise."""

import itertools
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from delegation.idempotency import reservations as records
from delegation.idempotency.answers import MutationAnswer
from delegation.idempotency.keys import IdempotencyError, Scope, State
from delegation.idempotency.reservations import KeyPolicy, Reservation, ReservationConflict, ReservationStore

Check = Callable[[ReservationStore], None]
NOW: Final = datetime(2026, 11, 22, 12, 0, 0, 123456, tzinfo=UTC)
POLICY: Final = KeyPolicy()
SCOPE: Final = Scope("spark", "POLARIS", "POST", "/v1/lake/namespaces/ns/tables/t", "key-1")
OTHER: Final = Scope("spark", "POLARIS", "POST", "/v1/lake/namespaces/ns/tables/u", "key-1")
ANSWER: Final = MutationAnswer(200, '{"metadata-location":"s3://b/é.json"}'.encode(), {"ETag": '"e"'})
_numbers = itertools.count(1)


def nonce() -> str:
    return f"nonce-{next(_numbers)}"


def payload_hash(_rule: int) -> str:
    return "a" * 64


def reserved(scope: Scope = SCOPE, *, now: datetime = NOW, before: str | None = None) -> Reservation:
    return records.reserved(scope, payload_hash, before, now=now, policy=POLICY, nonce=nonce())


def finalized(record: Reservation, answer: MutationAnswer = ANSWER, now: datetime = NOW) -> Reservation:
    return records.finalized(record, answer, now, POLICY, nonce())


def a_reservation_comes_back_whole(store: ReservationStore) -> None:
    assert store.get(SCOPE.id) is None
    record = reserved(before="uuid-1")
    store.reserve(record, NOW)
    assert store.get(SCOPE.id) == record
    assert store.get(OTHER.id) is None


def a_final_answer_comes_back_whole(store: ReservationStore) -> None:
    record = reserved()
    store.reserve(record, NOW)
    final = finalized(record)
    store.replace(final, record)
    stored = store.get(SCOPE.id)
    assert stored == final
    assert stored is not None
    assert (stored.state, stored.answer) == (State.FINALIZED, ANSWER)


def an_empty_answer_comes_back(store: ReservationStore) -> None:
    record = reserved()
    store.reserve(record, NOW)
    store.replace(finalized(record, MutationAnswer(204)), record)
    stored = store.get(SCOPE.id)
    assert stored is not None
    assert stored.answer == MutationAnswer(204)


def a_taken_key_is_refused_with_its_record(store: ReservationStore) -> None:
    record = reserved()
    store.reserve(record, NOW)
    with pytest.raises(ReservationConflict) as refused:
        store.reserve(reserved(), NOW)
    assert refused.value.stored == record
    assert store.get(SCOPE.id) == record


def keys_of_other_scopes_do_not_meet(store: ReservationStore) -> None:
    first, second = reserved(), reserved(OTHER)
    store.reserve(first, NOW)
    store.reserve(second, NOW)
    assert (store.get(SCOPE.id), store.get(OTHER.id)) == (first, second)


def the_same_write_again_is_its_own(store: ReservationStore) -> None:
    record = reserved()
    store.reserve(record, NOW)
    store.reserve(record, NOW)
    final = finalized(record)
    store.replace(final, record)
    store.replace(final, record)
    assert store.get(SCOPE.id) == final


def an_expired_key_is_free(store: ReservationStore) -> None:
    record = reserved()
    store.reserve(record, NOW)
    for early in (NOW, record.lost_not_before, record.expires_at - timedelta(seconds=1)):
        with pytest.raises(ReservationConflict):
            store.reserve(reserved(now=early), early)
    again = reserved(now=record.expires_at)
    store.reserve(again, record.expires_at)
    assert store.get(SCOPE.id) == again


def replacing_is_conditional_on_what_was_read(store: ReservationStore) -> None:
    record = reserved()
    store.reserve(record, NOW)
    mine = records.taken_over(record, NOW, POLICY, nonce())
    store.replace(mine, record)
    with pytest.raises(ReservationConflict) as refused:
        store.replace(finalized(record), record)
    assert refused.value.stored == mine
    assert store.get(SCOPE.id) == mine


def what_is_gone_is_not_replaced(store: ReservationStore) -> None:
    record = reserved()
    with pytest.raises(ReservationConflict) as refused:
        store.replace(finalized(record), record)
    assert refused.value.stored is None
    assert store.get(SCOPE.id) is None


def a_record_of_a_newer_release_is_never_overwritten(store: ReservationStore) -> None:
    newer = reserved().model_copy(update={"format": 9})
    store.reserve(newer, NOW)
    calls: list[Callable[[], object]] = [lambda: store.get(SCOPE.id), lambda: store.reserve(reserved(), NOW)]
    for read in calls:
        with pytest.raises(IdempotencyError) as refused:
            read()
        assert refused.value.code == "MALFORMED_RECORD"


def one_of_many_reserves_a_key(store: ReservationStore) -> None:
    """Eight threads at once."""
    barrier, won, lost = threading.Barrier(8), [], []

    def reserve() -> None:
        mine = reserved()
        barrier.wait()
        try:
            store.reserve(mine, NOW)
        except ReservationConflict as refused:
            lost.append(refused.stored)
        else:
            won.append(mine)

    run_all(reserve)
    assert len(won) == 1
    assert lost == won * 7


def one_of_many_takes_a_key_over(store: ReservationStore) -> None:
    """Eight threads at once."""
    record = reserved()
    store.reserve(record, NOW)
    barrier, won = threading.Barrier(8), []

    def take_over() -> None:
        mine = records.taken_over(record, NOW, POLICY, nonce())
        barrier.wait()
        try:
            store.replace(mine, record)
        except ReservationConflict:
            return
        won.append(mine)

    run_all(take_over)
    assert [store.get(SCOPE.id)] == won


def run_all(act: Callable[[], Any]) -> None:
    threads = [threading.Thread(target=act) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


SEQUENTIAL: Final[tuple[Check, ...]] = (
    a_reservation_comes_back_whole,
    a_final_answer_comes_back_whole,
    an_empty_answer_comes_back,
    a_taken_key_is_refused_with_its_record,
    keys_of_other_scopes_do_not_meet,
    the_same_write_again_is_its_own,
    an_expired_key_is_free,
    replacing_is_conditional_on_what_was_read,
    what_is_gone_is_not_replaced,
    a_record_of_a_newer_release_is_never_overwritten,
)
CONCURRENT: Final[tuple[Check, ...]] = (one_of_many_reserves_a_key, one_of_many_takes_a_key_over)
"""Checks that write from several threads at once. An emulator of a store may not support them."""


class ReservationStoreContract:
    """The whole contract as tests of one store. A subclass overrides the fixture `store`."""

    @pytest.fixture
    def store(self) -> ReservationStore:
        """Return a new, empty store that shares nothing with another test's."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `store`")

    @pytest.mark.parametrize("check", SEQUENTIAL, ids=lambda check: check.__name__)
    def test_a_store_keeps_its_promise(self, store: ReservationStore, check: Check) -> None:
        check(store)

    @pytest.mark.parametrize("check", CONCURRENT, ids=lambda check: check.__name__)
    def test_a_store_keeps_its_promise_to_threads(self, store: ReservationStore, check: Check) -> None:
        check(store)
