from delegation.removal.model import TableSource
from delegation.removal.orphans.behavior import OrphansBehavior
from delegation.removal.orphans.context import OrphanSettings, few_threads
from delegation.removal.orphans.limits import OrphanLimits
from delegation.removal.orphans.others import CatalogPlaces
from delegation.storage.listing.model import TagStore
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.upkeep.execution.asked import RemovalPermissions
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.wiring.clients import aws
from delegation.wiring.purge import purge_settings, shared_access, vended_table
from delegation.wiring.settings import PurgeEnvironment
from delegation.wiring.upkeep.source import deployed_policies


def _tags(role: str, location: str, table: TableSource) -> TagStore:
    from delegation.wiring.orphans.roles import tags_as  # noqa: PLC0415 - only for a quarantine

    # The catalog states the store's endpoint and region when the table is loaded.
    return tags_as(aws("sts"), role, location, lambda: table.load().s3, utc_now)


def orphans_behavior(tasks: TaskService) -> OrphansBehavior:
    """Return the behavior of removals and of their dry runs. References and the engine are found by the settings of
    purges."""
    numbers = purge_settings()
    purge, tables = shared_access(tasks)
    properties = PurgeEnvironment.read().properties
    permissions = RemovalPermissions(deployed_policies(tables.requests), UpkeepLimits.from_properties(properties))
    return OrphansBehavior(
        tasks=tasks,
        open_table=lambda identifier: vended_table(tables, identifier, clock=utc_now),
        plans=purge.plans,
        search=purge.search,
        places=lambda catalogs, before: CatalogPlaces(tables, catalogs, before)(),
        hold=purge.hold,
        settings=OrphanSettings(
            inline_max_files=numbers.inline_max_files,
            has_spark=numbers.has_spark,
            delete=few_threads(numbers.delete.foreign),
        ),
        limits=OrphanLimits.from_properties(properties),
        tags=_tags,
        permissions=permissions,
        asked_age=permissions.age_of,
    )
