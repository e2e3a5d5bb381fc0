"""Task stores to run one suite on: in memory, DynamoDB inside moto, DynamoDB Local."""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import boto3
from botocore.config import Config
from moto import mock_aws

from delegation.tasks.conditional import ConditionalTable
from delegation.tasks.dynamodb import DUE_INDEX, DynamoDbTaskStore

REGION = "us-east-1"


def dynamodb_client(url: str | None = None) -> Any:
    return boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=32),
    )


def create_task_table(client: Any) -> str:
    """A table of its own, as infra declares it: key (task_id, version), sparse index `due`."""
    table = f"tasks-{uuid.uuid4()}"
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": "task_id", "AttributeType": "S"},
            {"AttributeName": "version", "AttributeType": "N"},
            {"AttributeName": "due_bucket", "AttributeType": "S"},
            {"AttributeName": "due_at", "AttributeType": "S"},
        ],
        KeySchema=[
            {"AttributeName": "task_id", "KeyType": "HASH"},
            {"AttributeName": "version", "KeyType": "RANGE"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": DUE_INDEX,
                "KeySchema": [
                    {"AttributeName": "due_bucket", "KeyType": "HASH"},
                    {"AttributeName": "due_at", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    )
    return table


def no_wait(_seconds: float) -> None:
    """Waiting between tries, in tests."""


@contextlib.contextmanager
def moto_task_store(wrap: Callable[[Any], Any] = lambda client: client) -> Iterator[DynamoDbTaskStore]:
    """A store in moto inside this process: sequential use only. `wrap` may put something around its client."""
    with mock_aws(), contextlib.closing(dynamodb_client()) as client:
        table = create_task_table(client)
        yield DynamoDbTaskStore(ConditionalTable(wrap(client), sleep=no_wait), table)


@contextlib.contextmanager
def local_task_store(url: str) -> Iterator[DynamoDbTaskStore]:
    """A store in a running DynamoDB Local, for threads too."""
    with contextlib.closing(dynamodb_client(url)) as client:
        table = create_task_table(client)
        yield DynamoDbTaskStore(ConditionalTable(client, tries=12), table)
        client.delete_table(TableName=table)
