"""The task types of the service, in one list: to add one, write its folder and name it here."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from delegation.references import CATALOG_HEALTH, CATALOG_UPKEEP, REFERENCE_INDEX
from delegation.removal.expiry.task_type import EXPIRY, EXPIRY_PLAN
from delegation.removal.orphans.task_type import ORPHANS, ORPHANS_PLAN
from delegation.removal.purge.task_type import DROP, PURGE, PURGE_PLAN, TOMBSTONE_UPKEEP
from delegation.tasks.life.declared import TaskType, TaskTypes, named
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import STORE_MAINTENANCE, Policies, base_properties

_REFERENCES: Final = TaskType(name=REFERENCE_INDEX, is_housekeeping=True, is_own=True)
_HEALTH: Final = TaskType(name=CATALOG_HEALTH, is_housekeeping=True, is_own=True)
_UPKEEP: Final = TaskType(name=CATALOG_UPKEEP, is_housekeeping=True, is_own=True)
_MAINTENANCE: Final = TaskType(name=STORE_MAINTENANCE, is_housekeeping=True, is_own=True)

_FORECAST: Final = "delegation.wiring.operations:forecast"
_WAITED_FOR: Final = "delegation.wiring.operations:synchronous_behaviors"

TYPES: Final = TaskTypes(
    [
        PURGE.run_by("delegation.wiring.operations:purges", waited_for=_WAITED_FOR).forecast_by(_FORECAST),
        PURGE_PLAN.forecast_by(_FORECAST),
        DROP.run_by("delegation.wiring.operations:drops").forecast_by(_FORECAST),
        TOMBSTONE_UPKEEP,
        EXPIRY.run_by("delegation.wiring.operations:expiries").forecast_by(_FORECAST),
        EXPIRY_PLAN.forecast_by(_FORECAST),
        ORPHANS.run_by("delegation.wiring.operations:removals"),
        ORPHANS_PLAN,
        _REFERENCES.run_by("delegation.wiring.operations:indexing"),
        _HEALTH.run_by("delegation.wiring.operations:upkeep"),
        _UPKEEP,
        _MAINTENANCE.run_by("delegation.wiring.maintenance:behaviors"),
    ]
)
"""One line for each type; a type without `run_by` is run by the behavior of the one above it."""

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
    """Read the service's properties for tasks, and check those of each task type; raise InvalidProperty."""
    for form in TYPES.forms:
        form.check(properties)
    from delegation.removal.requests import foreign_locations  # noqa: PLC0415 - to check it takes storage

    foreign_locations(properties)
    return Policies.from_properties(of_tasks(properties))


def load_runners() -> None:
    """Import what makes the behaviors, for a process that runs tasks: while it starts, not with its first task."""
    for one in TYPES.values():
        if one.runner is not None:
            importlib.import_module(one.runner.partition(":")[0])


def forecast_of(task: Task) -> Mapping[str, Any] | None:
    """Return the forecast of a task's plan as JSON has it, None without a plan."""
    reference = TYPES.of(task).forecast
    if reference is None:
        return None
    forecast: Callable[[Task], Mapping[str, Any] | None] = named(reference)
    return forecast(task)
