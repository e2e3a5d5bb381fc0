"""The task types of purges: what the service has to know of their tasks, each as one value (tasks.life.task_type)."""

from collections.abc import Mapping
from typing import Any, Final

from delegation.metrics import BYTES_DELETED, FILES_DELETED
from delegation.operations.purge.behavior.kinds import DROP_KIND, KIND, PLAN_KIND, UPKEEP_KIND
from delegation.operations.purge.behavior.traits import labels_of, traits_of
from delegation.tasks.life.model import Task
from delegation.tasks.life.task_type import TaskType


class PurgeDetailRules:
    """DetailRules of purges: a purge that began to delete can only be finished with its plan."""

    def resumes(self, task: Task) -> bool:
        """See DetailRules.resumes."""
        return task.effects_began_ts is not None

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """See DetailRules.restarted."""
        from delegation.operations.purge.behavior.details import PurgeDetails  # noqa: PLC0415 - few processes need it

        return {name: value for name, value in details.items() if name not in PurgeDetails.model_fields}


_COUNTED: Final = {"files_deleted": FILES_DELETED, "bytes_deleted": BYTES_DELETED, "files_kept": None}

PURGE: Final = TaskType(
    name=KIND,
    labels=labels_of,
    traits=traits_of,
    details=PurgeDetailRules(),
    counted=_COUNTED,
    # A purge is retried more patiently than the proposal's default: what it waits for is mostly another system.
    retry={"max-attempts": "10", "initial-backoff-duration": "1m"},
)
PURGE_PLAN: Final = TaskType(name=PLAN_KIND, labels=labels_of, traits=traits_of, counted=_COUNTED)
DROP: Final = TaskType(name=DROP_KIND, labels=labels_of, traits=traits_of, details=PurgeDetailRules(), counted=_COUNTED)
TOMBSTONE_UPKEEP: Final = TaskType(name=UPKEEP_KIND)
