"""A task: one frozen record, six statuses, and the rules that a record of each status obeys."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from delegation.timestamps import Timestamp, isoformat

FORMAT: Final = 1
HEAD: Final = 0
"""The version number under which the head is stored; callers see its real version."""


class Status(StrEnum):
    """The six statuses of the Delegation Service proposal, Persistence."""

    SUBMITTED = "SUBMITTED"
    ACQUIRING_RESOURCES = "ACQUIRING_RESOURCES"
    RUNNING = "RUNNING"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"


HELD: Final = frozenset({Status.ACQUIRING_RESOURCES, Status.RUNNING})
WAITING: Final = frozenset({Status.SUBMITTED, Status.RETRY_SCHEDULED})
TERMINAL: Final = frozenset({Status.SUCCESS, Status.FAILURE})


class Caller(BaseModel):
    """Who asked for something: a client, and the subject for which it acted."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    client_id: str
    subject: str = ""


class Task(BaseModel):
    """One version of one task.

    The fields up to `result_extended` are those of the Delegation Service proposal, Persistence; docs/architecture.md,
    "Tasks and their life", explains the others. `attempt_count` only grows and is the fencing token. `revision` grows
    with every write of the head, `version` only with a status change. `due_at` is when the task next needs attention;
    only the head of a task that is not terminal has it. `effects_began_ts` is when the work first changed what it works
    on. `repeats` counts how often requests ran a terminal task again, None if they did not or a retry began anew.
    `reported_version` is the version whose half done work was reported, so that nothing reports it again.
    `requested_by` asked for the present submission, `cancelled_by` for its cancellation.

    `details` belong to the task's behavior or to a newer release: they are stored beside the fields and kept by every
    rewrite. A detail that is None is not stored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_id: str
    version: int = Field(default=1, ge=1)
    parent_id: str | None = None
    task_type: str
    task_payload: str
    status: Status = Status.SUBMITTED
    received_timestamp: Timestamp
    last_status_change_ts: Timestamp
    attempt_count: int = Field(default=0, ge=0)
    created_ts: Timestamp
    lease_acquired_ts: Timestamp | None = None
    result_summary: str | None = None
    result_extended: str | None = None

    revision: int = Field(default=1, ge=1)
    nonce: str = ""
    lease_owner: str | None = None
    lost_not_before: Timestamp | None = None
    recheck_not_before: Timestamp | None = None
    next_scheduled_run_ts: Timestamp | None = None
    attempts_excused: int = Field(default=0, ge=0)
    throttled_count: int = Field(default=0, ge=0)
    dispatch_count: int = Field(default=0, ge=0)
    dispatch_base: int = Field(default=0, ge=0)
    cancel_requested: bool = False
    error_code: str | None = None
    synchronous: bool = False
    effects_began_ts: Timestamp | None = None
    engine: str | None = None
    job_run_id: str | None = None
    progress_ts: Timestamp | None = None
    eta_ts: Timestamp | None = None
    recurrence_seconds: int | None = Field(default=None, ge=1)
    children: tuple[str, ...] = ()
    pending_result: str | None = None
    requested_by: Caller | None = None
    cancelled_by: Caller | None = None
    repeats: int | None = Field(default=None, ge=1)
    reported_version: int | None = Field(default=None, ge=1)

    due_at: Timestamp | None = None
    details: Mapping[str, Any] = Field(default_factory=dict, repr=False)

    @model_validator(mode="after")
    def _fits_its_status(self) -> Self:
        held = (self.lease_owner, self.lease_acquired_ts, self.lost_not_before, self.recheck_not_before)
        if self.status in HELD:
            if None in held or self.attempt_count < 1:
                raise ValueError(f"status: {self.status} needs a lease and an attempt")
        elif self.lease_owner is not None or self.lost_not_before is not None or self.recheck_not_before is not None:
            raise ValueError(f"lease_owner: {self.status} cannot hold a lease")
        if (self.next_scheduled_run_ts is not None) != (self.status in WAITING):
            raise ValueError(f"next_scheduled_run_ts: set exactly while a task waits, not when it is {self.status}")
        if self.due_at is not None and self.status in TERMINAL:
            raise ValueError(f"due_at: a task that is {self.status} is never due")
        if self.status is Status.FAILURE and self.error_code is None:
            raise ValueError("error_code: a FAILURE needs one")
        if self.attempts_excused > self.attempt_count:
            raise ValueError("attempts_excused: cannot exceed attempt_count")
        if self.dispatch_base > self.dispatch_count:
            raise ValueError("dispatch_base: cannot exceed dispatch_count")
        return self

    @property
    def is_terminal(self) -> bool:
        """Whether the task has an outcome."""
        return self.status in TERMINAL

    @property
    def is_left_partly_done(self) -> bool:
        """Whether the task ended as FAILURE after its work had begun to change what it works on."""
        return self.status is Status.FAILURE and self.effects_began_ts is not None

    @property
    def is_held(self) -> bool:
        """Whether a process holds the lease of the current attempt."""
        return self.status in HELD

    @property
    def unexcused_attempts(self) -> int:
        """The number of attempts that count against the retry limit."""
        return self.attempt_count - self.attempts_excused

    def evolve(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; raises ValidationError when it is not a valid record."""
        return type(self).model_validate({**{name: getattr(self, name) for name in type(self).model_fields}, **changes})

    def with_details(self, details: Mapping[str, Any], **changes: Any) -> Self:
        """Return a copy with these details set beside the others; a detail that is None is removed."""
        kept = {name: value for name, value in self.details.items() if name not in details}
        fresh = {name: value for name, value in details.items() if value is not None}
        return self.evolve(details=kept | fresh, **changes)

    def public(self) -> dict[str, Any]:
        """Return the record as one flat JSON object with `partly_deleted`, without INTERNAL."""
        shown = {**self.details, **self.model_dump(mode="python", exclude={"details", *INTERNAL})}
        shown["partly_deleted"] = self.is_left_partly_done
        return {STORED_NAMES.get(name, name): jsonable(value) for name, value in shown.items()}


INTERNAL: Final = frozenset({"due_at", "nonce", "lease_owner", "dispatch_base", "repeats", "reported_version"})
"""Fields that are stored and not shown to callers."""
STORED_NAMES: Final = {"effects_began_ts": "first_delete_ts"}
"""Fields whose name differs in format 1, in the store and in the public record."""


def jsonable(value: Any) -> Any:
    """Return the value of a field as JSON has it."""
    if isinstance(value, datetime):
        return isoformat(value)
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, tuple | list):
        return [jsonable(item) for item in value]
    return value
