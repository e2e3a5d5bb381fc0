"""The fields that a removal of orphan files adds to its task's record."""

from collections.abc import Sequence

from pydantic import Field

from delegation.attempts.details import HandedDetails
from delegation.operations.orphans.approval import Wait
from delegation.operations.orphans.behavior.names import PLAN_TASK_TYPE
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Status, Task
from delegation.worksets.attempt import PlanSegment


class OrphanDetails(HandedDetails):
    """The published plan and its progress, how many objects were listed, tagged, and stay because they changed.

    `waiting_plan` waits for approval for the reason `waits`; both outlast another submission of the task, so that the
    plan can be approved. `unplanned` attempts had a listing and too little time to make the plan.
    """

    files_listed: int = Field(default=0, ge=0)
    files_changed: int = Field(default=0, ge=0)
    unplanned: int = Field(default=0, ge=0)
    files_quarantined: int = Field(default=0, ge=0)
    waits: Wait = ""
    waiting_plan: PlanSegment | None = None


def segments_of(task: Task) -> Sequence[PlanSegment]:
    """Return the plans that a request may name of this task."""
    details = OrphanDetails.of(task)
    waiting = () if details.waiting_plan is None else (details.waiting_plan,)
    return (*details.plan_segments, *waiting)


def approvable(task: Task) -> PlanSegment | None:
    """Return the plan of files with which a task ended that a person may approve; None for details of a newer release.

    A dry run made it, or a removal whose plan waits for approval.
    """
    try:
        details = OrphanDetails.of(task)
    except MalformedRecord:
        return None
    if task.status is not Status.SUCCESS or not details.files_planned:
        return None
    if task.task_type == PLAN_TASK_TYPE:
        return details.plan_segments[-1] if details.plan_segments else None
    return details.waiting_plan
