"""The behaviors that read the health of tables and execute the policies of catalogs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from delegation.identifiers import TableIdentifier
from delegation.metrics import POLICIES_INVALID, UPKEEP_WAIT_SECONDS, MetricLines
from delegation.polaris.client import PolarisClient
from delegation.polaris.model import LoadedTable
from delegation.polaris.settings import PolarisSettings
from delegation.references.recurring import RecurringCatalog, ensure_each_submitted, ensure_submitted
from delegation.references.store import ReferenceStore
from delegation.references.visits import TableVisited
from delegation.removal.neighbourhood import Pace
from delegation.removal.purge.requests import ReferenceSettings
from delegation.storage.s3 import S3ObjectStore
from delegation.tasks.life.declared import named
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, FunctionBehavior, TaskBehavior
from delegation.timestamps import utc_now
from delegation.upkeep.execution.kinds import PolicyKind, UpkeepCounts
from delegation.upkeep.execution.passes import UpkeepPassReport, catalog_upkeep
from delegation.upkeep.health.refresh import HealthRefresher, HealthReport, catalog_health
from delegation.upkeep.health.store import HealthStore, HealthTable
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.wiring.clients import aws
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.operations import shared_access
from delegation.wiring.policies import deployed_policies
from delegation.wiring.settings import PurgeEnvironment, ReferenceEnvironment
from delegation.wiring.table_access import vended_store
from delegation.wiring.types import OPERATIONS
from polaris_common.dynamodb import client_config

READ_AT_ONCE: Final = 4
"""Tables that are read at a time, each with up to eight manifests in memory."""


def health_store() -> HealthStore:
    """Return the health of tables, in the table of the reference index."""
    calls = HealthTable(aws("dynamodb", client_config()))
    return HealthStore(calls, ReferenceEnvironment.read().references_table)


def health_task(deployed: DeployedTasks, index: ReferenceStore) -> TaskBehavior:
    return FunctionBehavior(deployed.tasks, _health(deployed, index))


def visited_healths(deployed: DeployedTasks) -> TableVisited | None:
    """Return what reads the health of each table that a pass of the index visits; None without an index."""
    access, tables = shared_access(deployed.tasks)
    settings = ReferenceSettings.from_properties(PurgeEnvironment.read().properties)
    return None if access.references is None else _refresher(access.references, tables, settings).visited()


def ensure_health_read(deployed: DeployedTasks, index: ReferenceStore, catalog: str) -> None:
    """Start reading the health of a catalog's tables, as often as the reference index is refreshed."""
    ensure_submitted(deployed.tasks, _health(deployed, index), catalog)


def _health(deployed: DeployedTasks, index: ReferenceStore) -> Behavior[RecurringCatalog, HealthReport]:
    tables = shared_access(deployed.tasks)[1]
    settings = ReferenceSettings.from_properties(PurgeEnvironment.read().properties)

    def refresher(run: AttemptContext) -> HealthRefresher:
        return replace(
            _refresher(index, tables, settings),
            checkpoint=run.checkpoint,
            report=lambda read: run.report(done=read, unit="tables"),
        )

    return catalog_health(refresher, every=settings.refresh_interval)


def _refresher(index: ReferenceStore, tables: PolarisClient, settings: ReferenceSettings) -> HealthRefresher:
    def opened(table: LoadedTable) -> S3ObjectStore:
        return vended_store(tables, table.identifier, clock=utc_now, loaded=table)

    return HealthRefresher(
        health_store(),
        index,
        tables,
        opened,
        utc_now,
        pace=Pace(settings.loads_per_second, now=time.monotonic, sleep=time.sleep).wait,
        at_once=READ_AT_ONCE,
    )


_REALM: Final = "POLARIS"


def upkeep_task(deployed: DeployedTasks) -> TaskBehavior:
    return FunctionBehavior(deployed.tasks, _upkeep(deployed))


def ensure_policies_executed(deployed: DeployedTasks, catalog: str) -> None:
    """Start executing a catalog's policies if the operator allows any type."""
    if UpkeepLimits.from_properties(PurgeEnvironment.read().properties).types:
        ensure_submitted(deployed.tasks, _upkeep(deployed), catalog)


def ensure_indexed(deployed: DeployedTasks, properties: Mapping[str, str]) -> None:
    """Submit the task of the reference index of each catalog in the operator's list of places to maintain."""
    limits = UpkeepLimits.from_properties(properties)
    indexing = shared_access(deployed.tasks)[0].reference_task()
    if indexing is not None and limits.types:
        ensure_each_submitted(deployed.tasks, indexing, sorted({place[0] for place in limits.include}))


def count_policies(counts: UpkeepCounts) -> None:
    """Print the metric of policies that cannot be executed or read; each pass calls this."""
    MetricLines.of_environment().put(
        {POLICIES_INVALID: len(counts.invalid) + counts.unread},
        policies=sorted(counts.invalid)[:20],
        unread=counts.why_unread or "",
    )


def count_wait(wait: timedelta, table: TableIdentifier | None) -> None:
    """Print the metric of the longest wait for a run, and the table that waits; each pass calls this."""
    MetricLines.of_environment().put({UPKEEP_WAIT_SECONDS: wait.total_seconds()}, table=str(table or ""))


def _upkeep(deployed: DeployedTasks) -> Behavior[RecurringCatalog, UpkeepPassReport]:
    settings = UpkeepSettings.from_properties(PurgeEnvironment.read().properties)
    return catalog_upkeep(lambda run: _kinds(deployed, settings, run), every=settings.interval, counted=count_policies)


def _kinds(deployed: DeployedTasks, settings: UpkeepSettings, run: AttemptContext) -> Sequence[PolicyKind]:
    properties = PurgeEnvironment.read().properties
    tables = shared_access(deployed.tasks)[1]
    loads = ReferenceSettings.from_properties(properties).loads_per_second
    realm, healths = PolarisSettings.read().realm or _REALM, health_store()
    policies, limits = deployed_policies(tables.requests), UpkeepLimits.from_properties(properties)
    pace = Pace(loads, now=time.monotonic, sleep=time.sleep).wait
    shared = (realm, healths, tables, policies, deployed.tasks, limits, settings, utc_now, pace, run.checkpoint)
    kinds = [named(operation.policies) for operation in OPERATIONS if operation.policies is not None]
    return [kind(*shared, count_wait) for kind in kinds]
