"""The task types of expiries: what the service has to know of their tasks, as values (tasks.life.task_type)."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from delegation.metrics import BYTES_DELETED, FILES_DELETED
from delegation.references.names import LOST_REFS
from delegation.removal.details import PlanDetailRules, ShownPlan, table_labels, table_traits
from delegation.removal.expiry.names import (
    BY_POLICY,
    ENDS_PLAN,
    PLAN_TASK_TYPE,
    PREFIX,
    TASK_TYPE,
    UPKEEP,
    ExpiryDetails,
)
from delegation.tasks.life.task_type import TaskType

if TYPE_CHECKING:
    from delegation.tasks.submission.form import RequestForm


def _requests() -> "RequestForm":
    from delegation.removal.expiry.requests import EXPIRY_FORM  # noqa: PLC0415 - few read requests

    return EXPIRY_FORM


EXPIRY_PLAN: Final = TaskType(
    name=PLAN_TASK_TYPE,
    payload_version=BY_POLICY,
    labels=table_labels,
    traits=partial(table_traits, known=UPKEEP),
    details=PlanDetailRules(lambda: ExpiryDetails, ends_plan=ENDS_PLAN),
    counted={
        "snapshots_expired": None,
        "refs_expired": None,
        "files_deleted": FILES_DELETED,
        "bytes_deleted": BYTES_DELETED,
        "files_kept": None,
    },
    receipt_key=ShownPlan(lambda: ExpiryDetails).receipt_key,
)
EXPIRY: Final = replace(
    EXPIRY_PLAN,
    name=TASK_TYPE,
    # What an expiry waits for is mostly another system, as with purges.
    retry={"max-attempts": "10", "initial-backoff-duration": "1m"},
    properties=PREFIX,
    folders=(LOST_REFS,),
    requests=_requests,
    measured=ShownPlan(lambda: ExpiryDetails).measured,
)
