"""The interface of stores for the records of mutations."""

from datetime import datetime
from typing import Protocol

from delegation.idempotency.mutations.reservation import Reservation


class ReservationStore(Protocol):
    """Stores one record per scope. A repeated write is recognized by its nonce, and is no conflict.

    Methods raise RecordsUnavailable, those that write also RecordOutcomeUnknown.
    """

    def get(self, scope: str) -> Reservation | None:
        """Read the record of a scope consistently; it may have expired. Raises IdempotencyError (MALFORMED_RECORD)."""

    def reserve(self, record: Reservation, now: datetime) -> None:
        """Write a record if its scope has none, or one that has expired at `now`; one call.

        Raises ReservationConflict with the stored record otherwise.
        """

    def replace(self, record: Reservation, before: Reservation) -> None:
        """Write a record if `before` is still the stored one; one call. Raises ReservationConflict otherwise."""
