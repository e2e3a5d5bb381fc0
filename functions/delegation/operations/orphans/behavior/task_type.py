"""The task types of removals of orphan files, as values (tasks.life.task_type)."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from delegation.metrics import BYTES_DELETED, FILES_DELETED, Metric
from delegation.operations.behaviors.payloads import table_labels, table_traits
from delegation.operations.orphans.behavior.kinds import BACKGROUND, KIND, PLAN_KIND, PREFIX
from delegation.tasks.life.model import Task
from delegation.tasks.life.task_type import Measured, TaskType

if TYPE_CHECKING:
    from delegation.operations.orphans.behavior.api.requests import OrphanForm


class OrphanDetailRules:
    """DetailRules of removals: one that began to delete is resumed with its plan; a plan that waits outlasts others."""

    def resumes(self, task: Task) -> bool:
        """See DetailRules.resumes."""
        return task.effects_began_ts is not None

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """See DetailRules.restarted."""
        from delegation.operations.orphans.behavior.details import KEPT, OrphanDetails  # noqa: PLC0415 - few need it

        gone = OrphanDetails.model_fields.keys() - KEPT
        return {name: value for name, value in details.items() if name not in gone}


def _requests() -> "OrphanForm":
    from delegation.operations.orphans.behavior.api.requests import OrphanForm  # noqa: PLC0415 - few processes read requests

    return OrphanForm()


def _measured(task: Task) -> Measured | None:
    from delegation.operations.orphans.behavior.api.shown import measured  # noqa: PLC0415 - the API alone shows tasks

    return measured(task)


def _receipt_key(task: Task) -> str | None:
    from delegation.operations.orphans.behavior.api.shown import receipt_key  # noqa: PLC0415

    return receipt_key(task)


_COUNTED: Final[Mapping[str, Metric | None]] = {
    "files_listed": None,
    "files_deleted": FILES_DELETED,
    "bytes_deleted": BYTES_DELETED,
    "files_changed": None,
}

ORPHANS: Final = TaskType(
    name=KIND,
    labels=table_labels,
    traits=partial(table_traits, known=BACKGROUND),
    details=OrphanDetailRules(),
    counted=_COUNTED,
    # What a removal waits for is mostly another system, as with purges.
    retry={"max-attempts": "10", "initial-backoff-duration": "1m"},
    properties=PREFIX,
    requests=_requests,
    measured=_measured,
    receipt_key=_receipt_key,
)
ORPHANS_PLAN: Final = TaskType(
    name=PLAN_KIND,
    labels=table_labels,
    traits=partial(table_traits, known=BACKGROUND),
    details=OrphanDetailRules(),
    counted=_COUNTED,
    receipt_key=_receipt_key,
)
