"""The fields that a removal of orphan files adds to its task's record, and the approval for which a plan waits. Consent
is a recorded act: an approval names one plan, and holds for its reductions. Neither a plan nor a repeated request is
consent."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from delegation.removal.attempt import PlanSegment
from delegation.removal.details import HandedDetails
from delegation.removal.index import Finding
from delegation.removal.orphans.task_type import PLAN_TASK_TYPE
from delegation.storage.locations import FOREIGN_TABLE
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Status, Task

Wait = Literal["", "first-run", "max-share", "max-files", "finding"]
APPROVAL_HOLDS: Final = timedelta(days=14)
_OF_STRICTER_RULES: Final = frozenset({"AGE_TOO_SHORT", "PREFIX_MISMATCH", "QUARANTINE_RELEASED"})
"""Findings about files that stay because a person or a setting is stricter now. They do not end an approval."""


class Approver(BaseModel):
    """Who approved: the token's client and its subject."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    client_id: str
    subject: str = ""


class Approval(BaseModel):
    """A person's consent to one plan: its id, the SHA-256 of its index, who approved it, when, and until when.
    `including` are the uuids of foreign tables whose files the plan reports and that are deleted with it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    plan: str
    sha256: str
    by: Approver
    at: datetime
    until: datetime
    including: tuple[str, ...] = ()

    def holds(self, plan: str, sha256: str, now: datetime) -> bool:
        """Return whether it is for this plan and has not expired."""
        return (self.plan, self.sha256) == (plan, sha256) and now < self.until


def new_findings(approved: Iterable[Finding], present: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the current findings that the approver has not seen: with another code or another sample."""
    seen = {(finding.code, what) for finding in approved for what in (finding.sample or ("",))}
    return tuple(
        finding
        for finding in present
        if finding.code not in _OF_STRICTER_RULES
        and not seen.issuperset((finding.code, what) for what in finding.sample or ("",))
    )


@dataclass(frozen=True, slots=True)
class ApprovalLimits:
    """What may be deleted without approval: a share (0 to 1) of the listed objects and bytes, and a number of files. A
    table's first run only reports, unless `first_run_deletes`."""

    max_share: float = 0.2
    max_files: int = 1_000_000
    first_run_deletes: bool = False


@dataclass(frozen=True, slots=True)
class ListedAmount:
    """Number of files and their size in bytes."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: "ListedAmount") -> "ListedAmount":
        return ListedAmount(self.files + other.files, self.bytes + other.bytes)


NO_AMOUNT: Final = ListedAmount()


def share_of(orphans: ListedAmount, listed: ListedAmount) -> float:
    """Return the share of orphans among the listed objects or bytes, whichever is larger."""
    by_files = orphans.files / listed.files if listed.files else 0.0
    by_bytes = orphans.bytes / listed.bytes if listed.bytes else 0.0
    return max(by_files, by_bytes)


def waits_for(orphans: ListedAmount, listed: ListedAmount, limits: ApprovalLimits, *, is_first: bool) -> Wait:
    """Return why a plan waits for approval, "" if it does not."""
    if is_first and not limits.first_run_deletes:
        return "first-run"
    if orphans.files > limits.max_files:
        return "max-files"
    if share_of(orphans, listed) > limits.max_share:
        return "max-share"
    return ""


class OrphanDetails(HandedDetails):
    """The published plan and its progress, and how many objects were listed, tagged or kept because they changed.

    `waiting_plan` waits for approval for the reason `waits`. Both outlast another submission of the task, so that the
    plan can be approved. `approval` is of that plan, or of the dry run's. `waiting_location` is where the plan searched
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
        """Return whether the waiting plan is approved."""
        plan, approval = self.waiting_plan, self.approval
        return plan is not None and approval is not None and approval.holds(plan.id, plan.sha256, now)


def segments_of(task: Task) -> Sequence[PlanSegment]:
    """Return the plans of this task that a request may name."""
    details = OrphanDetails.of(task)
    waiting = () if details.waiting_plan is None else (details.waiting_plan,)
    return (*details.plan_segments, *waiting)


def waiting_plan(task: Task) -> PlanSegment | None:
    """Return the plan that a person may approve, None without one: a waiting plan, or a dry run's, which may have only
    files of foreign tables. Raises MalformedRecord."""
    details = OrphanDetails.of(task)
    if task.task_type != PLAN_TASK_TYPE:
        return details.waiting_plan
    return details.plan_segments[-1] if task.status is Status.SUCCESS and details.plan_segments else None


def _has_files(details: OrphanDetails) -> bool:
    """Return whether an approval of the plan can delete any files, including those of foreign tables."""
    return bool(details.files_planned) or any(finding.code == FOREIGN_TABLE for finding in details.findings)


def approvable(task: Task) -> PlanSegment | None:
    """Return the plan, with which a task ended, that a person may approve; None for details of a newer release."""
    try:
        is_whole = task.status is Status.SUCCESS and _has_files(OrphanDetails.of(task))
        return waiting_plan(task) if is_whole else None
    except MalformedRecord:
        return None
