from delegation.removal.expiry.behavior import ExpiryBehavior
from delegation.removal.expiry.context import ExpirySettings
from delegation.removal.expiry.requests import Floor
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.upkeep.execution.asked import PolicyPermissions
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.wiring.purge import purge_settings, shared_access, vended_table
from delegation.wiring.settings import PurgeEnvironment
from delegation.wiring.upkeep.source import deployed_policies


def expiry_settings() -> ExpirySettings:
    """Return the operator's numbers, which are those of purges."""
    numbers = purge_settings()
    return ExpirySettings(inline_max_files=numbers.inline_max_files, has_spark=numbers.has_spark, delete=numbers.delete)


def expiry_behavior(tasks: TaskService) -> ExpiryBehavior:
    """Return the behavior of expiries and of their dry runs. References and the engine are found by the settings of
    purges."""
    purge, tables = shared_access(tasks)
    properties = PurgeEnvironment.read().properties
    return ExpiryBehavior(
        tasks=tasks,
        commits=tables,
        open_table=lambda identifier: vended_table(tables, identifier, clock=utc_now),
        plans=purge.plans,
        search=purge.search,
        hold=purge.hold,
        lost_refs=purge.references,
        settings=expiry_settings(),
        floor=Floor.from_properties(properties),
        permissions=PolicyPermissions(deployed_policies(tables.requests), UpkeepLimits.from_properties(properties)),
    )
