from delegation.removal.orphans.names import TASK_TYPES
from delegation.tasks.work.behaviors import BehaviorWhenNeeded, TaskBehavior
from delegation.wiring.deployment import DeployedTasks


def behaviors(deployed: DeployedTasks) -> list[TaskBehavior]:
    """Return the behavior of removals and of their dry runs, which is made for the first of them."""

    def make() -> TaskBehavior:
        from delegation.wiring.orphans.run import orphans_behavior  # noqa: PLC0415 - most processes run none

        return orphans_behavior(deployed.tasks)

    return [BehaviorWhenNeeded(TASK_TYPES, make)]
