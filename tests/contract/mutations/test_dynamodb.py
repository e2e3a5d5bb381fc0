"""DynamoDB's own faults: an unclear answer is read back, and no write is counted twice."""

from collections.abc import Callable, Iterator

import pytest

from delegation.idempotency.reservations import (
    DynamoDbReservationStore,
    RecordOutcomeUnknown,
    RecordsUnavailable,
    ReservationConflict,
    ReservationTable,
)
from delegation.testing.reservations import NOW, SCOPE, finalized, reserved
from tests.contract.task_tables import create_record_table, moto, no_wait
from tests.unit.tasks.stores.faulty_client import Fault, FaultyClient, answered, no_connection, read_timeout

TRIES = 3
UNCLEAR = [read_timeout, answered("InternalServerError", 500)]
NOT_APPLIED = [answered("ThrottlingException"), no_connection]
ERRORS = ["time-out", "server error"]


@pytest.fixture(scope="module")
def table() -> Iterator[tuple[object, str]]:
    with moto() as client:
        yield client, create_record_table(client)


@pytest.fixture
def client(table: tuple[object, str]) -> Iterator[FaultyClient]:
    real, name = table
    yield FaultyClient(real)
    real.delete_item(TableName=name, Key={"scope": {"S": SCOPE.id}})  # type: ignore[attr-defined]


@pytest.fixture
def store(client: FaultyClient, table: tuple[object, str]) -> DynamoDbReservationStore:
    return DynamoDbReservationStore(ReservationTable(client, tries=TRIES, sleep=no_wait), table[1])


@pytest.mark.parametrize("error", UNCLEAR, ids=ERRORS)
def test_a_lost_answer_is_recognized_on_the_next_try(
    store: DynamoDbReservationStore, client: FaultyClient, error: Callable[[str], Exception]
) -> None:
    client.writes = [Fault(error, applied=True)]
    record = reserved()
    store.reserve(record, NOW)
    client.writes = [Fault(error, applied=True)]
    final = finalized(record)
    store.replace(final, record)
    assert store.get(SCOPE.id) == final


@pytest.mark.parametrize("error", UNCLEAR, ids=ERRORS)
def test_a_write_that_never_gets_an_answer_is_read_back(
    store: DynamoDbReservationStore, client: FaultyClient, error: Callable[[str], Exception]
) -> None:
    client.writes = [Fault(error)] * (TRIES - 1) + [Fault(error, applied=True)]
    record = reserved()
    store.reserve(record, NOW)
    assert store.get(SCOPE.id) == record


@pytest.mark.parametrize("reads", [[], [Fault(read_timeout)] * TRIES], ids=["read back", "not read back"])
def test_a_write_that_may_still_arrive_is_unknown(
    store: DynamoDbReservationStore, client: FaultyClient, reads: list[Fault | None]
) -> None:
    client.writes, client.reads = [Fault(read_timeout)] * TRIES, reads
    with pytest.raises(RecordOutcomeUnknown):
        store.reserve(reserved(), NOW)


@pytest.mark.parametrize("error", NOT_APPLIED, ids=["throttled", "not connected"])
def test_a_store_that_accepts_nothing_is_unavailable(
    store: DynamoDbReservationStore, client: FaultyClient, error: Callable[[str], Exception]
) -> None:
    client.writes = [Fault(error)] * TRIES
    with pytest.raises(RecordsUnavailable):
        store.reserve(reserved(), NOW)
    assert store.get(SCOPE.id) is None


def test_a_rival_between_two_tries_is_a_conflict(store: DynamoDbReservationStore, client: FaultyClient) -> None:
    rival = reserved()
    client.writes, client.between = [Fault(read_timeout), None], [lambda: store.reserve(rival, NOW)]
    with pytest.raises(ReservationConflict) as refused:
        store.reserve(reserved(), NOW)
    assert refused.value.stored == rival
