"""The fields that a removal of orphan files adds to its task's record."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from delegation.removal.attempt import PlanSegment
from delegation.removal.details import HandedDetails
from delegation.removal.orphans.approval import Approval, Wait
from delegation.removal.orphans.task_type import PLAN_TASK_TYPE
from delegation.storage.locations import FOREIGN_TABLE
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Status, Task


class OrphanDetails(HandedDetails):
    """The published plan and its progress, how many objects were listed, tagged, and stay because they changed.

    `waiting_plan` waits for approval for the reason `waits`; both outlast another submission of the task, so that the
    plan can be approved. `approval` is of that plan, or of the dry run's. `waiting_location` is where the plan looked
    if that is not the table's location. `unplanned` attempts had a listing and too little time to make the plan.
    """

    files_listed: int = Field(default=0, ge=0)
    files_changed: int = Field(default=0, ge=0)
    unplanned: int = Field(default=0, ge=0)
    files_quarantined: int = Field(default=0, ge=0)
    waits: Wait = ""
    waiting_plan: PlanSegment | None = None
    waiting_location: str = ""
    approval: Approval | None = None

    def is_approved(self, now: datetime) -> bool:
        """Return whether the plan that waits is approved."""
        plan, approval = self.waiting_plan, self.approval
        return plan is not None and approval is not None and approval.holds(plan.id, plan.sha256, now)


def segments_of(task: Task) -> Sequence[PlanSegment]:
    """Return the plans that a request may name of this task."""
    details = OrphanDetails.of(task)
    waiting = () if details.waiting_plan is None else (details.waiting_plan,)
    return (*details.plan_segments, *waiting)


def waiting_plan(task: Task) -> PlanSegment | None:
    """Return the plan that a person may approve, None without one: one that waits, or a dry run's.

    The latter may have no orphan file, and files of foreign tables alone. Raises MalformedRecord.
    """
    details = OrphanDetails.of(task)
    if task.task_type != PLAN_TASK_TYPE:
        return details.waiting_plan
    return details.plan_segments[-1] if task.status is Status.SUCCESS and details.plan_segments else None


def _has_files(details: OrphanDetails) -> bool:
    """Return whether a person can have any files deleted by the plan, those of foreign tables too."""
    return bool(details.files_planned) or any(one.code == FOREIGN_TABLE for one in details.findings)


def approvable(task: Task) -> PlanSegment | None:
    """Return the plan with which a task ended that a person may approve; None for details of a newer release."""
    try:
        is_whole = task.status is Status.SUCCESS and _has_files(OrphanDetails.of(task))
        return waiting_plan(task) if is_whole else None
    except MalformedRecord:
        return None
