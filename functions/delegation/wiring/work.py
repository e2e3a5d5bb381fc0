"""The behaviors of this deployment, for steps and workers."""

from delegation.orchestration.steps import Steps
from delegation.tasks.work.behaviors import Behaviors
from delegation.wiring.deployment import DeployedTasks, behaviors_of, deployment
from delegation.wiring.types import (
    TYPES,
    load_runners,
)

load_runners()


def all_behaviors(deployed: DeployedTasks) -> Behaviors:
    """Return the built-in behaviors and the added ones."""
    runners = [one.runner for one in TYPES.values() if one.runner is not None]
    return Behaviors([*(each for runner in runners for each in behaviors_of(runner, deployed)), *deployed.added])


def steps_with_behaviors() -> Steps:
    deployed = deployment()
    behaviors = all_behaviors(deployed)
    return Steps(deployed.tasks, behaviors.task_types, behaviors=behaviors)
