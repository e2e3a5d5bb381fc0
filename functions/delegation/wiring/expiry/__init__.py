from collections.abc import Mapping
from typing import Any

from delegation.removal.expiry.names import BY_POLICY, PLAN_TASK_TYPE, TASK_TYPES
from delegation.tasks.life.model import Task
from delegation.tasks.work.behaviors import BehaviorWhenNeeded, TaskBehavior
from delegation.wiring.deployment import DeployedTasks


def behaviors(deployed: DeployedTasks) -> list[TaskBehavior]:
    """Return the behavior of expiries and of their dry runs, which is made for the first of them."""

    def make() -> TaskBehavior:
        from delegation.wiring.expiry.run import expiry_behavior  # noqa: PLC0415 - most processes run none

        return expiry_behavior(deployed.tasks)

    return [BehaviorWhenNeeded(TASK_TYPES, make, BY_POLICY)]


def forecast(task: Task) -> Mapping[str, Any] | None:
    """Return the forecast of an expiry's plan or of a dry run as JSON has it, None without a plan."""
    from delegation.removal.expiry.names import ExpiryDetails  # noqa: PLC0415
    from delegation.removal.task_attempt import forecast_of  # noqa: PLC0415 - for the API alone
    from delegation.wiring.expiry.run import expiry_settings  # noqa: PLC0415
    from delegation.wiring.purge import plan_store  # noqa: PLC0415

    is_dry_run = task.task_type == PLAN_TASK_TYPE
    found = forecast_of(task, ExpiryDetails, plan_store(), expiry_settings(), is_dry_run=is_dry_run)
    return None if found is None else found.model_dump(mode="json")
