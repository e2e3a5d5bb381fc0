"""One contract for every IdempotencyStore: in memory, DynamoDB in moto, DynamoDB Local."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from delegation.idempotency.reservations import DynamoDbReservationStore, ReservationTable
from delegation.idempotency.store import MemoryIdempotencyStore, RecordPage
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.testing.idempotency import IdempotencyStoreContract, Stores, pages
from delegation.testing.reservations import reserved
from tests.contract.task_tables import local_task_store, moto_task_store, no_wait, record_store
from tests.contract.where import LOCAL, MOTO
from tests.kit.tasks.builders import NOW


class TestIdempotencyStore(IdempotencyStoreContract):
    @pytest.fixture(params=["memory", MOTO, LOCAL])
    def stores(self, request: pytest.FixtureRequest) -> Iterator[Stores]:
        match request.param:
            case "memory":
                tasks = MemoryTaskStore()
                yield tasks, MemoryIdempotencyStore(tasks)
            case "moto":
                with moto_task_store() as store:
                    yield store, record_store(store)
            case "local":
                with local_task_store(request.getfixturevalue("dynamodb_local").url) as store:
                    yield store, record_store(store)


def test_records_of_mutations_are_deleted_with_those_of_tasks() -> None:
    with moto_task_store() as tasks:
        idempotency = record_store(tasks)
        mutations = DynamoDbReservationStore(
            ReservationTable(tasks.dynamodb.client, sleep=no_wait), idempotency._items.table
        )
        record = reserved(now=NOW)
        mutations.reserve(record, NOW)
        assert list(pages(idempotency)) == [RecordPage((), None)]
        assert idempotency.remove_expired(record.expires_at - timedelta(seconds=1), 10) == 0
        assert idempotency.remove_expired(record.expires_at, 10) == 1
        assert mutations.get(record.scope) is None
