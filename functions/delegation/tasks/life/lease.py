"""The deadlines of a lease."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Lease:
    """When the holder is presumed lost, and until when others need not check the task."""

    lost_not_before: datetime
    recheck_not_before: datetime

    @classmethod
    def until(cls, lost_not_before: datetime, now: datetime) -> "Lease":
        """Return a lease that ends at a given time; others check the task half way."""
        return cls(lost_not_before, now + (lost_not_before - now) / 2)

    @classmethod
    def lasting(cls, duration: timedelta, now: datetime) -> "Lease":
        """Return a lease that ends `duration` from now."""
        return cls.until(now + duration, now)
