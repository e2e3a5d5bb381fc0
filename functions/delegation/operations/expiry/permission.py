"""What an expiry may remove by now, where somebody can take back what was asked for: the policy of an upkeep."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegation.operations.expiry.retention import Retention

POLICY_WITHDRAWN: Final = "POLICY_WITHDRAWN"
"""The code of a finding: the policy that asked for an expiry does not ask for it any more, so it stopped."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Nothing may be expired any more; `reason` is the beginning of a sentence."""

    reason: str


Permission = Retention | Withdrawn
"""What may be expired now, at most as much as the task was to expire, or that it has to stop."""


def stricter(first: Retention, second: Retention) -> Retention:
    """Return what keeps as much as both; None leaves a number to the other, then to the table's properties."""
    ages = [one.older_than_ms for one in (first, second) if one.older_than_ms is not None]
    counts = [one.retain_last for one in (first, second) if one.retain_last is not None]
    refs = [one.max_ref_age_ms for one in (first, second) if one.max_ref_age_ms is not None]
    return Retention(
        older_than_ms=min(ages, default=None),
        retain_last=max(counts, default=None),
        snapshot_ids=tuple(one for one in first.snapshot_ids if one in second.snapshot_ids),
        max_ref_age_ms=max(refs, default=None),
        clean_expired_metadata=first.clean_expired_metadata and second.clean_expired_metadata,
        least_age_ms=max(first.least_age_ms, second.least_age_ms),
        least_snapshots=max(first.least_snapshots, second.least_snapshots),
        least_ref_age_ms=max(first.least_ref_age_ms, second.least_ref_age_ms),
    )


def keeps_more(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether one retention keeps anything that another one removes; both as `asdict` has them."""
    if (now["older_than_ms"] or 0) < (before["older_than_ms"] or 0):
        return True
    rising = ("retain_last", "max_ref_age_ms", "least_age_ms", "least_snapshots", "least_ref_age_ms")
    return any((now[name] or 0) > (before[name] or 0) for name in rising)
