from polaris_common.errors import DelegationError, counted


class IdempotencyError(DelegationError):
    code = "IDEMPOTENCY_ERROR"


class RequestInProgress(IdempotencyError):
    """The request is still running: repeat it later (Idempotency-Key proposal, `request_in_progress`)."""

    code = "request_in_progress"
    retryable = True

    def __init__(self, task_id: str) -> None:
        super().__init__(f"the request is still running as task {task_id}; repeat it unchanged")
        self.task_id = task_id


class KeyConflict(IdempotencyError):
    """The key was used with another payload (Idempotency-Key proposal, `idempotency_key_conflict`)."""

    code = "idempotency_key_conflict"

    def __init__(self) -> None:
        super().__init__("Idempotency-Key: was used before with another payload; send a new key")


class ResubmittedTooSoon(IdempotencyError):
    """The request's task ended and may run again only after `retry_after` seconds, which double with each repeat."""

    code = "RESUBMITTED_TOO_SOON"
    retryable = True

    def __init__(self, task_id: str, retry_after: float) -> None:
        super().__init__(
            f"task {task_id} ended a moment ago, too often; repeat the request unchanged after Retry-After"
        )
        self.task_id = task_id
        self.retry_after = retry_after


class ResubmitsExhausted(IdempotencyError):
    """The key's task failed again and again: it runs no more under this key."""

    code = "RESUBMITS_EXHAUSTED"

    def __init__(self, task_id: str, runs: int, error_code: str | None) -> None:
        super().__init__(
            f"task {task_id} failed {counted(runs, 'time')} under this Idempotency-Key, last with {error_code}; "
            "remove the cause, then send the request with a new key"
        )
        self.task_id = task_id


def task_conflict(task_id: str, reason: str) -> IdempotencyError:
    """Return the error for a stored task that does not admit the request; `reason` states why and what to do."""
    return IdempotencyError(f"task {task_id} {reason}", code="TASK_EXISTS", task_id=task_id)
