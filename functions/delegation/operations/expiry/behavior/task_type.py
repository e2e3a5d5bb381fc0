"""The task types of expiries: what the service has to know of their tasks, as values (tasks.life.task_type)."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from delegation.metrics import BYTES_DELETED, FILES_DELETED, Metric
from delegation.operations.behaviors.payloads import table_labels, table_traits
from delegation.operations.expiry.behavior.kinds import BY_POLICY, ENDS_PLAN, KIND, PLAN_KIND, PREFIX, UPKEEP
from delegation.references.kinds import LOST_REFS
from delegation.tasks.life.model import Task
from delegation.tasks.life.task_type import Measured, TaskType

if TYPE_CHECKING:
    from delegation.operations.expiry.behavior.api.requests import ExpiryForm


class ExpiryDetailRules:
    """DetailRules of expiries: one that began to commit is finished with its plan, unless that must delete nothing."""

    def resumes(self, task: Task) -> bool:
        """See DetailRules.resumes."""
        return task.effects_began_ts is not None and task.error_code not in ENDS_PLAN

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """See DetailRules.restarted."""
        from delegation.operations.expiry.behavior.details import ExpiryDetails  # noqa: PLC0415 - few processes need it

        return {name: value for name, value in details.items() if name not in ExpiryDetails.model_fields}


def _requests() -> "ExpiryForm":
    from delegation.operations.expiry.behavior.api.requests import ExpiryForm  # noqa: PLC0415 - few processes read requests

    return ExpiryForm()


def _measured(task: Task) -> Measured | None:
    from delegation.operations.expiry.behavior.api.shown import measured  # noqa: PLC0415 - the API alone shows tasks

    return measured(task)


def _receipt_key(task: Task) -> str | None:
    from delegation.operations.expiry.behavior.api.shown import receipt_key  # noqa: PLC0415

    return receipt_key(task)


_COUNTED: Final[Mapping[str, Metric | None]] = {
    "snapshots_expired": None,
    "refs_expired": None,
    "files_deleted": FILES_DELETED,
    "bytes_deleted": BYTES_DELETED,
    "files_kept": None,
}

EXPIRY: Final = TaskType(
    name=KIND,
    payload_version=BY_POLICY,
    labels=table_labels,
    traits=partial(table_traits, known=UPKEEP),
    details=ExpiryDetailRules(),
    counted=_COUNTED,
    # What an expiry waits for is mostly another system, as with purges.
    retry={"max-attempts": "10", "initial-backoff-duration": "1m"},
    properties=PREFIX,
    folders=(LOST_REFS,),
    requests=_requests,
    measured=_measured,
    receipt_key=_receipt_key,
)
EXPIRY_PLAN: Final = TaskType(
    name=PLAN_KIND,
    payload_version=BY_POLICY,
    labels=table_labels,
    traits=partial(table_traits, known=UPKEEP),
    details=ExpiryDetailRules(),
    counted=_COUNTED,
    receipt_key=_receipt_key,
)
