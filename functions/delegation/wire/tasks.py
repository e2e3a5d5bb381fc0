"""A task as the API returns it, with the names of the proposal's table (Delegation Service proposal, Persistence)."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Self

from pydantic import AwareDatetime, Field

from delegation.wire.responses import Answer, KeptFiles, TaskId, described

STATUSES: Final = ["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "RETRY_SCHEDULED", "SUCCESS", "FAILURE"]
"""Delegation Service proposal, Status Enum; a client accepts the statuses of a newer service too."""
_PROGRESS: Final = {
    "done": {"type": "integer"},
    "total": {"type": "integer"},
    "unit": {"type": "string"},
    "message": {"type": "string"},
}


class PublishedSegment(Answer):
    """A segment of a plan: its folder in the plan bucket, and the hex SHA-256 of its index."""

    id: str
    sha256: str


class Asker(Answer):
    """Who asked: the client id and the subject of the caller's token."""

    client_id: str
    subject: str = ""


class ShownApproval(Answer):
    """A person's consent to a plan, and when it ends."""

    plan: str
    sha256: str
    by: Asker
    at: AwareDatetime
    until: AwareDatetime
    including: tuple[str, ...] = ()


class WorkProgress(Answer):
    """How far the work is: `done` of `total` things of a `unit`."""

    done: int | None = None
    total: int | None = None
    unit: str | None = None
    percent: float | None = Field(
        default=None, ge=0, le=100, description="Rounded down to a tenth, so 100 means that nothing is left."
    )
    message: str | None = None
    reported_ts: AwareDatetime | None = None


class WorkRate(Answer):
    """How fast running work is, on average since the first delete of the attempt."""

    per_second: float = Field(ge=0)
    unit: str


class NextAttempt(Answer):
    """The next attempt of a task that waits, or whose lease ended without an outcome."""

    number: int = Field(ge=1)
    at: AwareDatetime
    seconds: float = Field(ge=0, description="The time until then; 0 if the task waits only for a free process.")
    awaits_admission: bool = Field(
        default=False, description="Whether the task also waits for a place (`delegation.limits.*`)."
    )
    lane: str | None = Field(default=None, description="In words, the lane in which it waits for a place.")


class LastError(Answer):
    """The last error since the task was submitted; a hand-over to another process is none."""

    code: str
    message: str
    at: AwareDatetime | None = None
    attempt: int | None = None


class Outlook(Answer):
    """How far a task is at the time `as_of`, and what comes next; a member is null if it is unknown or has no meaning.

    The progress of a purge with a plan is the files deleted of those planned, of other work what it reported.
    """

    as_of: AwareDatetime
    progress: WorkProgress | None = None
    rate: WorkRate | None = None
    eta_ts: AwareDatetime | None = Field(
        default=None, description="The expected end of running work, if it is in the future."
    )
    next_attempt: NextAttempt | None = None
    next_step: str | None = Field(
        default=None, description="What a person has to decide now that the task has ended, with the commands for it."
    )
    last_error: LastError | None = None


class TaskRecord(Answer):
    """A task as stored, with the members of the proposal's section "Persistence" and more; timestamps are UTC.

    The record of a task that reported no `progress`, `details` or `result_location` has no such members. `outlook` is
    made for an answer that reads or lists tasks, and not stored.
    `partly_deleted`: it ended as FAILURE after its first delete, so the table is not whole; try it again.
    """

    task_id: TaskId
    version: Annotated[int, described(minimum=1)]
    parent_id: str | None = None
    task_type: str
    task_payload: Annotated[str, described(contentMediaType="application/json")] = ""
    status: Annotated[str, described(enum=STATUSES)]
    received_timestamp: AwareDatetime | None = None
    last_status_change_ts: AwareDatetime | None = None
    attempt_count: Annotated[int, described(minimum=0)] = 0
    created_ts: AwareDatetime | None = None
    lease_acquired_ts: AwareDatetime | None = None
    lease_owner: str | None = Field(
        default=None,
        description="The lease holder, if there is one. Absent from lists, and for callers that may not manage tasks.",
    )
    result_summary: str | None = None
    result_extended: str | None = None
    result_location: str | None = Field(
        default=None, description="The object of the record bucket that holds a result too large for the record."
    )
    revision: int = 0
    lost_not_before: AwareDatetime | None = None
    recheck_not_before: AwareDatetime | None = None
    next_scheduled_run_ts: AwareDatetime | None = None
    attempts_excused: int = 0
    throttled_count: int = 0
    starts_refused: int = 0
    dispatch_count: int = 0
    cancel_requested: bool = False
    error_code: str | None = None
    synchronous: bool = False
    first_delete_ts: AwareDatetime | None = None
    engine: str | None = None
    plan_segments: tuple[PublishedSegment, ...] = ()
    job_run_id: str | None = None
    files_planned: int | None = None
    files_deleted: int = 0
    files_failed: int = 0
    files_absent: int = Field(
        default=0,
        description="How many of the deleted files were already absent, if the store reports that (S3 does not). Their "
        "bytes are not counted.",
    )
    bytes_deleted: int = 0
    files_kept: int = 0
    findings: tuple[KeptFiles, ...] = ()
    files_per_second: int | None = Field(
        default=None, description="The average speed of the latest attempt since its first delete."
    )
    progress_ts: AwareDatetime | None = None
    progress: Annotated[dict[str, Any] | None, described(properties=_PROGRESS)] = Field(
        default=None, description="The progress that the work reported."
    )
    details: dict[str, Any] | None = Field(default=None, description="Further values that the work reported.")
    eta_ts: AwareDatetime | None = None
    purged_identifier: str | None = None
    purged_metadata_location: str | None = None
    recurrence_seconds: int | None = None
    recurrence_cron: str | None = None
    children: tuple[str, ...] = ()
    pending_result: str | None = None
    requested_by: Asker | None = None
    cancelled_by: Asker | None = None
    partly_deleted: bool = False
    waits: str = Field(default="", description="Why the plan of a removal of orphan files waits for a person.")
    waiting_plan: PublishedSegment | None = Field(default=None, description="The plan that waits for approval.")
    approval: ShownApproval | None = Field(default=None, description="Who approved a plan of the task last.")
    outlook: Outlook | None = None

    @property
    def is_terminal(self) -> bool:
        return self.status in {"SUCCESS", "FAILURE"}

    @property
    def succeeded(self) -> bool:
        return self.status == "SUCCESS"

    def is_approved(self, now: datetime) -> bool:
        plan, approval = self.waiting_plan, self.approval
        if plan is None or approval is None or now >= approval.until:
            return False
        return (plan.id, plan.sha256) == (approval.plan, approval.sha256)

    @property
    def table(self) -> str | None:
        """The dotted name of the payload's table, None for a task of another type."""
        match _object(self.task_payload):
            case {
                "operation_parameters": {
                    "table_identity": {
                        "catalog_name": str(catalog),
                        "namespace_levels": [*levels],
                        "table_name": str(name),
                    }
                }
            }:
                return ".".join([catalog, *(str(level) for level in levels), name])
            case _:
                return None

    @property
    def shown_table(self) -> str | None:
        """The name that people know the table by: of one that was dropped through the gateway its name before."""
        dropped = self.properties.get("dropped-table")
        return f"{dropped} (dropped)" if dropped is not None and self.table is not None else self.table

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties with which the work was requested; none for a payload without any."""
        match _object(self.task_payload):
            case {"operation_parameters": {"properties": {**properties}}}:
                return {str(name): str(value) for name, value in properties.items()}
            case _:
                return {}

    @property
    def policy(self) -> str | None:
        """The dotted name of the policy that asked for the work, None where a caller did."""
        match _object(self.task_payload):
            case {"operation_parameters": {"policy": str(name)}}:
                return name
            case _:
                return self.properties.get("upkeep-policy")

    @property
    def correlation_id(self) -> str | None:
        match _object(self.task_payload):
            case {"common_payload": {"polaris_correlation_id": str(correlation_id)}}:
                return correlation_id
            case _:
                return None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        return cls.model_validate(record)


class TaskVersions(Answer):
    """A page of a task's versions, oldest first."""

    versions: tuple[TaskRecord, ...]
    next_page_token: str | None = Field(default=None, description="The token of the next page, null on the last one.")


class UnreadableTask(Answer):
    """A stored task that this release cannot read, for example one that a newer release wrote."""

    task_id: str
    reason: str


class TaskList(Answer):
    """A page of tasks, the newest received first.

    A page may have fewer tasks than asked for, or none, although others follow. Its tasks may miss their `children`.
    """

    tasks: tuple[TaskRecord, ...]
    unreadable: tuple[UnreadableTask, ...] = Field(
        default=(),
        description="Tasks that this release cannot read, of any status and type; a newer release wrote them.",
    )
    next_page_token: str | None = Field(default=None, description="The token of the next page, null on the last one.")


REPORTED: Final = frozenset(
    {"lease_owner", "progress", "details", "result_location", "recurrence_cron", "outlook"}
    | {"waits", "waiting_plan", "approval"}
)
"""The members that a record without such a report does not have."""


def shown(public: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of TaskRecord of a task's public record in their order, without reports that nobody made."""
    defaults = {name: [] if field.default == () else field.default for name, field in TaskRecord.model_fields.items()}
    values = {name: public.get(name, default) for name, default in defaults.items()}
    return {name: value for name, value in values.items() if value or name not in REPORTED}


def _object(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
