"""The task table that `delegation tasks create-table` makes is one that the store works on."""

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from delegation.cli.connection import find_task_table
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from delegation.tasks.stores.dynamodb_reads import create_task_table
from tests.contract.task_tables import create_task_table as ours
from tests.contract.task_tables import dynamodb_client, moto
from tests.kit.tasks.builders import HOUR, NOW, submitted


def test_a_created_table_serves_the_store_and_is_not_created_twice() -> None:
    with moto() as client:
        assert [create_task_table(client, "acme") for _ in range(2)] == [True, False]
        assert find_task_table(client) == "acme"
        store = DynamoDbTaskStore(ConditionalTable(client), "acme")
        task = store.apply(Create(submitted()))
        assert [entry.task_id for entry in store.due(NOW + HOUR)] == [task.task_id]
        described = [client.describe_table(TableName=name)["Table"] for name in ("acme", ours(client))]
        indexes = [
            {one["IndexName"]: one["KeySchema"] for one in table["GlobalSecondaryIndexes"]} for table in described
        ]
        assert described[0]["KeySchema"] == described[1]["KeySchema"]
        assert indexes[0] == indexes[1]


def test_a_refusal_is_named() -> None:
    client = dynamodb_client()
    with Stubber(client) as stub:
        stub.add_client_error("create_table", "AccessDeniedException")
        with pytest.raises(StoreUnavailable, match="acme could not be created: AccessDeniedException") as refused:
            create_task_table(client, "acme")
    assert isinstance(refused.value.__cause__, ClientError)
    client.close()
