"""The answers to accepted requests, as pure functions of a task; a replay returns exactly these bytes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from delegation.idempotency.record import StoredAnswer
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.task_type import TaskTypes
from delegation.wire.responses import ErrorResponse, TaskAccepted, TaskSuccessResponse
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.edge.codes import CodeMeaning

BASE_PATH: Final = "/delegation-service/api"

RETRY_AFTER_SECONDS: Final[Mapping[int, int]] = {409: 30, 429: 2, 503: 2}
"""The `Retry-After` of an answer that names none; in a conflict something else has to end or be mended first."""


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
