"""Everything that this deployment can run, for the steps and workers that run it."""

from delegation.orchestration.steps import Steps
from delegation.tasks.work.behaviors import Behaviors, FunctionBehavior
from delegation.wiring.deployment import DeployedTasks, deployment
from delegation.wiring.maintenance import store_maintenance
from delegation.wiring.purge import polaris, purge_behavior


def all_behaviors(deployed: DeployedTasks) -> Behaviors:
    """The built-in behaviors and those that were added."""
    maintains = FunctionBehavior(deployed.tasks, store_maintenance(deployed))
    return Behaviors([purge_behavior(deployed.tasks, polaris()), maintains, *deployed.added])


def steps_with_behaviors() -> Steps:
    """For Prepare and RunInline."""
    deployed = deployment()
    behaviors = all_behaviors(deployed)
    return Steps(deployed.tasks, frozenset(behaviors), behaviors=behaviors)
