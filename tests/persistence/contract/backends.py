"""Persistence backends to run one suite on: in memory, DynamoDB inside moto, DynamoDB Local."""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import boto3

from polaris_common.dynamodb import client_config
from polaris_persistence.backends.dynamodb import Calls, DynamoDbBackend
from tests.aws import mock_aws


def dynamodb_client(url: str | None = None) -> Any:
    return boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=client_config(max_pool_connections=32, read_timeout=60),
    )


def create_tables(client: Any) -> tuple[str, str]:
    """Create an objects table and a references table with new names."""
    objects, references = f"objects-{uuid.uuid4()}", f"references-{uuid.uuid4()}"
    key = {"AttributeName": "key", "AttributeType": "S"}
    client.create_table(
        TableName=objects,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[key, {"AttributeName": "part", "AttributeType": "N"}],
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}, {"AttributeName": "part", "KeyType": "RANGE"}],
    )
    client.create_table(
        TableName=references,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[key],
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
    )
    return objects, references


def no_wait(_seconds: float) -> None:
    """Do not wait between tries."""


@contextlib.contextmanager
def moto_backend(wrap: Callable[[Any], Any] = lambda client: client, **more: Any) -> Iterator[DynamoDbBackend]:
    """Provide DynamoDB in this process, for sequential use only; `wrap` may wrap the client."""
    with mock_aws(), contextlib.closing(dynamodb_client()) as client:
        objects, references = create_tables(client)
        calls = Calls(wrap(client), sleep=no_wait)
        # moto loses acknowledged writes under threads.
        yield DynamoDbBackend(calls, objects=objects, references=references, parallel=1, **more)


def damage_row(client: Any, table: str, wanted: Callable[[str], bool], changes: dict[str, Any]) -> None:
    """Change attributes of the one row whose key is wanted; None removes one."""
    [row] = [one for one in client.scan(TableName=table)["Items"] if wanted(one["key"]["S"])]
    client.delete_item(TableName=table, Key={name: row[name] for name in ("key", "part") if name in row})
    damaged = {name: value for name, value in {**row, **changes}.items() if value is not None}
    client.put_item(TableName=table, Item=damaged)


@contextlib.contextmanager
def local_backend(url: str) -> Iterator[DynamoDbBackend]:
    """Provide DynamoDB Local, also for threads and processes."""
    with contextlib.closing(dynamodb_client(url)) as client:
        objects, references = create_tables(client)
        yield DynamoDbBackend(Calls(client), objects=objects, references=references)
        client.delete_table(TableName=objects)
        client.delete_table(TableName=references)
