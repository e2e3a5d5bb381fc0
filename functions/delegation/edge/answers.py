"""Answers to accepted requests and to errors; a replay returns exactly these bytes. An error has the status of its code
(`codes.json`), or of its nearest ancestor's. Any other error is answered with 500 and a message that reveals
nothing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from delegation.edge.errors import BadRequest, MethodNotAllowed
from delegation.idempotency.store import StoredAnswer
from delegation.tasks.life.declared import TaskTypes
from delegation.tasks.life.model import Status, Task
from delegation.wire.responses import ErrorResponse, TaskAccepted, TaskSuccessResponse, render
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.edge.codes import CodeMeaning

BASE_PATH: Final = "/delegation-service/api"

RETRY_AFTER_SECONDS: Final[Mapping[int, int]] = {409: 30, 429: 2, 503: 2}
"""The `Retry-After` of an answer that names none; in a conflict something else has to end or be repaired first."""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """An answer with its final bytes; for logs and metrics its task, if any, and how it was reached."""

    status: int
    body: bytes
    task_id: str = ""
    kind: str = "served"
    headers: Mapping[str, str] = field(default_factory=dict)


def accepted(task: Task) -> StoredAnswer:
    """Return the 202 answer (Delegation Service proposal, Asynchronous Task Submission & Status Endpoints)."""
    url = f"{BASE_PATH}/v1/tasks/{task.task_id}"
    return _answer(202, TaskAccepted(delegation_task_id=task.task_id, status="QUEUED", status_query_url=url))


def outcome(task: Task, types: TaskTypes) -> StoredAnswer:
    """Return the answer to a synchronous request, given the first terminal version of its task."""
    if task.status is Status.SUCCESS:
        return _answer(
            200,
            TaskSuccessResponse(
                delegation_task_id=task.task_id,
                status="COMPLETED_SUCCESS",
                message=task.result_summary,
                execution_result=types.of(task).execution_result(task),
            ),
        )
    code = task.error_code or DelegationError.code
    status = failure_status(code)
    return _answer(
        status,
        ErrorResponse(
            error_code=code,
            message=task.result_summary or "the task failed",
            details=task.result_extended,
            delegation_task_id=task.task_id,
            status="FAILED_TERMINAL",
            retryable=retryable(code) or (False if status == 502 else None),
            partly_deleted=True if task.is_left_partly_done else None,
        ),
    )


def failure_status(error_code: str) -> int:
    """Return the HTTP status for the error code of a failed task: 404, 409, 502, or 500 for any other code."""
    known = _meaning(error_code)
    return known.status if known is not None and known.status in {404, 409, 502} else 500


def retryable(error_code: str) -> bool:
    """Return whether the cause may pass without an operator, so that the same request may succeed later."""
    known = _meaning(error_code)
    return known is not None and known.retryable is True


def _meaning(error_code: str) -> "CodeMeaning | None":
    from delegation.edge.codes import by_code  # noqa: PLC0415 - only failures need it

    return by_code().get(error_code)


def _answer(status: int, model: BaseModel) -> StoredAnswer:
    return StoredAnswer(status, model.model_dump_json(exclude_none=True))


_INTERNAL_MESSAGE: Final = "the service failed unexpectedly; search its log for this request's X-Request-ID"
_RETRY: Final = {"Retry-After": "2"}
_BY_STATUS: Final[Mapping[int, Mapping[str, str]]] = {401: {"WWW-Authenticate": "Bearer"}, 503: _RETRY}
_BY_CODE: Final[Mapping[str, Mapping[str, str]]] = {
    "UNSUPPORTED_MEDIA_TYPE": {"Accept": "application/json"},
    "UNSUPPORTED_CONTENT_ENCODING": {"Accept-Encoding": "identity"},
    "request_in_progress": _RETRY,
}
"""The headers of answers with a status or a code."""


@dataclass(frozen=True, slots=True)
class Problem:
    status: int
    error: str
    body: bytes
    headers: Mapping[str, str]


def status_of(error: BaseException) -> int | None:
    """Return the status of an error's answer; None if the answer must reveal nothing about it."""
    from delegation.edge.codes import by_code  # noqa: PLC0415 - only failures need it

    if not isinstance(error, DelegationError):
        return None
    ancestors = (vars(kind).get("code", "") for kind in type(error).__mro__)
    known = (by_code()[code] for code in (error.code, *ancestors) if code in by_code())
    return next((meaning.status for meaning in known), None)


def problem_of(error: BaseException) -> Problem:
    known = status_of(error)
    status = known or 500
    code = error.code if known and isinstance(error, DelegationError) else DelegationError.code
    retryable = _retryable(status, error)
    own = _own_headers(error, retryable=retryable)
    headers = {**_BY_STATUS.get(status, {}), **_BY_CODE.get(code, {}), **own}
    details = "; ".join(error.others) if isinstance(error, BadRequest) else None
    task_id = getattr(error, "task_id", None) if isinstance(error, DelegationError) else None
    body = ErrorResponse(
        error_code=code,
        message=str(error) if known else _INTERNAL_MESSAGE,
        details=details or None,
        delegation_task_id=task_id if isinstance(task_id, str) else None,
        retryable=retryable,
    )
    return Problem(status, code, render(body), headers)


def _retryable(status: int, error: BaseException) -> bool | None:
    """Return whether an unchanged repeat may succeed: True with 503, the error's own value with 502, else None."""
    if status == 502:
        return isinstance(error, DelegationError) and error.retryable
    return True if status == 503 else None


def _own_headers(error: BaseException, *, retryable: bool | None) -> dict[str, str]:
    """Return the headers from the error itself: the methods it allows, or the seconds to wait."""
    if isinstance(error, MethodNotAllowed):
        return {"Allow": ", ".join(error.allowed)}
    seconds: object = getattr(error, "retry_after", None)
    if retryable and isinstance(seconds, float):
        return {"Retry-After": str(max(1, math.ceil(seconds)))}
    return {}
