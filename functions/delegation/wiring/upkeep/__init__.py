from typing import Final

from delegation.references.names import CATALOG_HEALTH, CATALOG_UPKEEP
from delegation.tasks.work.behaviors import BehaviorWhenNeeded, TaskBehavior
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.purge import shared_access
from delegation.wiring.settings import TaskSettings

_TYPES: Final = "delegation.upkeep.types"
_NONE: Final = "none"


def behaviors(deployed: DeployedTasks) -> list[TaskBehavior]:
    """Return what reads the health of tables and what executes policies; neither where no reference index is wanted."""
    index = shared_access(deployed.tasks)[0].references
    if index is None:
        return []

    def health() -> TaskBehavior:
        from delegation.wiring.upkeep.health import health_task  # noqa: PLC0415 - most processes read none

        return health_task(deployed, index)

    def policies() -> TaskBehavior:
        from delegation.wiring.upkeep.policies import upkeep_task  # noqa: PLC0415 - most processes execute none

        return upkeep_task(deployed)

    return [
        BehaviorWhenNeeded(frozenset({CATALOG_HEALTH}), health),
        BehaviorWhenNeeded(frozenset({CATALOG_UPKEEP}), policies),
    ]


def survey(deployed: DeployedTasks, catalog: str) -> None:
    """Have a catalog's tables read, and its policies executed, after a complete pass of its index."""
    from delegation.wiring.upkeep.health import ensure_health_read  # noqa: PLC0415 - once a pass
    from delegation.wiring.upkeep.policies import ensure_policies_executed  # noqa: PLC0415

    index = shared_access(deployed.tasks)[0].references
    if index is not None:
        ensure_health_read(deployed, index, catalog)
        ensure_policies_executed(deployed, catalog)


def begin_upkeep(deployed: DeployedTasks) -> None:
    """Have the catalogs indexed that the operator names for upkeep, where nobody may ever purge a table. The first pass
    of the index starts the rest. A deployment that executes no type indexes none."""
    properties = TaskSettings.read().properties
    if properties.get(_TYPES, _NONE) == _NONE:
        return
    from delegation.wiring.upkeep.policies import ensure_indexed  # noqa: PLC0415 - most deployments execute none

    ensure_indexed(deployed, properties)
