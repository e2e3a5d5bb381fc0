"""The behaviors of this deployment, for steps and workers."""

from delegation.orchestration.steps import Steps
from delegation.tasks.work.behaviors import Behaviors, FunctionBehavior
from delegation.wiring.deployment import DeployedTasks, deployment
from delegation.wiring.maintenance import store_maintenance
from delegation.wiring.purge import polaris, purge_behavior


def all_behaviors(deployed: DeployedTasks) -> Behaviors:
    """Return the built-in behaviors and the added ones."""
    maintains = FunctionBehavior(deployed.tasks, store_maintenance(deployed))
    purges = purge_behavior(deployed.tasks, polaris())
    indexes = purges.reference_task()
    indexing = [] if indexes is None else [FunctionBehavior(deployed.tasks, indexes)]
    return Behaviors([purges, maintains, *indexing, *deployed.added])


def steps_with_behaviors() -> Steps:
    """Return the steps for Prepare and RunInline."""
    deployed = deployment()
    behaviors = all_behaviors(deployed)
    return Steps(deployed.tasks, behaviors.kinds, behaviors=behaviors)
