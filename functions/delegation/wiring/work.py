"""Everything that this deployment can run, for the steps and workers that run it."""

from delegation.orchestration.steps import Steps
from delegation.tasks.work.behaviors import Behaviors, FunctionBehavior
from delegation.wiring.maintenance import store_maintenance
from delegation.wiring.purge import polaris, purge_behavior
from delegation.wiring.tasks import Deployment, deployment


def all_behaviors(deployed: Deployment) -> Behaviors:
    """The built-in behaviors and those that were added."""
    maintains = FunctionBehavior(deployed.tasks, store_maintenance(deployed))
    return Behaviors([purge_behavior(deployed.tasks, polaris()), maintains, *deployed.added])


def working() -> Steps:
    """For Prepare and RunInline."""
    deployed = deployment()
    behaviors = all_behaviors(deployed)
    return Steps(deployed.tasks, frozenset(behaviors), behaviors=behaviors)
