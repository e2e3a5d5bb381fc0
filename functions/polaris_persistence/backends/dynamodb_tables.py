"""Creates the two DynamoDB tables with the keys that `backends.dynamodb` uses."""

from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from polaris_persistence.backends import dynamodb_items as items
from polaris_persistence.errors import BackendUnavailable

_OBJECTS: Final = {items.KEY: "S", items.PART: "N"}
_REFERENCES: Final = {items.KEY: "S"}


def create_tables(client: Any, objects: str, references: str) -> list[str]:
    """Create the two tables, billed by request, wait until they can be used, and return the names of the new ones.

    `client` is a boto3 DynamoDB client. Raises BackendUnavailable if DynamoDB refuses or cannot be reached.
    """
    tables = ((objects, _OBJECTS), (references, _REFERENCES))
    return [name for name, key in tables if _create(client, name, key)]


def _create(client: Any, name: str, key: Mapping[str, str]) -> bool:
    try:
        client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": part, "AttributeType": kind} for part, kind in key.items()],
            KeySchema=[
                {"AttributeName": part, "KeyType": kind} for part, kind in zip(key, ("HASH", "RANGE"), strict=False)
            ],
        )
        client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    except client.exceptions.ResourceInUseException:
        return False
    except ClientError as error:
        raise BackendUnavailable(f"table {name} was not created: {error.response['Error']['Code']}") from error
    except BotoCoreError as error:
        raise BackendUnavailable(f"table {name} was not created: {type(error).__name__}") from error
    return True
