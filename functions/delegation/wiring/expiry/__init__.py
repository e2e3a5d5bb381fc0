"""The wiring of expiries of snapshots."""

from delegation.operations.expiry.behavior.kinds import BY_POLICY, KINDS
from delegation.tasks.work.behaviors import BehaviorWhenNeeded, TaskBehavior
from delegation.wiring.deployment import DeployedTasks


def behaviors(deployed: DeployedTasks) -> list[TaskBehavior]:
    """Return the behavior of expiries and of their dry runs, which is made for the first of them."""

    def make() -> TaskBehavior:
        from delegation.wiring.expiry.run import expiry_behavior  # noqa: PLC0415 - most processes run none

        return expiry_behavior(deployed.tasks)

    return [BehaviorWhenNeeded(KINDS, make, BY_POLICY)]
