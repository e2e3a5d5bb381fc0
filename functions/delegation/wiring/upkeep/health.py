"""The behavior that reads the health of tables."""

import time
from typing import Final

from delegation.polaris.client import PolarisClient
from delegation.polaris.model import LoadedTable
from delegation.references.recurring import RecurringCatalog, ensure_submitted
from delegation.references.store import ReferenceStore
from delegation.removal.model import Pace
from delegation.removal.purge.limits import ReferenceSettings
from delegation.storage.s3 import S3ObjectStore
from delegation.tasks.work.behaviors import Behavior, FunctionBehavior, Run, TaskBehavior
from delegation.timestamps import utc_now
from delegation.upkeep.health.refresh import HealthRefresher, HealthReport, catalog_health
from delegation.upkeep.health.store import DynamoDbHealthStore, HealthTable
from delegation.wiring.clients import aws
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.purge import shared_access, vended_store
from delegation.wiring.settings import PurgeEnvironment, ReferenceEnvironment
from polaris_common.dynamodb import client_config

READ_AT_ONCE: Final = 4
"""Tables that are read at a time, each with up to eight manifests in memory."""


def health_store() -> DynamoDbHealthStore:
    """Return the health of tables, in the table of the reference index."""
    calls = HealthTable(aws("dynamodb", client_config()))
    return DynamoDbHealthStore(calls, ReferenceEnvironment.read().references_table)


def health_task(deployed: DeployedTasks, index: ReferenceStore) -> TaskBehavior:
    """Return the behavior that reads the health of a catalog's tables."""
    return FunctionBehavior(deployed.tasks, _declared(deployed, index))


def ensure_health_read(deployed: DeployedTasks, index: ReferenceStore, catalog: str) -> None:
    """Have the health of a catalog's tables read, now and as often as the reference index is refreshed."""
    ensure_submitted(deployed.tasks, _declared(deployed, index), catalog)


def _declared(deployed: DeployedTasks, index: ReferenceStore) -> Behavior[RecurringCatalog, HealthReport]:
    tables = shared_access(deployed.tasks)[1]
    settings = ReferenceSettings.from_properties(PurgeEnvironment.read().properties)
    return catalog_health(lambda run: _refresher(index, tables, settings, run), every=settings.refresh_interval)


def _refresher(index: ReferenceStore, tables: PolarisClient, settings: ReferenceSettings, run: Run) -> HealthRefresher:
    def opened(table: LoadedTable) -> S3ObjectStore:
        return vended_store(tables, table.identifier, clock=utc_now, loaded=table)

    return HealthRefresher(
        health_store(),
        index,
        tables,
        opened,
        utc_now,
        pace=Pace(settings.loads_per_second, now=time.monotonic, sleep=time.sleep).wait,
        checkpoint=run.checkpoint,
        report=lambda read: run.report(done=read, unit="tables"),
        at_once=READ_AT_ONCE,
    )
