"""A task: one frozen record, six statuses, and the rules that a record of each status obeys."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from delegation.tasks.life.progress import TaskProgress, storable
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
    """Who requested something: a client, and the subject for which it acted."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    client_id: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Labels:
    """What lists find a task by: `target`, the object of its work (for a purge the table), and a correlation id.
    `realm` is the realm that it works for; pauses use it, lists do not."""

    target: str | None = None
    correlation_id: str | None = None
    realm: str | None = None

    def keys(self) -> dict[str, str | None]:
        """Return the fields of a task that hold the digests."""
        return {"target_key": label_key(self.target), "correlation_key": label_key(self.correlation_id)}


LabelsOf = Callable[[str], Labels]
"""Returns the labels in a task's payload."""


def label_key(text: str | None) -> str | None:
    """Return the first 128 bits of a text's SHA-256 in hex, since an index key is limited. Source: Amazon DynamoDB
    Developer Guide, "Quotas" (a partition key has at most 2048 bytes)."""
    return None if text is None else hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


class TaskPart(BaseModel):
    """Fields of a task that change together. They are stored and shown beside its other fields (`PARTS`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def evolve(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; raises ValidationError when one is not valid."""
        return type(self).model_validate({**vars(self), **changes})


class AdoptedChildren(TaskPart):
    """What a task knows of its adopted children, besides their records in the store. `children` holds the task's own id
    once an attempt adopted a child: an older release, which reads children from this list, then waits for the task
    itself instead of ending it. Ids of other tasks are children that such a release adopted. `child_ordinal` counts the
    current attempt's children without an identity. Children of the first `attempts_before` attempts belong to earlier
    submissions; `runs_before` counts their runs."""

    children: tuple[str, ...] = ()
    child_ordinal: int | None = None
    attempts_before: int | None = None
    runs_before: int | None = None


class Dispatches(TaskPart):
    """How often a task was dispatched, and how often (`base`) when it was last acquired or submitted."""

    count: int = Field(default=0, ge=0)
    base: int = Field(default=0, ge=0)

    @property
    def unanswered(self) -> int:
        """The number of dispatches since then, which started no attempt."""
        return self.count - self.base

    def next(self) -> Self:
        return self.evolve(count=self.count + 1)

    def answered(self) -> Self:
        """Return the counts of a task that is acquired or submitted now."""
        return self.evolve(base=self.count)


class HandOvers(TaskPart):
    """The number of hand-overs in a row without progress since `state`, which is JSON text."""

    count: int = Field(default=0, ge=0)
    state: str | None = None


class KilledAttempts(TaskPart):
    """The number of attempts killed in a row without progress since `state`, which is JSON text."""

    count: int = Field(default=0, ge=0)
    state: str | None = None


class TaskLease(TaskPart):
    """A task's holder, since when it holds the task, when it is presumed lost, and until when others need not check.
    `acquired_ts` stays after the end of the latest attempt."""

    owner: str | None = None
    acquired_ts: Timestamp | None = None
    lost_not_before: Timestamp | None = None
    recheck_not_before: Timestamp | None = None

    @property
    def is_whole(self) -> bool:
        return None not in (self.owner, self.acquired_ts, self.lost_not_before, self.recheck_not_before)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended; then only its start is known."""
        return self.owner is None and self.lost_not_before is None and self.recheck_not_before is None

    def ended(self) -> Self:
        return type(self)(acquired_ts=self.acquired_ts)


class LanePlace(TaskPart):
    """The lane in which a task waits for its admission, and when it was admitted. A task without a lane never waits."""

    lane: str | None = None
    admitted_ts: Timestamp | None = None


class Task(BaseModel):
    """One version of one task.

    The fields up to `result_extended` are those of the Delegation Service proposal, Persistence; the others are in
    docs/architecture/tasks.md. `attempt_count` only grows and is the fencing token. `revision` grows with every write
    of the head, `version` only with a status change. `due_at` is when the task next needs attention; only the head of a
    task that is not terminal has it. `effects_began_ts` is when the work first changed what it works on. `progress` and
    `reported` come from a task function. A task with a lane starts only after its `admission` (`lanes`). `repeats`
    counts how often requests ran a terminal task again; None before the first, and after a retry. `reported_version` is
    the version already reported as partly done. `notify` are the channels that its end notifies (`notifications`).
    `requested_by` made the present submission, `cancelled_by` cancelled it.

    A result too large for the record is the object `result_location` of the record bucket, without `result_extended`.

    `lease`, `dispatches`, `family`, `hand_overs`, `killed` and `admission` are parts: the store and callers have their
    fields beside the others. `result_attempt` made `pending_result`.

    `target_key` and `correlation_key` are digests (`Labels`) of what the task works on and of its request's correlation
    id; lists find the task by them.

    `details` belong to the task's behavior or to a newer release. They are stored beside the fields, and every rewrite
    keeps them. A detail that is None is not stored. `starts_refused` counts the attempts of this submission that were
    excused because no function could be started for them. At `deadline_ts` a task ends if its work has not changed
    anything. `payload_version` is that of the behavior that wrote the payload.
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
    lease: TaskLease = TaskLease()
    result_summary: str | None = None
    result_extended: str | None = None
    result_location: str | None = None

    revision: int = Field(default=1, ge=1)
    nonce: str = ""
    next_scheduled_run_ts: Timestamp | None = None
    attempts_excused: int = Field(default=0, ge=0)
    throttled_count: int = Field(default=0, ge=0)
    starts_refused: int = Field(default=0, ge=0)
    hand_overs: HandOvers = HandOvers()
    killed: KilledAttempts = KilledAttempts()
    deadline_ts: Timestamp | None = None
    payload_version: int = Field(default=1, ge=1)
    dispatches: Dispatches = Dispatches()
    cancel_requested: bool = False
    error_code: str | None = None
    synchronous: bool = False
    effects_began_ts: Timestamp | None = None
    engine: str | None = None
    job_run_id: str | None = None
    progress_ts: Timestamp | None = None
    progress: TaskProgress | None = None
    reported: Mapping[str, Any] = Field(default_factory=dict, repr=False)
    eta_ts: Timestamp | None = None
    recurrence_seconds: int | None = Field(default=None, ge=1)
    recurrence_cron: str | None = None
    family: AdoptedChildren = AdoptedChildren()
    pending_result: str | None = None
    result_attempt: int | None = None
    admission: LanePlace = LanePlace()
    requested_by: Caller | None = None
    cancelled_by: Caller | None = None
    repeats: int | None = Field(default=None, ge=1)
    reported_version: int | None = Field(default=None, ge=1)
    notify: tuple[str, ...] = ()
    target_key: str | None = None
    correlation_key: str | None = None

    due_at: Timestamp | None = None
    details: Mapping[str, Any] = Field(default_factory=dict, repr=False)

    @model_validator(mode="after")
    def _fits_its_status(self) -> Self:
        if self.status in HELD:
            if not self.lease.is_whole or self.attempt_count < 1:
                raise ValueError(f"status: a task that is {self.status} needs a lease and an attempt")
        elif not self.lease.has_ended:
            raise ValueError(f"lease_owner: a task that is {self.status} cannot hold a lease")
        if (self.next_scheduled_run_ts is not None) != (self.status in WAITING):
            raise ValueError(
                f"next_scheduled_run_ts: must be set exactly if the task waits, but the task is {self.status}"
            )
        if self.due_at is not None and self.status in TERMINAL:
            raise ValueError(f"due_at: a task that is {self.status} is never due")
        if self.status is Status.FAILURE and self.error_code is None:
            raise ValueError("error_code: a task that is FAILURE needs an error code")
        if self.attempts_excused > self.attempt_count:
            raise ValueError("attempts_excused: cannot exceed attempt_count")
        if self.dispatches.base > self.dispatches.count:
            raise ValueError("dispatch_base: cannot exceed dispatch_count")
        return self

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def is_recurring(self) -> bool:
        return self.recurrence_seconds is not None or self.recurrence_cron is not None

    @property
    def is_left_partly_done(self) -> bool:
        """Whether the task ended as FAILURE after its work had changed something."""
        return self.status is Status.FAILURE and self.effects_began_ts is not None

    @property
    def is_held(self) -> bool:
        """Whether a process holds the lease of the current attempt."""
        return self.status in HELD

    @property
    def is_queued(self) -> bool:
        """Whether the task waits for its admission; until then nothing dispatches or acquires it."""
        return self.admission.lane is not None and self.admission.admitted_ts is None and self.status in WAITING

    @property
    def row(self) -> Self:
        """The version's row: no due time, and the errors of all attempts only at an end. The head has them; in each row
        they would grow with the square of the history. Each row has its own error."""
        return self.evolve(due_at=None, **({} if self.is_terminal else {"result_extended": None}))

    @property
    def unexcused_attempts(self) -> int:
        return self.attempt_count - self.attempts_excused

    @property
    def listed_children(self) -> tuple[str, ...]:
        return tuple(child for child in self.family.children if child != self.task_id)

    def evolve(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; raises ValidationError when it is not a valid record."""
        return type(self).model_validate({**vars(self), **changes})

    def with_details(self, details: Mapping[str, Any], **changes: Any) -> Self:
        """Return a copy with these details added; a detail that is None is removed. Raises DelegationError (BAD_REPORT)
        for a detail that JSON cannot hold, in any store."""
        kept = {name: value for name, value in self.details.items() if name not in details}
        fresh = storable({name: value for name, value in details.items() if value is not None})
        return self.evolve(details=kept | fresh, **changes)

    def flat(self) -> dict[str, Any]:
        """Return the fields as they are stored and shown, those of parts under their flat names."""
        parts = {part: vars(getattr(self, part)) for part in PARTS} | {"": vars(self)}
        return {name: parts[part][field] for name, part, field in _FLAT}

    def public(self) -> dict[str, Any]:
        """Return the record as one flat JSON object with `partly_deleted`, without INTERNAL and rarely set fields."""
        few = ("progress", "reported", "result_location", "recurrence_cron")
        hidden = {"details", *INTERNAL, *(name for name in few if not getattr(self, name))}
        shown = {**self.details, **{name: value for name, value in self.flat().items() if name not in hidden}}
        shown["children"] = self.listed_children
        shown["partly_deleted"] = self.is_left_partly_done
        return {STORED_NAMES.get(name, name): jsonable(value) for name, value in shown.items()}


PARTS: Final[Mapping[str, Mapping[str, str]]] = {
    "lease": {
        "owner": "lease_owner",
        "acquired_ts": "lease_acquired_ts",
        "lost_not_before": "lost_not_before",
        "recheck_not_before": "recheck_not_before",
    },
    "dispatches": {"count": "dispatch_count", "base": "dispatch_base"},
    "hand_overs": {"count": "handed_over_count", "state": "handed_over_state"},
    "killed": {"count": "killed_count", "state": "killed_state"},
    "family": {name: name for name in AdoptedChildren.model_fields},
    "admission": {name: name for name in LanePlace.model_fields},
}
"""The fields of each part, with the flat names under which they are stored and shown."""
_FLAT: Final = tuple(
    (flat, part, field)
    for name in Task.model_fields
    for part, flat, field in (
        ((name, flat, field) for field, flat in PARTS[name].items()) if name in PARTS else (("", name, name),)
    )
)
"""The flat names in the order of the fields, each with its part (empty for a field of the task) and its name there."""
_FAMILY: Final = frozenset({"child_ordinal", "attempts_before", "runs_before", "result_attempt"})
_ADMISSION: Final = frozenset({"lane", "admitted_ts"})
_HAND_OVERS: Final = frozenset({"handed_over_count", "handed_over_state", "killed_count", "killed_state"})
_LABELS: Final = frozenset({"target_key", "correlation_key"})
INTERNAL: Final = (
    frozenset({"due_at", "nonce", "lease_owner", "dispatch_base", "repeats", "reported_version", "notify"})
    | _FAMILY
    | _ADMISSION
    | _HAND_OVERS
    | _LABELS
)
"""Fields that are stored and not shown to callers."""
STORED_NAMES: Final = {"effects_began_ts": "first_delete_ts", "reported": "details"}
"""Fields whose name in the store (format 1) and in the public record differs."""


def jsonable(value: Any) -> Any:
    if isinstance(value, datetime):
        return isoformat(value)
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True)
    if isinstance(value, tuple | list):
        return [jsonable(item) for item in value]
    return value
