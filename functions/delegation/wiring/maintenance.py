"""The recurring task that tidies tasks and idempotency records."""

from delegation.idempotency.upkeep import RecordUpkeep
from delegation.tasks.work import maintenance
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.changes import new_nonce
from delegation.tasks.work.maintenance import MaintenanceReport, TaskMaintenance
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.records import idempotency_records
from delegation.wiring.settings import IDEMPOTENCY_LIFETIME


def store_maintenance(deployed: DeployedTasks) -> Behavior[TaskMaintenance, MaintenanceReport]:
    """The behavior; a process that only submits it needs no access to records."""

    def records() -> RecordUpkeep:
        store = idempotency_records(deployed.store)
        return RecordUpkeep(deployed.store, store, lifetime=IDEMPOTENCY_LIFETIME, nonce=new_nonce)

    return maintenance.store_maintenance(deployed.tasks, records, lambda: deployed.kinds)
