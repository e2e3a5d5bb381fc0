"""Errors of performing a mutation."""

from typing import TYPE_CHECKING

from delegation.idempotency.errors import IdempotencyError

if TYPE_CHECKING:
    from delegation.idempotency.mutations.reservation import Reservation


class NothingDone(Exception):
    """Mixed into the errors of a mutation's `run` that prove that it had no effect and will have none."""


class MutationInProgress(IdempotencyError):
    """Another call holds the key: repeat the request later (Idempotency-Key proposal, `request_in_progress`)."""

    code = "request_in_progress"
    retryable = True

    def __init__(self) -> None:
        super().__init__("a request with this Idempotency-Key is still running; repeat it unchanged after Retry-After")


class ReservationConflict(IdempotencyError):
    """The key has another reservation than the caller of the store expected: `stored`, None if it has none."""

    code = "RECORD_CONFLICT"
    retryable = True

    def __init__(self, stored: "Reservation | None") -> None:
        super().__init__("another process wrote the idempotency record")
        self.stored = stored


class RecordsUnavailable(IdempotencyError):
    """The store of idempotency records did not answer; nothing was read or written."""

    code = "STORE_UNAVAILABLE"
    retryable = True


class RecordOutcomeUnknown(IdempotencyError):
    """A write of an idempotency record got no clear answer, and could not be read back."""

    code = "OUTCOME_UNKNOWN"
    retryable = True


def malformed_reservation(message: str) -> IdempotencyError:
    return IdempotencyError(message, code="MALFORMED_RECORD")
