"""The behavior that executes the policies of catalogs."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from delegation.identifiers import TableIdentifier
from delegation.metrics import POLICIES_INVALID, UPKEEP_WAIT_SECONDS, MetricLines
from delegation.polaris.settings import PolarisSettings
from delegation.references.recurring import RecurringCatalog, ensure_each_submitted, ensure_submitted
from delegation.removal.model import Pace
from delegation.removal.purge.limits import ReferenceSettings
from delegation.tasks.work.behaviors import Behavior, FunctionBehavior, Run, TaskBehavior
from delegation.timestamps import utc_now
from delegation.upkeep.execution.kinds import UpkeepCounts, UpkeepPassReport, catalog_upkeep, run_kinds
from delegation.upkeep.execution.needs import UpkeepTasks
from delegation.upkeep.execution.passes import UpkeepPass
from delegation.upkeep.execution.sweeps import OrphanSweeps
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.purge import shared_access
from delegation.wiring.settings import PurgeEnvironment
from delegation.wiring.upkeep.health import health_store
from delegation.wiring.upkeep.source import deployed_policies

_REALM: Final = "POLARIS"


def upkeep_task(deployed: DeployedTasks) -> TaskBehavior:
    """Return the behavior that executes a catalog's policies."""
    return FunctionBehavior(deployed.tasks, _declared(deployed))


def ensure_policies_executed(deployed: DeployedTasks, catalog: str) -> None:
    """Have a catalog's policies executed from now on, where the operator allows any type."""
    if UpkeepLimits.from_properties(PurgeEnvironment.read().properties).types:
        ensure_submitted(deployed.tasks, _declared(deployed), catalog)


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


def _declared(deployed: DeployedTasks) -> Behavior[RecurringCatalog, UpkeepPassReport]:
    settings = UpkeepSettings.from_properties(PurgeEnvironment.read().properties)
    return catalog_upkeep(lambda run: _made(deployed, settings, run), every=settings.interval, counted=count_policies)


@dataclass(frozen=True, slots=True)
class _AllPolicies:
    """One pass for expiry and for orphan files."""

    expiry: UpkeepPass
    sweeps: OrphanSweeps

    def run(self, catalog: str) -> UpkeepCounts:
        return run_kinds((self.expiry, self.sweeps), catalog)


def _made(deployed: DeployedTasks, settings: UpkeepSettings, run: Run) -> _AllPolicies:
    properties = PurgeEnvironment.read().properties
    tables = shared_access(deployed.tasks)[1]
    loads = ReferenceSettings.from_properties(properties).loads_per_second
    realm, healths = PolarisSettings.read().realm or _REALM, health_store()
    policies, limits = deployed_policies(tables.requests), UpkeepLimits.from_properties(properties)
    pace = Pace(loads, now=time.monotonic, sleep=time.sleep).wait
    expiry = UpkeepPass(
        realm,
        healths,
        tables,
        policies,
        UpkeepTasks(deployed.tasks),
        limits,
        settings,
        utc_now,
        pace=pace,
        checkpoint=run.checkpoint,
        waited=count_wait,
    )
    sweeps = OrphanSweeps(
        realm,
        healths,
        tables,
        policies,
        deployed.tasks,
        limits,
        settings,
        utc_now,
        pace=pace,
        checkpoint=run.checkpoint,
        waited=count_wait,
    )
    return _AllPolicies(expiry, sweeps)
