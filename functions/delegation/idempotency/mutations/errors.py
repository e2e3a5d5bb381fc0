"""Errors of performing a mutation."""

from typing import TYPE_CHECKING, ClassVar

from delegation.idempotency.errors import IdempotencyError

if TYPE_CHECKING:
    from delegation.idempotency.mutations.reservation import Reservation


class NothingDone(Exception):
    """Mixed into the errors of a mutation's `run` that prove that it had no effect and will have none."""


class MutationInProgress(IdempotencyError):
    """Another call holds the key: repeat the request later (Idempotency-Key proposal, `request_in_progress`)."""

    code: ClassVar[str] = "request_in_progress"
    retryable: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__("a request with this Idempotency-Key is still running; repeat it unchanged after Retry-After")


class ReservationConflict(IdempotencyError):
    """The key has another reservation than the caller of the store expected: `stored`, None if it has none."""

    code: ClassVar[str] = "RECORD_CONFLICT"
    retryable: ClassVar[bool] = True

    def __init__(self, stored: "Reservation | None") -> None:
        super().__init__("another process wrote the idempotency record")
        self.stored = stored


class RecordsUnavailable(IdempotencyError):
    """The store of idempotency records did not answer; nothing was read or written."""

    code: ClassVar[str] = "STORE_UNAVAILABLE"
    retryable: ClassVar[bool] = True


class RecordOutcomeUnknown(IdempotencyError):
    """A write of an idempotency record got no clear answer, and could not be read back."""

    code: ClassVar[str] = "OUTCOME_UNKNOWN"
    retryable: ClassVar[bool] = True


class MalformedReservation(IdempotencyError):
    """A stored record cannot be read: a newer release wrote it, or it is damaged."""

    code: ClassVar[str] = "MALFORMED_RECORD"
