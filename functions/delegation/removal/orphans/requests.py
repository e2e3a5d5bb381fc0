"""Requests for removals of orphan files: parameters, how one relates to the stored task, who may approve its plan."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from delegation.removal.attempt import PlanSegment
from delegation.removal.orphans.approval import APPROVAL_HOLDS, Approval, Approver
from delegation.removal.orphans.details import OrphanDetails, waiting_plan
from delegation.removal.orphans.index import load_plan
from delegation.removal.orphans.limits import APPROVERS, OPTIONS, Approvers, OrphanLimits
from delegation.removal.orphans.task_type import BACKGROUND, PLAN_TASK_TYPE, TASK_TYPE, TASK_TYPES
from delegation.removal.requests import PLAN, TableCheck, TableForm, TableWork
from delegation.storage.base import PlanStore
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.submission.form import RequestSources
from delegation.tasks.work.parts.reads import TaskReads
from delegation.tasks.work.parts.writes import WriteLoop
from delegation.wire.tables import ORPHAN_FILES, OrphanFilesPayload, PlanApproval
from polaris_common.errors import DelegationError, printable


class TableOrphans(TableWork):
    """A removal of a known table's orphan files, with the table's state when the request was accepted."""

    work_task_type: ClassVar[str] = TASK_TYPE
    plan_task_type: ClassVar[str] = PLAN_TASK_TYPE
    does: ClassVar[str] = "removes orphan files of"

    def replays(self, task: Task) -> bool:
        """Return whether a SUCCESS executed the very plan that is asked for, and does not wait with it."""
        asks_for_plan = task.status is Status.SUCCESS and PLAN in self.properties
        return asks_for_plan and self._is_of(task) and OrphanDetails.of(task).waiting_plan is None

    def resumes(self, task: Task) -> bool:
        """See TableWork.resumes; only the same request resumes: what another one left is found again."""
        return super().resumes(task) and self._is_of(task)

    def _is_of(self, task: Task) -> bool:
        current = self.readable(task)
        return current is not None and current.identifier == self.identifier and self.is_same(task, current)


def approve(
    writes: WriteLoop,
    plans: Callable[[], PlanStore],
    approvers: Approvers,
    task_id: str,
    wanted: PlanApproval,
    *,
    by: Caller,
    is_operator: bool,
) -> Task:
    """Record the approval of a plan that waits, or of a dry run's, and return its task; a repeat changes nothing.

    Raises TaskNotFound, MalformedRecord, PlanLost, PlanTampered and DelegationError (APPROVAL_NOT_ALLOWED,
    APPROVAL_REFUSED).
    """
    plan, included = wanted.plan, tuple(sorted(set(wanted.including)))
    if included:
        reported = {one.uuid for one in load_plan(plans(), _waiting(writes.reads.get(task_id), plan)).foreign_tables}
        if unknown := set(included) - reported:
            raise DelegationError(
                f"the plan {plan} reports no foreign table {', '.join(sorted(unknown))}; its finding FOREIGN_TABLE has "
                "the uuids that an approval may include",
                code="APPROVAL_REFUSED",
            )

    def decide(task: Task, now: datetime) -> Task:
        segment = _waiting(task, plan)
        if not approvers.admit(by.client_id, is_operator=is_operator, is_own=by == task.requested_by):
            raise DelegationError(
                f"{printable(by.client_id)} may not approve the plan {plan}: the service's property {APPROVERS} admits "
                "operators, and never who asked for the plan; have another operator approve it",
                code="APPROVAL_NOT_ALLOWED",
            )
        if wanted.sha256 not in (None, segment.sha256):
            raise DelegationError(
                f"the plan {plan} has the SHA-256 {segment.sha256}, and not the one that was sent; look at it again "
                "(`delegation orphans show`), then approve it",
                code="APPROVAL_REFUSED",
            )
        before = OrphanDetails.of(task).approval
        if before is not None and before.holds(segment.id, segment.sha256, now) and before.including == included:
            return task
        approver = Approver(client_id=by.client_id, subject=by.subject)
        until = now + APPROVAL_HOLDS
        approval = Approval(
            plan=segment.id, sha256=segment.sha256, by=approver, at=now, until=until, including=included
        )
        return task.with_details({"approval": approval.model_dump(mode="json")})

    return writes.change(task_id, decide)


def _waiting(task: Task, plan: str) -> PlanSegment:
    """Return the plan that waits with a task; raise DelegationError (APPROVAL_REFUSED) if it is not `plan`."""
    segment = waiting_plan(task) if task.task_type in TASK_TYPES else None
    if segment is None or segment.id != plan:
        present = "no plan waits with it" if segment is None else f"the plan {segment.id} waits with it"
        raise DelegationError(
            f"the plan {plan} cannot be approved with task {task.task_id}: {present}; look at the task "
            "(`delegation tasks show`), and approve the plan that it names",
            code="APPROVAL_REFUSED",
        )
    return segment


def approval_of(
    reads: TaskReads, approvers: Approvers, segment: PlanSegment, executing: Task, now: datetime
) -> Approval | None:
    """Return the approval of a plan that holds now, None if who approved it asks for its execution and may not."""
    try:
        task = executing if segment.id.startswith(f"{executing.task_id}/") else reads.get(segment.id.partition("/")[0])
    except TaskNotFound:
        return None
    approval = OrphanDetails.of(task).approval
    if approval is None or not approval.holds(segment.id, segment.sha256, now):
        return None
    by = Caller(client_id=approval.by.client_id, subject=approval.by.subject)
    return approval if approvers.submitters or by != executing.requested_by else None


def _checks(properties: Mapping[str, str], limits: OrphanLimits, _sources: RequestSources) -> TableCheck:
    """Check a request's options; raise InvalidOption and DelegationError (PROPERTY_NOT_ALLOWED).

    What it returns raises GuardRefused.
    """
    # Loaded with the first such request: the API of most deployments gets requests for purges.
    from delegation.iceberg.metadata import parse_metadata  # noqa: PLC0415
    from delegation.removal.orphans.errors import no_role  # noqa: PLC0415
    from delegation.removal.orphans.options import options_of  # noqa: PLC0415
    from delegation.removal.orphans.place import (  # noqa: PLC0415
        age_of,
        check_allowed,
        place_of,
    )

    chosen = options_of(properties, limits)

    def check(loaded: Any) -> None:
        metadata = parse_metadata(loaded.metadata_location, loaded.metadata)
        check_allowed(metadata)
        bucket = place_of(metadata, chosen.location).bucket
        if chosen.quarantine and bucket not in limits.roles:
            no_role(bucket)
        age_of(chosen.older_than, metadata.properties)

    return check


ORPHANS_FORM: Final = TableForm(
    operations=(ORPHAN_FILES,),
    body=OrphanFilesPayload,
    options=OPTIONS,
    running="Looking for orphan files of {} …",
    work_type=TableOrphans,
    known=BACKGROUND,
    limits=OrphanLimits.from_properties,
    checks=_checks,
)
"""The form of requests for removals of orphan files."""
