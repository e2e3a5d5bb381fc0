"""The task table itself: its keys and its indexes, as a deployment has them."""

from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.stores.dynamodb_reads import (
    ADMISSION_INDEX,
    CORRELATION_INDEX,
    DUE_INDEX,
    RECEIVED_INDEX,
    TARGET_INDEX,
)

KEY: Final = {"task_id": "S", "version": "N"}
_INDEXES: Final = {
    DUE_INDEX: {"due_bucket": "S", "due_at": "S"},
    ADMISSION_INDEX: {"admission_bucket": "S", "admission_key": "S"},
    RECEIVED_INDEX: {"received_bucket": "S", "received_key": "S"},
    TARGET_INDEX: {"target_key": "S", "received_key": "S"},
    CORRELATION_INDEX: {"correlation_key": "S", "received_key": "S"},
}


def create_task_table(client: Any, name: str) -> bool:
    """Create the task table, billed by request, and wait for it; False if it exists. `client` is a boto3 DynamoDB
    client. Raises StoreUnavailable if DynamoDB refuses or cannot be reached."""
    indexes = [
        {"IndexName": name, "KeySchema": _schema(keys), "Projection": {"ProjectionType": "KEYS_ONLY"}}
        for name, keys in _INDEXES.items()
    ]
    types = {**KEY, **{name: kind for keys in _INDEXES.values() for name, kind in keys.items()}}
    try:
        client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": one, "AttributeType": types[one]} for one in types],
            KeySchema=_schema(KEY),
            GlobalSecondaryIndexes=indexes,
        )
        client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    except client.exceptions.ResourceInUseException:
        return False
    except ClientError as error:
        raise StoreUnavailable(f"table {name} was not created: {error.response['Error']['Code']}") from error
    except BotoCoreError as error:
        raise StoreUnavailable(f"table {name} was not created: {type(error).__name__}") from error
    return True


def _schema(names: dict[str, str]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": part} for name, part in zip(names, ("HASH", "RANGE"), strict=True)]
