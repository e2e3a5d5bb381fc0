"""Errors of tasks and their store, split by what the caller can do next."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from delegation.errors import RunStopped
from delegation.timestamps import LONGEST_DURATION
from polaris_common.errors import DelegationError, ErrorScope, counted

if TYPE_CHECKING:
    from delegation.tasks.life.model import Task


class TaskError(DelegationError):
    """The root of this package's errors; logs and API problems show the `task_id` of those that have one."""

    code = "TASK_ERROR"


class TaskNotFound(TaskError):
    code = "TASK_NOT_FOUND"

    def __init__(self, task_id: str) -> None:
        super().__init__(f"there is no task {task_id}")
        self.task_id = task_id


class _Refused(TaskError):
    """A conditional write was refused; `stored` is the head in the store, None if there is none."""

    retryable = True

    def __init__(self, task_id: str, stored: "Task | None") -> None:
        if stored is None:
            super().__init__(f"task {task_id} does not exist")
        else:
            now = f"version {stored.version}, revision {stored.revision}"
            super().__init__(f"another process wrote task {task_id}, which now has {now}")
        self.task_id = task_id
        self.stored = stored


class TaskExists(_Refused):
    """Another process stored a task with this id first."""

    code = "TASK_EXISTS"
    retryable = False


class StaleTask(_Refused):
    """The task's version is not the one that was read; read again and decide again."""

    code = "STALE_TASK"


class RevisionConflict(_Refused):
    """The head was rewritten within its version (heartbeat, dispatch, progress); read again and decide again."""

    code = "REVISION_CONFLICT"


class LeaseLost(TaskError):
    """The attempt no longer holds the task; its writes are refused."""

    code = "LEASE_LOST"
    scope = ErrorScope.SERVICE

    def __init__(
        self,
        task_id: str,
        *,
        attempt: int,
        current: int,
        status: str,
        owner: str | None = None,
        holder: str | None = None,
    ) -> None:
        """`owner` held the attempt and `holder` holds the task now; give them if the attempt numbers are equal."""
        former = f"attempt {attempt}" + (f" of {owner}" if owner else "")
        present = f"attempt {current}" + (f" of {holder}" if holder else "")
        super().__init__(f"{former} no longer holds task {task_id}, which is now at {present} with status {status}")
        self.task_id = task_id
        self.attempt = attempt
        self.current = current


class ChildrenPending(RunStopped):
    """Children whose results the work needs have not ended; the work runs again when they have."""

    code = "CHILDREN_PENDING"

    def __init__(self, task_id: str, count: int) -> None:
        open_children = counted(count, "child", "children")
        super().__init__(
            f"task {task_id} waits for {open_children}. Its work will run again when all children have ended"
        )
        self.task_id = task_id


class RunPostponed(TaskError):
    """The work waits for something outside the tasks. The attempt ends, and the work runs again after `wait`. Such an
    attempt counts against no limit; `reason` states what it waits for. Raises ValueError for a wait that is negative or
    longer than ten years."""

    code = "POSTPONED"
    retryable = True

    def __init__(self, reason: str, wait: timedelta) -> None:
        if not timedelta(0) <= wait <= LONGEST_DURATION:
            raise ValueError(f"wait: {wait} is not between 0 and {LONGEST_DURATION.days} days")
        super().__init__(f"{reason}. The work will run again in {wait.total_seconds():g} s")
        self.wait = wait


class StoreRefused(TaskError):
    """The store can never make this call, however often it is repeated; for example, an item is too large."""

    code = "STORE_REFUSED"


def waits_for_itself(task_id: str, child_id: str) -> DelegationError:
    which = "itself" if task_id == child_id else f"task {child_id}, which waits for task {task_id}"
    return DelegationError(
        f"task {task_id} cannot wait for {which}. Submit task {child_id} without a parent",
        code="WAITS_FOR_ITSELF",
        task_id=task_id,
    )


class DeadlineExceeded(DelegationError):
    """A task's deadline passed before its work changed anything; the work must not start."""

    code = "DEADLINE_EXCEEDED"

    def __init__(self, task_id: str, reason: str) -> None:
        super().__init__(f"task {task_id}: {reason}")
        self.task_id = task_id


class AwaitedTaskFailed(TaskError):
    """An awaited task ended in FAILURE; `error_code` and the text come from its record."""

    code = "TASK_FAILED"

    def __init__(self, task_id: str, error_code: str, summary: str) -> None:
        super().__init__(f"task {task_id} failed: {error_code}: {summary}")
        self.task_id = task_id
        self.error_code = error_code


class IllegalTransition(TaskError):
    """The task's status does not allow the change (`life.transitions.ARROWS`)."""

    code = "ILLEGAL_TRANSITION"

    def __init__(self, task_id: str, source: str, target: str) -> None:
        super().__init__(f"task {task_id} cannot change from {source} to {target}")
        self.task_id = task_id
        self.source = source
        self.target = target


class MalformedRecord(TaskError):
    """A stored item is not a task record of a format that this release reads; `stored` is its content, if known."""

    code = "MALFORMED_RECORD"

    def __init__(self, message: str, stored: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.stored = stored or {}


class MalformedPayload(DelegationError):
    """A task's payload is not valid for its type in any version that this release reads: no attempt can run it."""

    code = "MALFORMED_PAYLOAD"

    def __init__(self, task_id: str, reason: str) -> None:
        super().__init__(f"task {task_id}: task_payload: {reason}. Submit the task again with correct parameters")
        self.task_id = task_id


class StoreUnavailable(TaskError):
    """The store refused the call or could not be reached; nothing was written, and the call may be repeated."""

    code = "STORE_UNAVAILABLE"
    retryable = True


class OutcomeUnknown(TaskError):
    """A write timed out, and reading back did not show whether it was applied; read before you try again."""

    code = "OUTCOME_UNKNOWN"
    retryable = True


HIDDEN: Final = "***"
_NAME: Final = r"(?:secret|token|passw(?:or)?d|credential|signature|access[_.-]?key)[\w.-]{0,40}"
_NAMED: Final = re.compile(rf"""(?i)({_NAME}(?:=["']?|["']\s*[:=]\s*["']))[^\s"'&,;)}}\]]+""")
"""Matches `client_secret=…`, `"s3.session-token": "…"`, `X-Amz-Signature=…`: a secret's name and its value."""
_BEARER: Final = re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{16,}")
_JWT: Final = re.compile(r"\beyJ[\w-]{5,4000}\.[\w-]+\.[\w-]*")
_ACCESS_KEY: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_USER_INFO: Final = re.compile(r"(://)[^/\s@]+:[^/\s@]+@")


def redacted(text: str) -> str:
    """Return the text with `***` for access keys, tokens, passwords and values whose names mark them as secret."""
    for pattern in (_JWT, _ACCESS_KEY):
        text = pattern.sub(HIDDEN, text)
    for pattern in (_BEARER, _NAMED):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return _USER_INFO.sub(rf"\1{HIDDEN}@", text)
