"""What calling the delegation service can end in, split by what the caller can do next."""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from delegation.errors import DelegationError

REQUEST_IN_PROGRESS = "request_in_progress"
FAILED_TERMINAL = "FAILED_TERMINAL"


class DelegationClientError(DelegationError):
    """The root of this package's errors."""

    code: ClassVar[str] = "DELEGATION_CLIENT_ERROR"


class ClientMisconfigured(DelegationClientError):
    """A setting of the client is missing, unreadable or unknown."""

    code = "CLIENT_MISCONFIGURED"


class ServiceUnreachable(DelegationClientError):
    """No connection to the service came about."""

    code = "SERVICE_UNREACHABLE"
    retryable = True


class TlsRefused(DelegationClientError):
    """Mutual TLS failed: a certificate is missing, or was issued by an authority that the other side does not trust."""

    code = "TLS_REFUSED"


class TokenUnavailable(DelegationClientError):
    """The token endpoint was not reached, or refused the client id, the secret or the scope."""

    code = "TOKEN_UNAVAILABLE"


class AnswerLost(DelegationClientError):
    """The request left and no answer came back; whether it was accepted is unknown."""

    code = "ANSWER_LOST"
    retryable = True


class UnexpectedAnswer(DelegationClientError):
    """The answer is none of the protocol's: not JSON, or a field is missing."""

    code = "UNEXPECTED_ANSWER"


class IdempotencyWindowExpired(DelegationClientError):
    """Retries with `key` went on for the advertised `lifetime` and none was conclusive (idempotency-key.txt).

    Sending the key again could start the operation a second time. `last` is what the last try ended in.
    """

    code = "IDEMPOTENCY_WINDOW_EXPIRED"

    def __init__(self, key: str, lifetime: timedelta, last: DelegationClientError) -> None:
        super().__init__(f"no outcome within the idempotency key's lifetime of {lifetime}; the last answer was: {last}")
        self.key = key
        self.lifetime = lifetime
        self.last = last
        self.delegation_task_id = last.delegation_task_id if isinstance(last, ErrorAnswer) else None


class PurgedNotDropped(DelegationClientError):
    """The purge succeeded as task `delegation_task_id`, then the catalog did not confirm the drop of the entry."""

    code = "PURGED_NOT_DROPPED"

    def __init__(self, table: str, delegation_task_id: str, reason: str) -> None:
        super().__init__(f"the files of {table} are purged, but its catalog entry may be left: {reason}")
        self.table = table
        self.delegation_task_id = delegation_task_id


@dataclass(frozen=True, slots=True)
class HttpError:
    """The body of an error (delegation-service.txt, appendix), and what HTTP says beside it.

    `status` is FAILED_TERMINAL or None. `error_code` is `HTTP_nnn` when the answer came from a gateway with a body of
    its own. `retry_after_seconds` is the header's value, None when absent.
    """

    http_status: int
    error_code: str
    message: str
    details: str | None = None
    delegation_task_id: str | None = None
    status: str | None = None
    retry_after_seconds: float | None = None


class ErrorAnswer(DelegationClientError):
    """The service answered with an error; the fields of its HttpError are attributes."""

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
    """The request was not accepted, and will not be as it stands."""

    code = "REQUEST_REFUSED"


class InvalidRequest(RequestRefused):
    """400: the message names the field."""

    code = "INVALID_REQUEST"


class NotAuthenticated(RequestRefused):
    """401: a fresh token was refused too."""

    code = "NOT_AUTHENTICATED"


class NotPermitted(RequestRefused):
    """403: certificate, scope or realm are not those that this deployment serves."""

    code = "NOT_PERMITTED"


class NotFound(RequestRefused):
    """404: no such task, table or route; `error_code` says which."""

    code = "NOT_FOUND"


class Conflict(RequestRefused):
    """409 without `request_in_progress`: something about the table or a running task stands against it."""

    code = "CONFLICT"


class IdempotencyKeyConflict(RequestRefused):
    """422: the key was used before with another payload; a new operation takes a new key."""

    code = "IDEMPOTENCY_KEY_CONFLICT"


class RequestStillRunning(ErrorAnswer):
    """409 `request_in_progress`: the operation is being worked on."""

    code = "REQUEST_IN_PROGRESS"
    retryable = True


class ServiceFailed(ErrorAnswer):
    """429 or 5xx without an outcome of the task."""

    code = "SERVICE_FAILED"
    retryable = True


class TaskFailed(ErrorAnswer):
    """The task was executed and failed for good; the service's own retries are used up or would not help."""

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
    """The typed error of an answer: by its `status`, then its HTTP status, then its `error_code`."""
    if answer.status == FAILED_TERMINAL:
        return TaskFailed(answer)
    if answer.http_status == 409 and answer.error_code == REQUEST_IN_PROGRESS:
        return RequestStillRunning(answer)
    if answer.http_status == 429 or answer.http_status >= 500:
        return ServiceFailed(answer)
    return _BY_STATUS.get(answer.http_status, RequestRefused)(answer)
