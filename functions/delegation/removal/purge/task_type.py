"""The task types of purges: what the service has to know of their tasks, each as one value (tasks.life.task_type)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from delegation.metrics import BYTES_DELETED, FILES_DELETED
from delegation.removal.details import ShownPlan
from delegation.removal.purge.names import (
    DROP_TASK_TYPE,
    PLAN_TASK_TYPE,
    PREFIX,
    TASK_TYPE,
    UPKEEP_TASK_TYPE,
    PurgeDetails,
    labels_of,
    traits_of,
)
from delegation.tasks.life.model import Task
from delegation.tasks.life.task_type import Measured, TaskType

if TYPE_CHECKING:
    from delegation.removal.purge.requests import PurgeForm
    from delegation.wire.responses import ExecutionResult


class PurgeDetailRules:
    """DetailRules of purges: a purge that began to delete can only be finished with its plan."""

    def resumes(self, task: Task) -> bool:
        return task.effects_began_ts is not None

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in details.items() if name not in PurgeDetails.model_fields}


def _requests() -> "PurgeForm":
    from delegation.removal.purge.requests import PurgeForm  # noqa: PLC0415 - few processes read requests

    return PurgeForm()


def _measured(task: Task) -> Measured | None:
    from delegation.removal.purge.requests import measured  # noqa: PLC0415 - the API alone shows tasks

    return measured(task)


def _execution_result(task: Task) -> "ExecutionResult":
    from delegation.removal.purge.requests import execution_result  # noqa: PLC0415

    return execution_result(task)


_RECEIPT_KEY: Final = ShownPlan(lambda: PurgeDetails).receipt_key
_COUNTED: Final = {"files_deleted": FILES_DELETED, "bytes_deleted": BYTES_DELETED, "files_kept": None}


PURGE: Final = TaskType(
    name=TASK_TYPE,
    labels=labels_of,
    traits=traits_of,
    details=PurgeDetailRules(),
    counted=_COUNTED,
    # A purge is retried more patiently than the proposal's default: what it waits for is mostly another system.
    retry={"max-attempts": "10", "initial-backoff-duration": "1m"},
    properties=PREFIX,
    requests=_requests,
    measured=_measured,
    execution_result=_execution_result,
    receipt_key=_RECEIPT_KEY,
)


PURGE_PLAN: Final = TaskType(
    name=PLAN_TASK_TYPE, labels=labels_of, traits=traits_of, counted=_COUNTED, receipt_key=_RECEIPT_KEY
)


DROP: Final = TaskType(
    name=DROP_TASK_TYPE,
    labels=labels_of,
    traits=traits_of,
    details=PurgeDetailRules(),
    counted=_COUNTED,
    receipt_key=_RECEIPT_KEY,
)


TOMBSTONE_UPKEEP: Final = TaskType(name=UPKEEP_TASK_TYPE, is_own=True)
