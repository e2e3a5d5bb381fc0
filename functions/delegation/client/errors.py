from dataclasses import dataclass
from datetime import timedelta

from delegation.wire.tasks import TaskRecord
from polaris_common.errors import DelegationError

REQUEST_IN_PROGRESS = "request_in_progress"
FAILED_TERMINAL = "FAILED_TERMINAL"
TASK_EXISTS = "TASK_EXISTS"


class DelegationClientError(DelegationError):
    """The root of this package's errors."""

    code = "DELEGATION_CLIENT_ERROR"


class ClientMisconfigured(DelegationClientError):
    """A setting of the client is missing, unreadable or unknown; nothing was sent."""

    code = "CLIENT_MISCONFIGURED"


class ServiceUnreachable(DelegationClientError):
    """The service cannot be reached; nothing was sent."""

    code = "SERVICE_UNREACHABLE"
    retryable = True


class TlsRefused(DelegationClientError):
    """Mutual TLS failed: a certificate is missing, or its issuer is not trusted; nothing was sent."""

    code = "TLS_REFUSED"


class TokenUnavailable(DelegationClientError):
    """The token endpoint was unreachable, or refused the client id, the secret or the scope; nothing was sent."""

    code = "TOKEN_UNAVAILABLE"


class IssuerUnavailable(TokenUnavailable):
    """The token endpoint was unreachable or failed temporarily, after a few tries; nothing was sent."""


class AnswerLost(DelegationClientError):
    """The request was sent but not answered; it may have been accepted."""

    code = "ANSWER_LOST"
    retryable = True


class UnexpectedAnswer(DelegationClientError):
    """The answer violates the protocol: it is not JSON, or lacks a field."""

    code = "UNEXPECTED_ANSWER"


class IdempotencyWindowExpired(DelegationClientError):
    """No retry with `key` had an outcome within the advertised `lifetime`; `last` is the last error. Check the task
    before you send the request again: that could start the operation a second time (Idempotency-Key proposal,
    Client-Side Changes (Polaris & Iceberg Integrations))."""

    code = "IDEMPOTENCY_WINDOW_EXPIRED"

    def __init__(self, key: str, lifetime: timedelta, last: DelegationClientError) -> None:
        super().__init__(
            f"the request had no outcome within its idempotency key's lifetime of {lifetime}. Check whether its task "
            f"exists before you send it again. The last error: {last}"
        )
        self.key = key
        self.lifetime = lifetime
        self.last = last
        self.delegation_task_id = last.delegation_task_id if isinstance(last, ErrorAnswer) else None


class WaitTimedOut(DelegationClientError):
    """The task had no outcome when the caller's time-out ended the wait; it continues. `task` is the last read."""

    code = "WAIT_TIMED_OUT"

    def __init__(self, task: TaskRecord) -> None:
        super().__init__(
            f"task {task.task_id} is still {task.status} at the end of the wait. The task continues. To wait longer, "
            "pass its id to `wait`"
        )
        self.task = task
        self.delegation_task_id = task.task_id


class ExtraMissing(DelegationClientError):
    """A module is missing that only an extra of this package installs; nothing was done."""

    code = "EXTRA_MISSING"

    def __init__(self, what: str, extra: str, module: str) -> None:
        super().__init__(
            f"{what} needs {module}, which is not installed. Install the extra: pip install "
            f"'polaris-delegation-service[{extra}]'"
        )
        self.extra = extra


class NotAuthorised(DelegationClientError):
    """The host's `authorise` did not permit the purge; nothing was read, sent or deleted."""

    code = "NOT_AUTHORISED"

    def __init__(self, table: str) -> None:
        super().__init__(
            f"the caller may not drop {table} with its files, so nothing was purged. Grant the caller the privilege to "
            "drop the table with purge"
        )
        self.table = table


class DelegatedTaskFailed(DelegationClientError):
    """The service's task ended as FAILURE; nothing was dropped, and its record has the reason."""

    code = "DELEGATED_TASK_FAILED"

    def __init__(self, task: TaskRecord) -> None:
        reason = ": ".join(part for part in (task.error_code, task.result_summary) if part) or "no reason recorded"
        super().__init__(
            f"task {task.task_id} of the Delegation Service failed: {reason}. Remove the cause, then retry this task, "
            "which submits the purge again"
        )
        self.delegation_task_id = task.task_id


class DelegationDelayed(DelegationClientError):
    """The service or the catalog could not do its part now; the same step may succeed later."""

    code = "DELEGATION_DELAYED"
    retryable = True


class PurgedNotDropped(DelegationClientError):
    """The purge succeeded, but dropping the table from the catalog failed; drop it without purge."""

    code = "PURGED_NOT_DROPPED"

    def __init__(self, table: str, delegation_task_id: str, reason: str) -> None:
        super().__init__(
            f"the files of {table} are purged, but the table may still be in the catalog ({reason}). Drop the table "
            "without purge"
        )
        self.table = table
        self.delegation_task_id = delegation_task_id


class NothingPurged(DelegationClientError):
    """The service succeeded but deleted no file, so the table was not dropped: a drop would lose its files. Happens for
    a dry run, and for a purge that kept every file because another table shares it."""

    code = "NOTHING_PURGED"

    def __init__(self, table: str, delegation_task_id: str) -> None:
        super().__init__(
            f"task {delegation_task_id} deleted no file of {table}, so nothing was dropped. Read the task's result, "
            "then drop the table without purge if its files may stay"
        )
        self.table = table
        self.delegation_task_id = delegation_task_id


class TableChangedSincePurge(DelegationClientError):
    """After the purge the name belongs to another table, or the table has a newer commit; nothing was dropped. `purged`
    and `found` are table-uuid and metadata location; the uuid of a table that cannot be loaded is None."""

    code = "TABLE_CHANGED_SINCE_PURGE"

    def __init__(
        self, table: str, delegation_task_id: str, *, purged: tuple[str, str], found: tuple[str | None, str]
    ) -> None:
        super().__init__(
            f"task {delegation_task_id} purged {table} (table-uuid {purged[0]}, {purged[1]}), but the catalog now has "
            f"table-uuid {found[0] or 'unknown'}, {found[1]} under that name, so nothing was dropped. To remove that "
            "table too, purge and drop it in another call"
        )
        self.table = table
        self.delegation_task_id = delegation_task_id
        self.purged = purged
        self.found = found


@dataclass(frozen=True, slots=True)
class HttpError:
    """An error answer (Delegation Service proposal, Appendix, ErrorResponse) with its status and Retry-After. `status`
    is FAILED_TERMINAL or None, `retryable` the body's. `error_code` is `HTTP_nnn` if the body has none, as from API
    Gateway."""

    http_status: int
    error_code: str
    message: str
    details: str | None = None
    delegation_task_id: str | None = None
    status: str | None = None
    retryable: bool | None = None
    retry_after_seconds: float | None = None


class ErrorAnswer(DelegationClientError):
    """The service answered with an error; it has the attributes of HttpError."""

    code = "ERROR_ANSWER"

    def __init__(self, answer: HttpError) -> None:
        super().__init__(f"{answer.message} ({answer.http_status} {answer.error_code})")
        self.http_status = answer.http_status
        self.error_code = answer.error_code
        self.message = answer.message
        self.details = answer.details
        self.delegation_task_id = answer.delegation_task_id
        self.status = answer.status
        self.retry_after_seconds = answer.retry_after_seconds


class RequestRefused(ErrorAnswer):
    """The request was refused, and an unchanged repeat would be too."""

    code = "REQUEST_REFUSED"


class InvalidRequest(RequestRefused):
    """400: the message names the field."""

    code = "INVALID_REQUEST"


class NotAuthenticated(RequestRefused):
    """401: a fresh token was refused too."""

    code = "NOT_AUTHENTICATED"


class NotPermitted(RequestRefused):
    """403: the deployment does not admit the certificate, the scope or the realm."""

    code = "NOT_PERMITTED"


class NotFound(RequestRefused):
    """404: no such task, table or resource, according to `error_code`."""

    code = "NOT_FOUND"


class Conflict(RequestRefused):
    """409 other than `request_in_progress`: the state of the table or a running task does not permit it."""

    code = "CONFLICT"


class IdempotencyKeyConflict(RequestRefused):
    """422: the key was used with another payload; use a new key for a new operation."""

    code = "IDEMPOTENCY_KEY_CONFLICT"


class RequestStillRunning(ErrorAnswer):
    """409 `request_in_progress`: the operation is running; repeat the request later with the same key. With `retryable`
    false in the body it is a Conflict instead."""

    code = "REQUEST_IN_PROGRESS"
    retryable = True


class ServiceFailed(ErrorAnswer):
    """429 or 5xx without an outcome of the task; it may be temporary."""

    code = "SERVICE_FAILED"
    retryable = True


class PermanentFailure(ErrorAnswer):
    """429 or 5xx with `retryable` false: Polaris or the object store refuses the service until an operator acts."""

    code = "PERMANENT_FAILURE"


class TaskFailed(ErrorAnswer):
    """The task failed and the service does not retry it."""

    code = "TASK_FAILED"


_BY_STATUS: dict[int, type[ErrorAnswer]] = {
    400: InvalidRequest,
    401: NotAuthenticated,
    403: NotPermitted,
    404: NotFound,
    409: Conflict,
    422: IdempotencyKeyConflict,
}


def error_for(answer: HttpError) -> ErrorAnswer:
    if answer.status == FAILED_TERMINAL:
        return TaskFailed(answer)
    in_progress = answer.http_status == 409 and answer.error_code == REQUEST_IN_PROGRESS
    if in_progress and answer.retryable is not False:
        return RequestStillRunning(answer)
    if answer.http_status == 429 or answer.http_status >= 500:
        return PermanentFailure(answer) if answer.retryable is False else ServiceFailed(answer)
    return _BY_STATUS.get(answer.http_status, RequestRefused)(answer)
