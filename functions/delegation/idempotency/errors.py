"""What a request can meet besides its own outcome."""

from typing import TYPE_CHECKING, ClassVar

from delegation.errors import DelegationError

if TYPE_CHECKING:
    from delegation.idempotency.record import Record


class IdempotencyError(DelegationError):
    """The root of this package's errors."""

    code: ClassVar[str] = "IDEMPOTENCY_ERROR"


class RequestInProgress(IdempotencyError):
    """The request is in flight (idempotency-key.txt, problem type `request_in_progress`)."""

    code: ClassVar[str] = "request_in_progress"
    retryable: ClassVar[bool] = True

    def __init__(self, task_id: str) -> None:
        super().__init__(f"the request is being worked on as task {task_id}; repeat it unchanged")
        self.task_id = task_id


class KeyConflict(IdempotencyError):
    """The key belongs to another payload (idempotency-key.txt, problem type `idempotency_key_conflict`)."""

    code: ClassVar[str] = "idempotency_key_conflict"

    def __init__(self) -> None:
        super().__init__("Idempotency-Key: was used before with another payload")


class TaskConflict(IdempotencyError):
    """A live task with this id does something else: another identifier or other properties (DESIGN §2)."""

    code: ClassVar[str] = "TASK_EXISTS"

    def __init__(self, task_id: str, reason: str) -> None:
        super().__init__(f"task {task_id} is under way with {reason}")
        self.task_id = task_id


class RecordConflict(IdempotencyError):
    """The record is not what we read; `stored` is what stands there now."""

    code: ClassVar[str] = "RECORD_CONFLICT"
    retryable: ClassVar[bool] = True

    def __init__(self, stored: "Record | None") -> None:
        super().__init__("the idempotency record was written by somebody else")
        self.stored = stored
