"""One contract for every ReservationStore: in memory, DynamoDB in moto, DynamoDB Local; broken ones fail it."""

from collections.abc import Iterator

import pytest

from delegation.idempotency.keys import IdempotencyError
from delegation.idempotency.reservations import BreakingStore, MemoryReservationStore, ReservationStore
from delegation.testing.reservations import CONCURRENT, SEQUENTIAL, Check
from tests.contract.mutations.broken import BROKEN, Broken
from tests.contract.task_tables import client_by, reservation_store
from tests.contract.where import LOCAL, MOTO

PROMISES = [
    pytest.param(broken, check, id=f"{broken.build.__name__}-{check.__name__}")
    for broken in BROKEN
    for check in broken.breaks
]


@pytest.fixture(scope="module", params=["memory", "breaking", MOTO, LOCAL])
def stores(request: pytest.FixtureRequest):
    """A function that makes an empty store."""
    if request.param == "memory":
        yield MemoryReservationStore
    elif request.param == "breaking":
        yield lambda: BreakingStore(MemoryReservationStore(), opened=lambda: None)
    else:
        with client_by(request) as client:
            yield lambda: reservation_store(client)


@pytest.fixture(params=["memory", LOCAL])
def concurrent(request: pytest.FixtureRequest) -> Iterator[ReservationStore]:
    if request.param == "memory":
        yield MemoryReservationStore()
    else:
        with client_by(request) as client:
            yield reservation_store(client)


@pytest.mark.parametrize("check", SEQUENTIAL)
def test_a_store_keeps_its_promises(stores, check: Check) -> None:
    check(stores())


@pytest.mark.parametrize("check", CONCURRENT)
def test_a_store_keeps_its_promises_to_threads(concurrent: ReservationStore, check: Check) -> None:
    check(concurrent)


@pytest.mark.parametrize(("broken", "check"), PROMISES)
def test_the_suite_catches_a_broken_store(broken: Broken, check: Check) -> None:
    assert check in (*SEQUENTIAL, *CONCURRENT)
    with pytest.raises((AssertionError, IdempotencyError, pytest.fail.Exception)):
        check(broken.build())


def test_every_check_catches_some_broken_store() -> None:
    used = {check for broken in BROKEN for check in broken.breaks}
    assert {*SEQUENTIAL, *CONCURRENT} == used
