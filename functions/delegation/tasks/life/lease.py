"""The deadlines of whoever holds a task."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Lease:
    """When a holder is presumed lost, and before when nothing is expected to change."""

    lost_not_before: datetime
    recheck_not_before: datetime

    @classmethod
    def until(cls, lost_not_before: datetime, now: datetime) -> "Lease":
        """A lease that ends at a known moment; others look again half way."""
        return cls(lost_not_before, now + (lost_not_before - now) / 2)

    @classmethod
    def lasting(cls, duration: timedelta, now: datetime) -> "Lease":
        """A lease of some duration from now."""
        return cls.until(now + duration, now)
