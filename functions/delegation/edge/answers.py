"""The answers to accepted requests, as pure functions of a task; a replay returns exactly these bytes."""

from typing import Final

from pydantic import BaseModel

from delegation.errors import DelegationError
from delegation.idempotency.record import StoredAnswer
from delegation.operations.purge.behavior.details import PurgeDetails
from delegation.tasks.life.model import Status, Task
from delegation.wire.responses import ErrorResponse, ExecutionResult, TaskAccepted, TaskSuccessResponse, render

BASE_PATH: Final = "/delegation-service/api"

CONFLICT: Final = frozenset({
    "AMBIGUOUS_PATH",
    "CANCELLED",
    "CREDENTIALS_CANNOT_DELETE",
    "CREDENTIALS_DO_NOT_COVER",
    "FILES_SHARED",
    "GC_DISABLED",
    "METADATA_REPLACED",
    "NEIGHBOUR_UNREADABLE",
    "PATHS_OUTSIDE_TABLE",
    "PLAN_NOT_ALLOWED",
    "PLAN_OF_ANOTHER_TABLE",
    "PLAN_OUTDATED",
    "REFUSED",
    "RESTORED",
    "TABLE_UUID_MISMATCH",
    "TOO_LARGE_FOR_INLINE",
    "UNSUPPORTED_FORMAT_VERSION",
    "UNSUPPORTED_LOCATION",
    "VERSIONED_BUCKET",
})  # fmt: skip
"""Error codes answered with 409: a guard refused the purge, or a user cancelled it."""
BAD_GATEWAY: Final = frozenset({
    "CREDENTIALS_UNAVAILABLE",
    "CREDENTIAL_VENDING_FAILED",
    "NO_SUCH_CATALOG",
    "NO_SUCH_NAMESPACE",
    "NO_SUCH_TABLE",
    "OBJECT_NOT_FOUND",
    "OBJECT_TOO_LARGE",
    "POLARIS_ERROR",
    "POLARIS_FORBIDDEN",
    "POLARIS_MISCONFIGURED",
    "POLARIS_OUTCOME_UNKNOWN",
    "POLARIS_UNAUTHORIZED",
    "POLARIS_UNAVAILABLE",
    "POLARIS_UNEXPECTED_ANSWER",
    "STORAGE_ACCESS_DENIED",
    "STORAGE_ERROR",
    "STORAGE_UNAVAILABLE",
    "STORAGE_ANSWER_TOO_LARGE",
    "STORAGE_FULL",
    "BUCKET_NOT_FOUND",
    "TABLE_ALREADY_EXISTS",
    "TABLE_METADATA_MISSING",
})  # fmt: skip
"""Error codes answered with 502: Polaris or the object store failed."""


def accepted(task: Task) -> StoredAnswer:
    """Return the 202 answer (Delegation Service proposal, Asynchronous Task Submission & Status Endpoints)."""
    url = f"{BASE_PATH}/v1/tasks/{task.task_id}"
    return _answer(202, TaskAccepted(delegation_task_id=task.task_id, status="QUEUED", status_query_url=url))


def outcome(task: Task) -> StoredAnswer:
    """Return the answer to a synchronous request, given the first terminal version of its task."""
    if task.status is Status.SUCCESS:
        details = PurgeDetails.of(task)
        result = ExecutionResult(files_deleted=details.files_deleted, bytes_deleted=details.bytes_deleted)
        return _answer(
            200,
            TaskSuccessResponse(
                delegation_task_id=task.task_id,
                status="COMPLETED_SUCCESS",
                message=task.result_summary,
                execution_result=result,
            ),
        )
    code = task.error_code or DelegationError.code
    return _answer(
        failure_status(code),
        ErrorResponse(
            error_code=code,
            message=task.result_summary or "the task failed",
            details=task.result_extended,
            delegation_task_id=task.task_id,
            status="FAILED_TERMINAL",
        ),
    )


def failure_status(error_code: str) -> int:
    """Return the HTTP status for the error code of a failed task: 409, 502, or 500 for any other code."""
    if error_code in CONFLICT:
        return 409
    return 502 if error_code in BAD_GATEWAY else 500


def _answer(status: int, model: BaseModel) -> StoredAnswer:
    return StoredAnswer(status, render(model).decode())
