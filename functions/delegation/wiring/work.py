"""The behaviors of this deployment, for steps and workers."""

from delegation.orchestration.steps import Steps
from delegation.tasks.work.behaviors import Behaviors, FunctionBehavior, TaskBehavior
from delegation.wiring.deployment import DeployedTasks, deployment
from delegation.wiring.maintenance import store_maintenance
from delegation.wiring.purge import polaris, purge_behavior
from delegation.wiring.settings import TombstoneEnvironment


def all_behaviors(deployed: DeployedTasks) -> Behaviors:
    """Return the built-in behaviors and the added ones."""
    maintains = FunctionBehavior(deployed.tasks, store_maintenance(deployed))
    tables = polaris()
    purges = purge_behavior(deployed.tasks, tables)
    indexes = purges.reference_task()
    indexing = [] if indexes is None else [FunctionBehavior(deployed.tasks, indexes)]
    drops: list[TaskBehavior] = []
    if TombstoneEnvironment.read().tombstones_table is not None:
        from delegation.wiring.gateway.drop import drop_behaviors  # noqa: PLC0415 - only where there is a gateway

        drops = drop_behaviors(deployed.tasks, purges, tables)
    return Behaviors([purges, maintains, *indexing, *drops, *deployed.added])


def steps_with_behaviors() -> Steps:
    """Return the steps for Prepare and RunInline."""
    deployed = deployment()
    behaviors = all_behaviors(deployed)
    return Steps(deployed.tasks, behaviors.kinds, behaviors=behaviors)
