"""The tables of a local stack, found by their keys."""

from typing import Any, Final

from delegation.cli.errors import CommandError, TaskTableUnknown

_INDEX_KEY: Final = [
    {"AttributeName": "pk", "KeyType": "HASH"},
    {"AttributeName": "sk", "KeyType": "RANGE"},
]
_TASK_KEY: Final = [
    {"AttributeName": "task_id", "KeyType": "HASH"},
    {"AttributeName": "version", "KeyType": "RANGE"},
]


def find_task_table(client: Any) -> str:
    """Return the only table with the task table's key schema; raises TaskTableUnknown, StoreUnavailable."""
    found = _tables_with(client, _TASK_KEY)
    if len(found) != 1:
        raise TaskTableUnknown(
            f"{len(found)} tables have the key schema of the task table: {', '.join(found) or 'none'}"
        )
    return found[0]


def find_index_table(client: Any) -> str:
    """Return the only table of a stack that can be the reference index; raises CommandError, StoreUnavailable."""
    found = [name for name in _tables_with(client, _INDEX_KEY) if "references" in name.lower()]
    if len(found) != 1:
        raise CommandError(
            f"{len(found)} tables can be the reference index: {', '.join(found) or 'none'}",
            "Name it with --index-table or DELEGATION_REFERENCES_TABLE: the table References of the Data stack.",
            code="INDEX_TABLE_UNKNOWN",
        )
    return found[0]


def _tables_with(client: Any, key: list[dict[str, str]]) -> list[str]:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    from delegation.tasks.errors import StoreUnavailable  # noqa: PLC0415

    try:
        names = [name for page in client.get_paginator("list_tables").paginate() for name in page["TableNames"]]
        return [name for name in names if client.describe_table(TableName=name)["Table"]["KeySchema"] == key]
    except (BotoCoreError, ClientError) as error:
        raise StoreUnavailable(f"DynamoDB cannot list its tables: {type(error).__name__}") from error
