"""Makes the behaviors of operations and of upkeep; each is loaded for its first task."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from delegation.metrics import PURGES_HELD, MetricLines
from delegation.polaris.client import PolarisClient
from delegation.references import CATALOG_HEALTH, CATALOG_UPKEEP
from delegation.references.concurrent_visits import MOST_AT_ONCE
from delegation.references.store import ReferenceStore, ReferenceTable
from delegation.references.visits import TableVisited
from delegation.removal.choice import INLINE_MAX_FILES
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.purge.behavior import PurgeBehavior
from delegation.removal.purge.requests import Limits, PurgeSettings, ReferenceSettings
from delegation.removal.requests import foreign_locations
from delegation.storage.deleter import DeletePolicy
from delegation.storage.s3 import SYNCHRONOUS_TIMEOUTS, S3Timeouts
from delegation.storage.s3_plans import S3PlanStore
from delegation.tasks.life.declared import named
from delegation.tasks.life.model import Task
from delegation.tasks.work.behaviors import BehaviorWhenNeeded, FunctionBehavior, TaskBehavior
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.clients import PATIENT, aws
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.settings import PurgeEnvironment, ReferenceEnvironment, TaskSettings, TombstoneEnvironment
from delegation.wiring.table_access import polaris, synchronous_polaris, vended_store, vended_table
from delegation.wiring.types import OPERATIONS, RUN, Operation, operation_of
from polaris_common.dynamodb import client_config
from polaris_common.errors import DelegationError


def purge_behavior(tasks: TaskService, tables: PolarisClient, timeouts: S3Timeouts | None = None) -> PurgeBehavior:
    """Return the behavior; `timeouts` bounds the calls to S3, by default for a background run."""
    settings = PurgeEnvironment.read()
    limits = Limits.from_properties(settings.properties)
    return PurgeBehavior(
        tasks=tasks,
        catalog=tables,
        store_of=lambda identifier: vended_store(tables, identifier, clock=utc_now, timeouts=timeouts),
        open_table=lambda identifier: vended_table(tables, identifier, clock=utc_now, timeouts=timeouts),
        plans=S3PlanStore(aws("s3", timeouts.config() if timeouts else PATIENT), settings.plan_bucket),
        settings=purge_settings(),
        limits=limits,
        store_with=lambda table: vended_store(tables, table.identifier, clock=utc_now, timeouts=timeouts, loaded=table),
        references=reference_store() if limits.base.references == "index" else None,
        reference_settings=ReferenceSettings.from_properties(settings.properties),
        loads_at_once=MOST_AT_ONCE,
        generic_tables=tables.generic_tables,
        held=count_held,
    )


def count_held(task: Task, error: DelegationError) -> None:
    """Count a purge that waits because a table cannot be read; the line names the table, the metric does not."""
    if isinstance(error, NeighbourUnreadable):
        lines = MetricLines.of_environment()
        lines.put({PURGES_HELD: 1}, task_id=task.task_id, table=error.who, error_code=error.why)


def purge_settings() -> PurgeSettings:
    read = PurgeEnvironment.read()
    most = INLINE_MAX_FILES if read.inline_max_files is None else read.inline_max_files
    delete = DeletePolicy(foreign=foreign_locations(read.properties))
    return PurgeSettings(inline_max_files=most, has_spark=read.spark == "on", delete=delete)


def plan_store() -> S3PlanStore:
    """Return the service's own bucket, with short time-outs for a caller that waits."""
    return S3PlanStore(aws("s3", SYNCHRONOUS_TIMEOUTS.config()), PurgeEnvironment.read().plan_bucket)


def reference_store() -> ReferenceStore:
    """Return the reference index in the table that the environment names."""
    calls = ReferenceTable(aws("dynamodb", client_config()))
    return ReferenceStore(calls, ReferenceEnvironment.read().references_table)


@lru_cache(maxsize=1)
def shared_access(tasks: TaskService) -> tuple[PurgeBehavior, PolarisClient]:
    """Return a process' behavior of purges and its client, which other operations and the index share."""
    tables = polaris()
    return purge_behavior(tasks, tables), tables


def shared_purges(tasks: TaskService) -> PurgeBehavior:
    return shared_access(tasks)[0]


def operations(deployed: DeployedTasks) -> list[TaskBehavior]:
    """Return the behaviors of the operations that this function runs; each is made for its first task."""

    def behavior(operation: Operation) -> TaskBehavior:
        def make() -> TaskBehavior:
            made: TaskBehavior = named(operation.behavior)(deployed.tasks)
            return made

        names = frozenset(task_type.name for task_type in operation.task_types)
        return BehaviorWhenNeeded(names, make, operation.work.payload_version)

    return [behavior(operation) for operation in OPERATIONS if operation.work.runner == RUN]


def synchronous_behaviors(deployed: DeployedTasks) -> list[TaskBehavior]:
    """Return the same with short time-outs, so that a waiting caller gets an answer in time."""
    return [purge_behavior(deployed.tasks, synchronous_polaris(), SYNCHRONOUS_TIMEOUTS)]


def indexing(deployed: DeployedTasks) -> list[TaskBehavior]:
    """Return the behavior that refreshes the reference index, none if the settings disable the index."""

    def visits() -> TableVisited | None:
        from delegation.wiring.upkeep import visited_healths  # noqa: PLC0415 - only a pass reads any

        return visited_healths(deployed)

    purges = replace(shared_access(deployed.tasks)[0], passed=lambda catalog: survey(deployed, catalog), visits=visits)
    indexes = purges.reference_task()
    return [] if indexes is None else [FunctionBehavior(deployed.tasks, indexes)]


def drops(deployed: DeployedTasks) -> list[TaskBehavior]:
    """Return the behaviors of drops and of their upkeep, none in a deployment without a gateway."""
    if TombstoneEnvironment.read().tombstones_table is None:
        return []
    from delegation.wiring.drops import drop_behaviors  # noqa: PLC0415 - only where there is a gateway

    return drop_behaviors(deployed.tasks)


def forecast(task: Task) -> Mapping[str, Any] | None:
    """Return the forecast of a purge's, an expiry's or a dry run's plan as JSON, None without a plan."""
    from delegation.removal.task_attempt import forecast_of  # noqa: PLC0415 - for the API alone

    plan = operation_of(task).plan
    is_dry_run = plan is not None and plan.name == task.task_type
    plan_forecast = forecast_of(task, plan_store(), purge_settings(), is_dry_run=is_dry_run)
    return None if plan_forecast is None else plan_forecast.model_dump(mode="json")


_TYPES: Final = "delegation.upkeep.types"
_NONE: Final = "none"


def upkeep(deployed: DeployedTasks) -> list[TaskBehavior]:
    """Return what reads tables' health and what executes policies; none without a reference index."""
    index = shared_access(deployed.tasks)[0].references
    if index is None:
        return []

    def health() -> TaskBehavior:
        from delegation.wiring.upkeep import health_task  # noqa: PLC0415 - most processes read none

        return health_task(deployed, index)

    def policies() -> TaskBehavior:
        from delegation.wiring.upkeep import upkeep_task  # noqa: PLC0415 - most processes execute none

        return upkeep_task(deployed)

    return [
        BehaviorWhenNeeded(frozenset({CATALOG_HEALTH}), health),
        BehaviorWhenNeeded(frozenset({CATALOG_UPKEEP}), policies),
    ]


def survey(deployed: DeployedTasks, catalog: str) -> None:
    """Start reading a catalog's tables and executing its policies, after a complete pass of its index."""
    from delegation.wiring.upkeep import ensure_health_read, ensure_policies_executed  # noqa: PLC0415 - once a pass

    index = shared_access(deployed.tasks)[0].references
    if index is not None:
        ensure_health_read(deployed, index, catalog)
        ensure_policies_executed(deployed, catalog)


def begin_upkeep(deployed: DeployedTasks) -> None:
    """Start indexing the catalogs that the operator names for upkeep, where no purge may ever happen. The first pass of
    the index starts the rest. A deployment that executes no type indexes none."""
    properties = TaskSettings.read().properties
    if properties.get(_TYPES, _NONE) == _NONE:
        return
    from delegation.wiring.upkeep import ensure_indexed  # noqa: PLC0415 - most deployments execute none

    ensure_indexed(deployed, properties)
