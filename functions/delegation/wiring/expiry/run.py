"""The behavior of expiries of snapshots."""

from delegation.operations.expiry.behavior.limits import Floor
from delegation.operations.expiry.behavior.run import ExpiryBehavior
from delegation.timestamps import utc_now
from delegation.upkeep.execution.permissions import PolicyPermissions
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.purge import shared_access, vended_table
from delegation.wiring.settings import PurgeEnvironment
from delegation.wiring.upkeep.source import deployed_policies


def expiry_behavior(deployed: DeployedTasks) -> ExpiryBehavior:
    """Return the behavior of expiries and of their dry runs; it finds other tables' references as purges do."""
    purge, tables = shared_access(deployed.tasks)
    properties = PurgeEnvironment.read().properties
    return ExpiryBehavior(
        tasks=deployed.tasks,
        commits=tables,
        open_table=lambda identifier: vended_table(tables, identifier, clock=utc_now),
        plans=purge.plans,
        search=purge.search,
        hold=purge.hold,
        lost_refs=purge.references,
        floor=Floor.from_properties(properties),
        permissions=PolicyPermissions(deployed_policies(tables.requests), UpkeepLimits.from_properties(properties)),
    )
