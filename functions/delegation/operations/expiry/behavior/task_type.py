"""The task types of expiries: what the service has to know of their tasks, as values (tasks.life.task_type)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from delegation.operations.expiry.behavior.kinds import KIND, PLAN_KIND, PREFIX
from delegation.operations.expiry.behavior.traits import labels_of, traits_of
from delegation.tasks.life.task_type import TaskType

if TYPE_CHECKING:
    from delegation.operations.expiry.behavior.api.requests import ExpiryForm
    from delegation.tasks.life.model import Task


class ExpiryDetailRules:
    """DetailRules of expiries: one that began to commit can only be finished with its plan."""

    def resumes(self, task: "Task") -> bool:
        """See DetailRules.resumes."""
        return task.effects_began_ts is not None

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """See DetailRules.restarted."""
        from delegation.operations.expiry.behavior.details import ExpiryDetails  # noqa: PLC0415 - few processes need it

        return {name: value for name, value in details.items() if name not in ExpiryDetails.model_fields}


def _requests() -> "ExpiryForm":
    from delegation.operations.expiry.behavior.api.requests import ExpiryForm  # noqa: PLC0415 - few processes read requests

    return ExpiryForm()


EXPIRY: Final = TaskType(
    name=KIND,
    labels=labels_of,
    traits=traits_of,
    details=ExpiryDetailRules(),
    # What an expiry waits for is mostly another system, as with purges.
    retry={"max-attempts": "10", "initial-backoff-duration": "1m"},
    properties=PREFIX,
    requests=_requests,
)
EXPIRY_PLAN: Final = TaskType(name=PLAN_KIND, labels=labels_of, traits=traits_of, details=ExpiryDetailRules())
