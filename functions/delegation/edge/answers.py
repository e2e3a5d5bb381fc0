"""The answers to accepted requests, as pure functions of a task; a replay returns exactly these bytes."""

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from delegation.errors import DelegationError
from delegation.idempotency.record import StoredAnswer
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.task_type import TaskTypes
from delegation.wire.responses import ErrorResponse, TaskAccepted, TaskSuccessResponse, render

BASE_PATH: Final = "/delegation-service/api"

CONFLICT: Final = frozenset({
    "AGE_INVALID",
    "AGE_TOO_SHORT",
    "AMBIGUOUS_PATH",
    "AREA_LEFT_ALONE",
    "CANCELLED",
    "CREDENTIALS_CANNOT_DELETE",
    "CREDENTIALS_DO_NOT_COVER",
    "FILES_AT_ANOTHER_TABLE",
    "FILES_SHARED",
    "GC_DISABLED",
    "INVALID_RETENTION",
    "LOCATION_SHARED",
    "LOCATION_TOO_WIDE",
    "METADATA_REPLACED",
    "NEIGHBOUR_UNREADABLE",
    "OPERATOR_ROLE_REQUIRED",
    "PATHS_OUTSIDE_TABLE",
    "PLACES_UNKNOWN",
    "PLAN_NOT_ALLOWED",
    "PLAN_NOT_FOUND",
    "PLAN_OF_ANOTHER_TABLE",
    "PLAN_OUTDATED",
    "PREFIX_MISMATCH",
    "REFERENCES_NOT_INDEXED",
    "REFUSED",
    "RESTORED",
    "ROOT_KEPT",
    "SNAPSHOT_REFERENCED",
    "SPARK_NOT_AVAILABLE",
    "TABLE_METADATA_MISSING",
    "TABLE_PROTECTED",
    "TABLE_STATE_MISMATCH",
    "TABLE_UUID_MISMATCH",
    "TOMBSTONE_REFUSED",
    "TOO_LARGE_FOR_INLINE",
    "TOO_MANY_LOST_REFS",
    "UNSUPPORTED",
    "UNSUPPORTED_FORMAT_VERSION",
    "UNSUPPORTED_LOCATION",
    "VERSIONED_BUCKET",
})  # fmt: skip
"""Error codes answered with 409: a guard refused the work, a user cancelled it, or the metadata file is missing."""
NOT_FOUND: Final = frozenset({"NO_SUCH_CATALOG", "NO_SUCH_NAMESPACE", "NO_SUCH_TABLE"})
"""Error codes answered with 404, as by the asynchronous endpoint: the catalog does not know the table."""
BAD_GATEWAY: Final = frozenset({
    "COMMIT_CONFLICT",
    "CREDENTIALS_UNAVAILABLE",
    "CREDENTIAL_VENDING_FAILED",
    "NAMESPACE_NOT_EMPTY",
    "NO_SUCH_POLICY",
    "OBJECT_NOT_FOUND",
    "OBJECT_TOO_LARGE",
    "POLARIS_ERROR",
    "POLARIS_FORBIDDEN",
    "POLARIS_MISCONFIGURED",
    "POLARIS_OUTCOME_UNKNOWN",
    "POLARIS_UNAUTHORIZED",
    "POLARIS_UNAVAILABLE",
    "POLARIS_UNEXPECTED_ANSWER",
    "POLICIES_NOT_SUPPORTED",
    "POLICY_ALREADY_EXISTS",
    "POLICY_CHANGED",
    "POLICY_IN_USE",
    "POLICY_NOT_ATTACHABLE",
    "POLICY_NOT_ATTACHED",
    "POLICY_REFUSED",
    "POLICY_TYPE_ATTACHED",
    "SECRET_OUTCOME_UNKNOWN",
    "BUCKET_NOT_FOUND",
    "STORAGE_ACCESS_DENIED",
    "STORAGE_ANSWER_TOO_LARGE",
    "STORAGE_ERROR",
    "STORAGE_FULL",
    "STORAGE_UNAVAILABLE",
    "STORE_CLOCK_UNKNOWN",
    "TABLE_ALREADY_EXISTS",
})  # fmt: skip
"""Error codes answered with 502, which is never stored: Polaris or the object store failed or refused."""
RETRYABLE: Final = frozenset({
    "POLARIS_OUTCOME_UNKNOWN",
    "POLARIS_UNAVAILABLE",
    "STORAGE_ANSWER_TOO_LARGE",
    "STORAGE_FULL",
    "STORAGE_UNAVAILABLE",
})  # fmt: skip
"""Those of them that may pass by themselves; after any other an operator has to act first."""

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
            retryable=code in RETRYABLE if status == 502 else None,
            partly_deleted=True if task.is_left_partly_done else None,
        ),
    )


def failure_status(error_code: str) -> int:
    """Return the HTTP status for the error code of a failed task: 404, 409, 502, or 500 for any other code."""
    if error_code in NOT_FOUND:
        return 404
    if error_code in CONFLICT:
        return 409
    return 502 if error_code in BAD_GATEWAY else 500


def _answer(status: int, model: BaseModel) -> StoredAnswer:
    return StoredAnswer(status, render(model).decode())
