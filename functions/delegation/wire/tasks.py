"""A task as the API returns it, with the names of the proposal's table (Delegation Service proposal, Persistence)."""

import json
from collections.abc import Mapping
from typing import Any, Final, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from delegation.wire.responses import KeptFiles


class PublishedSegment(BaseModel):
    """A segment of a plan: its folder in the plan bucket, and the hex SHA-256 of its index."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str
    sha256: str


class Asker(BaseModel):
    """Who asked: the client id and the subject of the caller's token."""

    model_config = ConfigDict(frozen=True, extra="allow")

    client_id: str
    subject: str = ""


class TaskRecord(BaseModel):
    """A task; timestamps are UTC. A client keeps the unknown members of a newer service.

    `progress` and `details` are what a task function reported, `result_location` is the object of the record bucket
    that holds a large result; the record of a task without any has no such members.
    `partly_deleted`: it ended as FAILURE after its first delete, so the table is not whole; try it again.
    """

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    task_id: str
    version: int
    parent_id: str | None = None
    task_type: str
    task_payload: str = ""
    status: str
    received_timestamp: AwareDatetime | None = None
    last_status_change_ts: AwareDatetime | None = None
    attempt_count: int = 0
    created_ts: AwareDatetime | None = None
    lease_acquired_ts: AwareDatetime | None = None
    result_summary: str | None = None
    result_extended: str | None = None
    result_location: str | None = None
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
    files_absent: int = 0
    bytes_deleted: int = 0
    files_kept: int = 0
    findings: tuple[KeptFiles, ...] = ()
    files_per_second: int | None = None
    progress_ts: AwareDatetime | None = None
    progress: dict[str, Any] | None = None
    details: dict[str, Any] | None = None
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

    @property
    def is_terminal(self) -> bool:
        """Whether the task has ended."""
        return self.status in {"SUCCESS", "FAILURE"}

    @property
    def succeeded(self) -> bool:
        """Whether the task ended as SUCCESS."""
        return self.status == "SUCCESS"

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
    def correlation_id(self) -> str | None:
        """The correlation id in the payload, None without one."""
        match _object(self.task_payload):
            case {"common_payload": {"polaris_correlation_id": str(found)}}:
                return found
            case _:
                return None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Validate a record as made by `shown`."""
        return cls.model_validate(record)


class TaskVersions(BaseModel):
    """A page of a task's versions, oldest first; `next_page_token` is None on the last one."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    versions: tuple[TaskRecord, ...]
    next_page_token: str | None = None


class UnreadableTask(BaseModel):
    """A stored task that this release cannot read, for example one that a newer release wrote."""

    model_config = ConfigDict(frozen=True, extra="allow")

    task_id: str
    reason: str


class TaskList(BaseModel):
    """A page of tasks, the newest received first; `next_page_token` is None on the last one.

    A page may have fewer tasks than asked for, or none, although others follow. Its tasks may miss their `children`.
    """

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    tasks: tuple[TaskRecord, ...]
    unreadable: tuple[UnreadableTask, ...] = ()
    next_page_token: str | None = None


_REPORTED: Final = frozenset({"progress", "details", "result_location", "recurrence_cron"})


def shown(public: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of TaskRecord of a task's public record in their order, without reports that nobody made."""
    defaults = {name: [] if field.default == () else field.default for name, field in TaskRecord.model_fields.items()}
    values = {name: public.get(name, default) for name, default in defaults.items()}
    return {name: value for name, value in values.items() if value or name not in _REPORTED}


def _object(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
