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
    """A segment of a plan: its folder in the plan bucket, and the SHA-256 of its index in hex."""

    id: str
    sha256: str


class Asker(Answer):
    """Who asked: the client id and the subject of the caller's token."""

    client_id: str
    subject: str = ""


class ShownApproval(Answer):
    """A person's approval of a plan, and when it expires."""

    plan: str
    sha256: str
    by: Asker
    at: AwareDatetime
    until: AwareDatetime
    including: tuple[str, ...] = ()


class WorkProgress(Answer):
    """The progress of the work: `done` of `total`, counted in `unit`."""

    done: int | None = None
    total: int | None = None
    unit: str | None = None
    percent: float | None = Field(
        default=None, ge=0, le=100, description="Rounded down to a tenth. 100 means that nothing is left."
    )
    message: str | None = None
    reported_ts: AwareDatetime | None = None


class WorkRate(Answer):
    """The speed of running work, on average since the attempt's first delete."""

    per_second: float = Field(ge=0)
    unit: str


class NextAttempt(Answer):
    """The next attempt of a waiting task, or of a task whose lease ended without an outcome."""

    number: int = Field(ge=1)
    at: AwareDatetime
    seconds: float = Field(ge=0, description="The time until the attempt. 0: the task only waits for a free process.")
    awaits_admission: bool = Field(
        default=False, description="Whether the task also waits for a place (`delegation.limits.*`)."
    )
    lane: str | None = Field(default=None, description="The lane in which the task waits, in words.")


class LastError(Answer):
    """The last error since the task was submitted. A hand-over to another process is not an error."""

    code: str
    message: str
    at: AwareDatetime | None = None
    attempt: int | None = None


class Outlook(Answer):
    """A task's progress at the time `as_of`, and what comes next. A member is null if it is unknown or does not apply.

    A purge with a plan counts deleted and planned files. Other work reports its own progress.
    """

    as_of: AwareDatetime
    progress: WorkProgress | None = None
    rate: WorkRate | None = None
    eta_ts: AwareDatetime | None = Field(
        default=None, description="The expected end of running work, unless that time has passed."
    )
    next_attempt: NextAttempt | None = None
    next_step: str | None = Field(
        default=None, description="What a person must decide after the task has ended, and the commands for it."
    )
    last_error: LastError | None = None


class TaskRecord(Answer):
    """A task as stored, with the members of the proposal's section "Persistence" and more. Timestamps are UTC.

    `progress`, `details` and `result_location` are absent if the task reported none. `outlook` is not stored: answers
    that read or list tasks compute it.
    `partly_deleted`: the purge ended as FAILURE after its first delete, so the table has lost files. Retry the task.
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
        description="The lease holder, if any. Absent from lists, and for callers who may not manage tasks.",
    )
    result_summary: str | None = None
    result_extended: str | None = None
    result_location: str | None = Field(
        default=None, description="The object in the plan bucket with a result that is too large for the record."
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
        description="The number of deleted files that were already absent, if the store reports this (S3 does not). "
        "Their bytes are not counted.",
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
    waits: str = Field(default="", description="Why a plan of orphan files waits for approval.")
    waiting_plan: PublishedSegment | None = Field(default=None, description="The plan that waits for approval.")
    approval: ShownApproval | None = Field(default=None, description="The last approval of a plan of the task.")
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
        """The name that people know the table by; for a table dropped through the gateway, its name before the drop."""
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
        """The dotted name of the policy that requested the work, None if a caller did."""
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
    next_page_token: str | None = Field(default=None, description="The token of the next page; null on the last page.")


class UnreadableTask(Answer):
    """A stored task that this release cannot read, for example because a newer release wrote it."""

    task_id: str
    reason: str


class TaskList(Answer):
    """A page of tasks, the newest received first.

    A page may have fewer tasks than `page_size`, or none, even if more follow. Its tasks may lack their `children`.
    """

    tasks: tuple[TaskRecord, ...]
    unreadable: tuple[UnreadableTask, ...] = Field(
        default=(),
        description="Tasks that this release cannot read, of any status and type: a newer release wrote them.",
    )
    next_page_token: str | None = Field(default=None, description="The token of the next page; null on the last page.")


REPORTED: Final = frozenset(
    {"lease_owner", "progress", "details", "result_location", "recurrence_cron", "outlook"}
    | {"waits", "waiting_plan", "approval"}
)
"""Members that a record has only if something was reported."""


def shown(public: Mapping[str, Any]) -> dict[str, Any]:
    """Return a public record's members of TaskRecord in their order, without unset reports."""
    defaults = {name: [] if field.default == () else field.default for name, field in TaskRecord.model_fields.items()}
    values = {name: public.get(name, default) for name, default in defaults.items()}
    return {name: value for name, value in values.items() if value or name not in REPORTED}


def _object(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
