"""The fields that an expiry adds to its task's record."""

from pydantic import Field

from delegation.attempts.details import PlanDetails


class ExpiryDetails(PlanDetails):
    """The published plan, its progress, and how many snapshots and refs the table has no more.

    `next_engine` is what an attempt handed the rest over to, until that begins.
    """

    snapshots_expired: int = Field(default=0, ge=0)
    refs_expired: int = Field(default=0, ge=0)
    next_engine: str | None = None
