from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from delegation.removal.expiry.requests import MAX_REF_AGE, MAX_SNAPSHOT_AGE, RETAIN_LAST
from delegation.removal.expiry.retention import Retention
from delegation.tasks.options import DRY_RUN
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.upkeep.rules.model import OriginKind, PolicyType, RuleValue, UpkeepRule
from delegation.upkeep.rules.settings import KEEP, REF_AGE, SNAPSHOT_AGE

_LONGEST_OPTION: Final = 10**15 - 1
"""The longest time that the options of an expiry can have: 31,000 years."""
_MOST_OPTION: Final = 10**9 - 1


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """Arguments of ExpireSnapshots, and the least to which a single ref's retention may lower them.

    `min_snapshots_to_keep` is Iceberg's retainLast, `max_snapshot_age_ms` the age from which a snapshot may go,
    `max_ref_age_ms` that of a branch or tag, FOREVER_MS if none goes. As in Iceberg a ref's own retention replaces
    each, but not below `least_snapshots`, `least_age_ms` and `least_ref_age_ms`: the operator's limit, or the policy's
    or table property's where stricter.
    """

    min_snapshots_to_keep: int
    max_snapshot_age_ms: int
    max_ref_age_ms: int
    least_snapshots: int
    least_age_ms: int
    least_ref_age_ms: int
    dry_run: bool

    def older_than_ms(self, now_ms: int) -> int:
        """Return the time before which a snapshot may go: Iceberg's expireOlderThan, at least 0."""
        return max(0, now_ms - self.max_snapshot_age_ms)

    def retention(self, asked_ms: int) -> Retention:
        """Return the rule for an expiry requested at `asked_ms`, since 1970, with its bounds on refs."""
        return Retention(
            older_than_ms=self.older_than_ms(asked_ms),
            retain_last=self.min_snapshots_to_keep,
            max_ref_age_ms=max(self.max_ref_age_ms, 1),
            least_age_ms=self.least_age_ms,
            least_snapshots=self.least_snapshots,
            least_ref_age_ms=self.least_ref_age_ms,
        )

    def options(self) -> Mapping[str, str]:
        """Return the unprefixed options of a task TABLE_EXPIRE_SNAPSHOTS; an age is at least 1 ms there."""
        return {
            MAX_SNAPSHOT_AGE: str(min(max(self.max_snapshot_age_ms, 1), _LONGEST_OPTION)),
            RETAIN_LAST: str(min(self.min_snapshots_to_keep, _MOST_OPTION)),
            MAX_REF_AGE: str(min(max(self.max_ref_age_ms, 1), _LONGEST_OPTION)),
            DRY_RUN: str(self.dry_run).lower(),
        }


def expiry_of(rule: UpkeepRule, limits: UpkeepLimits) -> ExpiryRule | None:
    """Return the rule of SNAPSHOT_EXPIRY in Iceberg's terms, None if it is off."""
    if rule.type is not PolicyType.SNAPSHOT_EXPIRY or not rule.is_executed:
        return None
    keep, age, ref_age = (rule.values[key] for key in (KEEP, SNAPSHOT_AGE, REF_AGE))
    return ExpiryRule(
        min_snapshots_to_keep=keep.value,
        max_snapshot_age_ms=age.value,
        max_ref_age_ms=ref_age.value,
        least_snapshots=_least(keep, limits.least_snapshots),
        least_age_ms=_least(age, limits.least_age_ms),
        least_ref_age_ms=_least(ref_age, limits.least_age_ms),
        dry_run=limits.dry_run_only,
    )


def _least(value: RuleValue, limit: int) -> int:
    """Return the least of a ref's own retention, which may replace Iceberg's property or default."""
    binds = value.origin.kind in {OriginKind.POLICY, OriginKind.TABLE_PROPERTY}
    return max(value.value, limit) if binds else limit
