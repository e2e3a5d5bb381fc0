"""What a policy permits at a moment: read again before the plan, each commit and the first delete of its task."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from delegation.polaris.model import LoadedTable
from delegation.polaris.policies import PolicyTarget
from delegation.removal.expiry.requests import TableExpiry
from delegation.removal.expiry.retention import Permission, Retention, Withdrawn, stricter
from delegation.upkeep.execution.asked import EXPIRY, PolicySource, rule_of
from delegation.upkeep.rules.limits import UpkeepLimits


@dataclass(frozen=True, slots=True)
class PolicyPermissions:
    """Asks the catalog; `limits` are the operator's. Raises the errors of the catalog, and then nothing is removed."""

    policies: PolicySource
    limits: UpkeepLimits

    def __call__(
        self, expiry: TableExpiry, asked: Retention, asked_at: datetime
    ) -> Callable[[LoadedTable], Permission]:
        asked_ms = int(asked_at.astimezone(UTC).timestamp() * 1000)

        def permitted(table: LoadedTable) -> Permission:
            applicable = self.policies.applicable(PolicyTarget.of(expiry.identifier), EXPIRY.value)
            rule = rule_of(expiry.identifier, applicable, table.properties, self.limits)
            if rule.asked is None:
                reason = rule.shown.reason or "it is off"
                return Withdrawn(f"the policy {expiry.policy} asks for nothing any more ({reason})")
            if rule.asked.policy != expiry.policy:
                return Withdrawn(f"the policy {rule.asked.policy} applies now instead of {expiry.policy}")
            if rule.asked.rule.dry_run and not expiry.is_dry_run:
                return Withdrawn("the operator allows plans alone by now")
            return stricter(asked, rule.asked.rule.retention(asked_ms))

        return permitted
