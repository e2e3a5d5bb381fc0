"""The task types of purges: what the service has to know of their tasks, each as one value (tasks.life.task_type)."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delegation.metrics import BYTES_DELETED, FILES_DELETED
from delegation.removal.details import PlanDetailRules, ShownPlan, table_labels, table_traits
from delegation.removal.purge.names import (
    DROP_TASK_TYPE,
    PLAN_TASK_TYPE,
    PREFIX,
    TASK_TYPE,
    UPKEEP_TASK_TYPE,
    PurgeDetails,
)
from delegation.tasks.life.model import Task
from delegation.tasks.life.task_type import TaskType

if TYPE_CHECKING:
    from delegation.tasks.submission.form import RequestForm
    from delegation.wire.responses import ExecutionResult


def _requests() -> "RequestForm":
    from delegation.removal.purge.requests import PURGE_FORM  # noqa: PLC0415 - few processes read requests

    return PURGE_FORM


def _execution_result(task: Task) -> "ExecutionResult":
    from delegation.removal.purge.requests import execution_result  # noqa: PLC0415

    return execution_result(task)


PURGE_PLAN: Final = TaskType(
    name=PLAN_TASK_TYPE,
    labels=table_labels,
    traits=table_traits,
    counted={"files_deleted": FILES_DELETED, "bytes_deleted": BYTES_DELETED, "files_kept": None},
    receipt_key=ShownPlan(lambda: PurgeDetails).receipt_key,
)
DROP: Final = replace(PURGE_PLAN, name=DROP_TASK_TYPE, details=PlanDetailRules(lambda: PurgeDetails))
PURGE: Final = replace(
    DROP,
    name=TASK_TYPE,
    # A purge is retried more patiently than the proposal's default: what it waits for is mostly another system.
    retry={"max-attempts": "10", "initial-backoff-duration": "1m"},
    properties=PREFIX,
    requests=_requests,
    measured=ShownPlan(lambda: PurgeDetails).measured,
    execution_result=_execution_result,
)
TOMBSTONE_UPKEEP: Final = TaskType(name=UPKEEP_TASK_TYPE, is_own=True)
