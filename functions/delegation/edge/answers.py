"""The answers to accepted requests, as pure functions of a task: what is stored for replay is these bytes."""

from collections.abc import Iterator
from typing import Final

from pydantic import BaseModel

from delegation.edge.models import ErrorResponse, ExecutionResult, TaskAccepted, TaskSuccessResponse, render
from delegation.errors import DelegationError
from delegation.idempotency.record import StoredAnswer
from delegation.polaris.errors import PolarisError
from delegation.purge.errors import PurgeRefused
from delegation.purge.objectstore import ObjectStoreError
from delegation.tasks.model import Status, Task
from delegation.tasks.transitions import CANCELLED

BASE_PATH: Final = "/delegation-service/api"
RESTORED: Final = "RESTORED"


def _codes(root: type[DelegationError]) -> Iterator[str]:
    yield root.code
    for subclass in root.__subclasses__():
        yield from _codes(subclass)


_CONFLICT: Final = frozenset({*_codes(PurgeRefused), CANCELLED, RESTORED})
_BAD_GATEWAY: Final = frozenset({*_codes(PolarisError), *_codes(ObjectStoreError)})


def accepted(task: Task) -> StoredAnswer:
    """202: the task is stored and will be run (delegation-service.txt §10.1)."""
    url = f"{BASE_PATH}/v1/tasks/{task.task_id}"
    return _answer(202, TaskAccepted(delegation_task_id=task.task_id, status_query_url=url))


def outcome(task: Task) -> StoredAnswer:
    """The answer to a synchronous request from the first terminal version of its task (DESIGN §3).

    FAILURE is 409 for guards and cancellation, 502 for Polaris, vending and storage, 500 for anything else.
    """
    if task.status is Status.SUCCESS:
        result = ExecutionResult(files_deleted=task.files_deleted, bytes_deleted=task.bytes_deleted)
        return _answer(
            200,
            TaskSuccessResponse(delegation_task_id=task.task_id, message=task.result_summary, execution_result=result),
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
    """The HTTP status of a FAILURE by its error code."""
    if error_code in _CONFLICT:
        return 409
    return 502 if error_code in _BAD_GATEWAY else 500


def _answer(status: int, model: BaseModel) -> StoredAnswer:
    return StoredAnswer(status, render(model).decode())
