"""The task types of removals of orphan files as values (tasks.life.declared), and their names."""

from typing import Final

from delegation.metrics import BYTES_DELETED, FILES_DELETED
from delegation.removal.details import PlanDetailRules, PlanDetails, task_types_of
from delegation.tasks.life.lanes import Traits
from delegation.tasks.life.model import Task
from delegation.timestamps import isoformat
from polaris_common.errors import printable

TASK_TYPE: Final = "ORPHAN_FILES"
"""The stored `task_type` of a removal of a table's orphan files."""
PLAN_TASK_TYPE: Final = "ORPHAN_FILES_PLAN"
"""A dry run: it lists and plans, deletes nothing, and has an id of its own."""
PREFIX: Final = "delegation.orphan-files."
"""The prefix of the operator's properties of removals."""
POLICY: Final = "upkeep-policy"
"""The property of a policy's removal: the policy's dotted name. A caller's removal has none."""
TASK_TYPES: Final = frozenset({TASK_TYPE, PLAN_TASK_TYPE})
FOLDER: Final = "orphans"
"""The folder of the plan bucket with the plans of each table that had consent."""
KEPT: Final = frozenset({"waits", "waiting_plan", "waiting_location", "approval"})
"""The details that a task's next submission keeps (`details.OrphanDetails`)."""
BACKGROUND: Final = Traits(is_background=True)
"""What admission knows of every removal: no other task waits for it."""


def _next_step(task: Task) -> str | None:
    """Return how to view and approve the plan with which a task ended, None without one."""
    from delegation.removal.orphans.details import OrphanDetails, approvable  # noqa: PLC0415 - few need it

    plan = approvable(task)
    if plan is None:
        return None
    approval = OrphanDetails.of(task).approval
    if approval is not None and (approval.plan, approval.sha256) == (plan.id, plan.sha256):
        return (
            f"{printable(approval.by.client_id)} approved the plan until {isoformat(approval.until)}. The next run of "
            f"the table's policy executes it. To execute it now, run `delegation orphans approve {plan.id} --wait`."
        )
    return (
        f"List the files with `delegation orphans show {plan.id}`. Execute the plan with `delegation orphans "
        f"approve {plan.id}`."
    )


def _details() -> type[PlanDetails]:
    from delegation.removal.orphans.details import OrphanDetails  # noqa: PLC0415 - few processes need it

    return OrphanDetails


ORPHANS, ORPHANS_PLAN = task_types_of(
    PlanDetailRules(_details, kept=KEPT),
    TASK_TYPE,
    PLAN_TASK_TYPE,
    properties=PREFIX,
    requests="delegation.removal.orphans.requests:ORPHANS_FORM",
    known=BACKGROUND,
    counted={
        "files_listed": None,
        "files_deleted": FILES_DELETED,
        "bytes_deleted": BYTES_DELETED,
        "files_changed": None,
        "files_quarantined": None,
    },
    next_step=_next_step,
    folders=(FOLDER,),
)
