"""The fields that an expiry adds to its task's record."""

from pydantic import Field

from delegation.attempts.details import HandedDetails


class ExpiryDetails(HandedDetails):
    """The published plan, its progress, and how many snapshots and refs the table has no more."""

    snapshots_expired: int = Field(default=0, ge=0)
    refs_expired: int = Field(default=0, ge=0)
