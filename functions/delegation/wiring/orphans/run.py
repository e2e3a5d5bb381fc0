"""The behavior of removals of orphan files."""

from delegation.keeping.model import TableSource
from delegation.operations.orphans.behavior.limits import OrphanLimits
from delegation.operations.orphans.behavior.run import OrphansBehavior
from delegation.operations.orphans.catalog_places import CatalogPlaces
from delegation.storage.listing.tags import TagStore
from delegation.storage.s3 import S3ObjectStore
from delegation.timestamps import utc_now
from delegation.upkeep.execution.removals import RemovalPermissions
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.wiring.clients import aws
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.purge import shared_access, vended_table
from delegation.wiring.settings import PurgeEnvironment
from delegation.wiring.upkeep.source import deployed_policies


def _tags(role: str, location: str, table: TableSource) -> TagStore:
    from delegation.wiring.orphans.roles import tags_as  # noqa: PLC0415 - only for a quarantine

    # The catalog states the store's endpoint and region when the table is loaded.
    return tags_as(aws("sts"), role, location, lambda: table.load().s3, utc_now)


def orphans_behavior(deployed: DeployedTasks) -> OrphansBehavior:
    """Return the behavior of removals and of their dry runs; it finds other tables' references as purges do."""
    purge, tables = shared_access(deployed.tasks)
    properties = PurgeEnvironment.read().properties
    return OrphansBehavior(
        tasks=deployed.tasks,
        open_table=lambda identifier: vended_table(tables, identifier, clock=utc_now),
        plans=purge.plans,
        search=purge.search,
        places=lambda catalogs, before: CatalogPlaces(tables, catalogs, before)(),
        hold=purge.hold,
        limits=OrphanLimits.from_properties(properties),
        reports=S3ObjectStore(),
        tags=_tags,
        permissions=RemovalPermissions(deployed_policies(tables.requests), UpkeepLimits.from_properties(properties)),
    )
