"""Idempotency records, beside the tasks that they belong to."""

from delegation.idempotency.dynamodb import DynamoDbIdempotencyStore
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from delegation.wiring.settings import IdempotencySettings


def idempotency_records(tasks: DynamoDbTaskStore) -> DynamoDbIdempotencyStore:
    """The records that are accepted in the same transaction as their tasks, and so lie beside them in DynamoDB."""
    return DynamoDbIdempotencyStore(tasks, IdempotencySettings.read().idempotency_table)
