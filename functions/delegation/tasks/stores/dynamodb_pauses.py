"""PauseStore on the task table: one item beside the tasks, which is no head and no row and in no index."""

from typing import Final

from delegation.tasks.pauses import PauseRecord, pauses_item, pauses_of
from delegation.tasks.stores.dynamodb import ConditionalTable
from polaris_common.dynamodb import from_item, to_item

PAUSES_KEY: Final = {"task_id": "pauses", "version": -1}


class DynamoDbPauseStore:
    def __init__(self, dynamodb: ConditionalTable, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def read(self) -> PauseRecord:
        answer = self._dynamodb.repeatable(
            "get_item", TableName=self._table, Key=to_item(PAUSES_KEY), ConsistentRead=True
        )
        return pauses_of(from_item(answer["Item"]) if "Item" in answer else None)

    def write(self, record: PauseRecord) -> bool:
        before = record.revision - 1
        refused = self._dynamodb.conditional(
            "put_item",
            TableName=self._table,
            Item=to_item({**pauses_item(record), **PAUSES_KEY}),
            ConditionExpression="revision = :before" if before else "attribute_not_exists(task_id)",
            **({"ExpressionAttributeValues": to_item({":before": before})} if before else {}),
        )
        return refused is None
