"""The wiring of upkeep."""

from delegation.references.kinds import CATALOG_HEALTH
from delegation.tasks.work.behaviors import BehaviorWhenNeeded, TaskBehavior
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.purge import shared_access


def behaviors(deployed: DeployedTasks) -> list[TaskBehavior]:
    """Return the behavior that reads the health of tables, none where the settings want no reference index."""
    index = shared_access(deployed.tasks)[0].references
    if index is None:
        return []

    def make() -> TaskBehavior:
        from delegation.wiring.upkeep.health import health_task  # noqa: PLC0415 - most processes read none

        return health_task(deployed, index)

    return [BehaviorWhenNeeded(frozenset({CATALOG_HEALTH}), make)]


def survey(deployed: DeployedTasks, catalog: str) -> None:
    """Have the health of a catalog's tables read, after a complete pass of its index."""
    from delegation.wiring.upkeep.health import ensure_health_read  # noqa: PLC0415 - once a pass

    index = shared_access(deployed.tasks)[0].references
    if index is not None:
        ensure_health_read(deployed, index, catalog)
