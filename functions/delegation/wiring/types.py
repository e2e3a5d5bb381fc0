"""The operations and the other task types of the service, in one list each. To add one, write its folder and name it
here; nothing else names an operation."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

from delegation.references import CATALOG_HEALTH, CATALOG_UPKEEP, REFERENCE_INDEX
from delegation.removal.expiry.task_type import EXPIRY, EXPIRY_PLAN
from delegation.removal.orphans.task_type import ORPHANS, ORPHANS_PLAN
from delegation.removal.purge.task_type import DROP, PURGE, PURGE_PLAN, TOMBSTONE_UPKEEP
from delegation.rewrites.task_type import COMPACTION, COMPACTION_PLAN, MANIFESTS, MANIFESTS_PLAN, WORKER
from delegation.tasks.life.declared import TaskType, TaskTypes, named
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import STORE_MAINTENANCE, Policies, base_properties

_REFERENCES: Final = TaskType(name=REFERENCE_INDEX, is_housekeeping=True, is_own=True)
_HEALTH: Final = TaskType(name=CATALOG_HEALTH, is_housekeeping=True, is_own=True)
_UPKEEP: Final = TaskType(name=CATALOG_UPKEEP, is_housekeeping=True, is_own=True)
_MAINTENANCE: Final = TaskType(name=STORE_MAINTENANCE, is_housekeeping=True, is_own=True)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on tables: the task type of its work, and that of its dry run. All else that a process needs of it
    is named as `module:name`, and imported on first use. `behavior` returns for a TaskService what runs an attempt in
    this process (`run`) or in a Spark job (`run_job`). `engine` does the work of a job, with an attempt's context and
    the executors' resources. `policies` is the PolicyKind that executes a catalog's policies. `command` is the
    subcommand that submits the work."""

    work: TaskType
    plan: TaskType | None = None
    _: KW_ONLY
    behavior: str
    engine: str
    policies: str | None = None
    command: str | None = None

    @property
    def task_types(self) -> tuple[TaskType, ...]:
        return (self.work,) if self.plan is None else (self.work, self.plan)


_FORECAST: Final = "delegation.wiring.operations:forecast"
RUN: Final = "delegation.wiring.operations:operations"
"""Makes the behaviors of all operations that name it."""
_WAITED_FOR: Final = "delegation.wiring.operations:synchronous_behaviors"

OPERATIONS: Final = (
    Operation(
        PURGE.run_by(RUN, waited_for=_WAITED_FOR).forecast_by(_FORECAST),
        PURGE_PLAN.forecast_by(_FORECAST),
        behavior="delegation.wiring.operations:shared_purges",
        engine="delegation.removal.purge.spark:purge_in_session",
        command="purge",
    ),
    Operation(
        DROP.run_by("delegation.wiring.operations:drops").forecast_by(_FORECAST),
        behavior="delegation.wiring.drops:drop_behavior",
        engine="delegation.removal.purge.spark:purge_in_session",
        command="drop",
    ),
    Operation(
        EXPIRY.run_by(RUN).forecast_by(_FORECAST),
        EXPIRY_PLAN.forecast_by(_FORECAST),
        behavior="delegation.wiring.removals:expiry_behavior",
        engine="delegation.removal.expiry.spark:expire_in_session",
        policies="delegation.upkeep.execution.expiries:PolicyExpiries",
        command="expire",
    ),
    Operation(
        ORPHANS.run_by(RUN),
        ORPHANS_PLAN,
        behavior="delegation.wiring.removals:orphans_behavior",
        engine="delegation.removal.orphans.spark:remove_in_session",
        policies="delegation.upkeep.execution.sweeps:OrphanSweeps",
        command="scan",
    ),
    Operation(
        COMPACTION.run_by(RUN),
        COMPACTION_PLAN,
        behavior="delegation.wiring.rewrites:compaction_behavior",
        engine="delegation.rewrites.job:rewrite_in_session",
        policies="delegation.upkeep.execution.rewrites:PolicyCompactions",
        command="compact",
    ),
    Operation(
        MANIFESTS.run_by(RUN),
        MANIFESTS_PLAN,
        behavior="delegation.wiring.rewrites:manifests_behavior",
        engine="delegation.rewrites.job:rewrite_in_session",
        policies="delegation.upkeep.execution.rewrites:PolicyManifestsRewrites",
        command="rewrite-manifests",
    ),
    Operation(
        WORKER.run_by(RUN),
        behavior="delegation.wiring.rewrites:worker_behavior",
        engine="delegation.rewrites.job:work_in_session",
    ),
)
"""Admission, the API's forms, workers, Spark jobs and policy passes iterate over these."""
_BY_TYPE: Final = {task_type.name: operation for operation in OPERATIONS for task_type in operation.task_types}

TYPES: Final = TaskTypes(
    [
        *(task_type for operation in OPERATIONS for task_type in operation.task_types),
        TOMBSTONE_UPKEEP,
        _REFERENCES.run_by("delegation.wiring.operations:indexing"),
        _HEALTH.run_by("delegation.wiring.operations:upkeep"),
        _UPKEEP,
        _MAINTENANCE.run_by("delegation.wiring.maintenance:behaviors"),
    ]
)
"""A type without `run_by` is run by a behavior that another type names."""

_NOT_OF_TASKS: Final = (
    "delegation.drop.",
    "delegation.upkeep.",
    "polaris.idempotency.",
    "delegation.approvers",
    "delegation.foreign-locations",
)
"""Properties that `gateway.drop.settings`, `upkeep`, `idempotency.settings` and `operations.behaviors` read."""


def default_properties() -> dict[str, str]:
    """Return the proposal's example configuration (Delegation Service proposal, Task Retry)."""
    return {**base_properties(), **TYPES.retry_properties}


def of_tasks(properties: Mapping[str, str]) -> dict[str, str]:
    others = (*TYPES.prefixes, *_NOT_OF_TASKS)
    return {name: value for name, value in properties.items() if not name.startswith(others)}


def policies_of(properties: Mapping[str, str]) -> Policies:
    """Read the service's properties for tasks, and check those of each task type. Raises InvalidProperty."""
    for form in TYPES.forms:
        form.check(properties)
    from delegation.removal.requests import foreign_locations  # noqa: PLC0415 - to check it takes storage
    from delegation.rewrites.terms import tasks_at_once  # noqa: PLC0415

    foreign_locations(properties)
    tasks_at_once(properties)
    return Policies.from_properties(of_tasks(properties))


def load_runners() -> None:
    """Import what makes the behaviors, for a process that runs tasks: at its start, not with its first task."""
    for task_type in TYPES.values():
        if task_type.runner is not None:
            importlib.import_module(task_type.runner.partition(":")[0])


def operation_of(task: Task) -> Operation:
    """Return the operation whose work or dry run a task is. Raises KeyError for a task of another type."""
    return _BY_TYPE[task.task_type]


def forecast_of(task: Task) -> Mapping[str, Any] | None:
    """Return the forecast of a task's plan as JSON, None without a plan."""
    reference = TYPES.of(task).forecast
    if reference is None:
        return None
    forecast: Callable[[Task], Mapping[str, Any] | None] = named(reference)
    return forecast(task)
