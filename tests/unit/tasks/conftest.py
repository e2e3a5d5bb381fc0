"""Fixtures for tests of the DynamoDB store."""

from collections.abc import Iterator
from typing import Any

import pytest

from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from tests.contract.task_tables import no_wait, task_store
from tests.unit.tasks.stores.dynamodb_bench import TRIES, Bench
from tests.unit.tasks.stores.faulty_client import FaultyClient


@pytest.fixture
def calm(moto_client: Any) -> Iterator[DynamoDbTaskStore]:
    with task_store(moto_client) as store:
        yield store


@pytest.fixture
def bench(calm: DynamoDbTaskStore) -> Bench:
    client = FaultyClient(calm.dynamodb.client)
    waits: list[float] = []
    table = ConditionalTable(client, tries=TRIES, sleep=waits.append, draw=lambda: 0.5)
    rival = DynamoDbTaskStore(ConditionalTable(calm.dynamodb.client, sleep=no_wait), calm.table)
    return Bench(DynamoDbTaskStore(table, calm.table), client, waits, rival)
