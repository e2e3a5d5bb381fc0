"""Task stores to run one suite on: in memory, DynamoDB inside moto, DynamoDB Local."""

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from delegation.idempotency.reservations import DynamoDbReservationStore, ReservationTable
from delegation.idempotency.store import DynamoDbIdempotencyStore
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from delegation.tasks.stores.dynamodb_reads import (
    ADMISSION_INDEX,
    CORRELATION_INDEX,
    DUE_INDEX,
    RECEIVED_INDEX,
    TARGET_INDEX,
)
from polaris_common.dynamodb import client_config
from tests.aws import mock_aws

REGION = "us-east-1"


def dynamodb_client(url: str | None = None) -> Any:
    return boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=client_config(max_pool_connections=32, read_timeout=60),
    )


def keys(partition: str, sort: str) -> list[dict[str, str]]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]


INDEXES = {
    DUE_INDEX: ("due_bucket", "due_at"),
    ADMISSION_INDEX: ("admission_bucket", "admission_key"),
    RECEIVED_INDEX: ("received_bucket", "received_key"),
    TARGET_INDEX: ("target_key", "received_key"),
    CORRELATION_INDEX: ("correlation_key", "received_key"),
}


def create_task_table(client: Any) -> str:
    """A table of its own, as infra declares it: key (task_id, version), sparse indexes of heads."""
    table = f"tasks-{uuid.uuid4()}"
    names = dict.fromkeys(["task_id", "version", *(name for pair in INDEXES.values() for name in pair)])
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "N" if name == "version" else "S"} for name in names
        ],
        KeySchema=keys("task_id", "version"),
        GlobalSecondaryIndexes=[
            {"IndexName": name, "KeySchema": keys(*pair), "Projection": {"ProjectionType": "KEYS_ONLY"}}
            for name, pair in INDEXES.items()
        ],
    )
    return table


def record_store(tasks: DynamoDbTaskStore) -> DynamoDbIdempotencyStore:
    """Idempotency records in a table of their own beside the tasks'."""
    return DynamoDbIdempotencyStore(tasks, create_record_table(tasks.dynamodb.client, f"{tasks.table}-idempotency"))


def create_record_table(client: Any, name: str | None = None) -> str:
    """A table for idempotency records, as infra declares it; by default with a name of its own."""
    table = name or f"idempotency-{uuid.uuid4()}"
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "scope", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "scope", "KeyType": "HASH"}],
    )
    return table


def reservation_store(client: Any, *, tries: int = 6) -> DynamoDbReservationStore:
    """Records of mutations in a table of their own."""
    return DynamoDbReservationStore(ReservationTable(client, tries=tries, sleep=no_wait), create_record_table(client))


def no_wait(_seconds: float) -> None:
    """Waiting between tries, in tests."""


@contextlib.contextmanager
def moto() -> Iterator[Any]:
    """A client of DynamoDB in moto inside this process: sequential use only."""
    with mock_aws(), contextlib.closing(dynamodb_client()) as client:
        yield client


def client_by(request: pytest.FixtureRequest) -> contextlib.AbstractContextManager[Any]:
    """A client of the DynamoDB that a fixture's parameter names: `moto`, or DynamoDB Local."""
    if request.param == "moto":
        return moto()
    return contextlib.closing(dynamodb_client(request.getfixturevalue("dynamodb_local").url))


@contextlib.contextmanager
def task_store(client: Any, *, tries: int = 6) -> Iterator[DynamoDbTaskStore]:
    """A store over a table that is gone afterwards: moto copies all it holds at every transaction."""
    table = create_task_table(client)
    try:
        yield DynamoDbTaskStore(ConditionalTable(client, tries=tries, sleep=no_wait), table)
    finally:
        client.delete_table(TableName=table)


@contextlib.contextmanager
def moto_task_store() -> Iterator[DynamoDbTaskStore]:
    """A store in a moto of its own."""
    with moto() as client, task_store(client) as store:
        yield store


@contextlib.contextmanager
def local_task_store(url: str) -> Iterator[DynamoDbTaskStore]:
    """A store in a running DynamoDB Local, for threads too."""
    with contextlib.closing(dynamodb_client(url)) as client, task_store(client, tries=12) as store:
        yield store
