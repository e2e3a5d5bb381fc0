"""The recurring task that tidies tasks and idempotency records."""

from delegation.idempotency.dynamodb import DynamoDbIdempotencyStore
from delegation.idempotency.upkeep import RecordUpkeep
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from delegation.tasks.work import maintenance
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.changes import new_nonce
from delegation.tasks.work.maintenance import Maintenance, MaintenanceReport
from delegation.wiring.settings import IDEMPOTENCY_LIFETIME, IdempotencySettings
from delegation.wiring.tasks import Deployment


def idempotency_records(tasks: DynamoDbTaskStore) -> DynamoDbIdempotencyStore:
    """The records that are accepted in the same transaction as their tasks, and so lie beside them in DynamoDB."""
    return DynamoDbIdempotencyStore(tasks, IdempotencySettings.read().idempotency_table)


def store_maintenance(deployed: Deployment) -> Behavior[Maintenance, MaintenanceReport]:
    """The behavior; a process that only submits it needs no access to records."""

    def records() -> RecordUpkeep:
        store = idempotency_records(deployed.store)
        return RecordUpkeep(deployed.store, store, lifetime=IDEMPOTENCY_LIFETIME, nonce=new_nonce)

    return maintenance.store_maintenance(deployed.tasks, records, lambda: deployed.kinds)
