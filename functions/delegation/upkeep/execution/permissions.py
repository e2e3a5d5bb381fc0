"""What a policy still permits of the work that it required. It is read again before each effect."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from delegation.errors import GuardRefused
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchNamespace, NoSuchTable, PoliciesNotSupported
from delegation.polaris.model import LoadedTable
from delegation.polaris.policies import ApplicablePolicy, PolicyTarget
from delegation.removal.errors import NeighbourChanged
from delegation.removal.expiry.requests import TableExpiry
from delegation.removal.expiry.retention import Permission, Retention, Withdrawn, stricter
from delegation.removal.orphans.context import always_permitted
from delegation.removal.orphans.requests import FILE_AGE, LOCATION, MISMATCH, TableOrphans
from delegation.removal.orphans.task_type import POLICY
from delegation.removal.requests import TableWork
from delegation.rewrites.context import always_permitted as rewrite_permitted
from delegation.rewrites.requests import TableCompaction, TableRewrite
from delegation.rewrites.terms import (
    COLD_AFTER,
    CONCURRENT_REWRITES,
    DELETE_FILE_THRESHOLD,
    MIN_BENEFIT,
    MIN_INPUT_FILES,
    SPEC_ID,
    STRATEGY,
    TARGET_FILE_SIZE,
)
from delegation.timestamps import parse_duration
from delegation.upkeep.execution.asked import (
    EXPIRY,
    MODE,
    REMOVAL,
    AskedExpiryRule,
    AskedRemoval,
    AskedRewrite,
    TableRule,
    age_in,
    compaction_of,
    manifests_of,
    removal_of,
    rule_of,
)
from delegation.upkeep.policy_file import PolicySource
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.upkeep.rules.model import STOPPING, FindingCode, PolicyType
from delegation.upkeep.rules.resolve import resolve

_MENDED: Final = {
    FindingCode.POLICY_INVALID: "Correct or detach the policy",
    FindingCode.POLICY_AMBIGUOUS: "Detach all but one of these policies",
}
A = TypeVar("A", AskedExpiryRule, AskedRemoval, AskedRewrite)
_REWRITE_OPTIONS: Final = (
    STRATEGY,
    TARGET_FILE_SIZE,
    MIN_INPUT_FILES,
    DELETE_FILE_THRESHOLD,
    CONCURRENT_REWRITES,
    COLD_AFTER,
    MIN_BENEFIT,
    SPEC_ID,
)


@dataclass(frozen=True, slots=True)
class PolicyPermissions:
    """Reads policies from the catalog; `limits` are the operator's. Raises the catalog's errors."""

    policies: PolicySource
    limits: UpkeepLimits

    def of_expiry(
        self, expiry: TableExpiry, asked: Retention, asked_at: datetime
    ) -> Callable[[LoadedTable], Permission]:
        """Return a function of a loaded table: how much of the work requested at `asked_at` its policy permits."""
        asked_ms = int(asked_at.astimezone(UTC).timestamp() * 1000)

        def permitted(table: LoadedTable) -> Permission:
            now_asked = self._required_now(rule_of, EXPIRY, expiry, expiry.policy, table)
            if isinstance(now_asked, str):
                return Withdrawn(now_asked)
            return stricter(asked, now_asked.rule.retention(asked_ms))

        return permitted

    def of_removal(self, orphans: TableOrphans) -> Callable[[LoadedTable], str | None]:
        """Return a function of a loaded table: why a removal must stop, always None for a caller's removal."""
        policy = orphans.properties.get(POLICY)
        if policy is None:
            return always_permitted

        def permitted(table: LoadedTable) -> str | None:
            asked = self._required_now(removal_of, REMOVAL, orphans, policy, table)
            if isinstance(asked, str):
                return asked
            if asked.age > parse_duration(orphans.properties[FILE_AGE]):
                return f"the policy {policy} now requires older files"
            if asked.mode == "error" and orphans.properties.get(MISMATCH) != "error":
                return f"the policy {policy} now requires another value of {MODE}"
            if orphans.properties.get(LOCATION) not in (asked.locations or (None,)):
                return f"the policy {policy} now requires another location"
            return None

        return permitted

    def of_rewrite(self, rewrite: TableRewrite) -> Callable[[LoadedTable], str | None]:
        """Return a function of a loaded table: why a rewrite must commit nothing more, always None for a caller's
        rewrite. A policy with other options since then starts another run."""
        policy = rewrite.policy
        if policy is None:
            return rewrite_permitted
        is_compaction = isinstance(rewrite, TableCompaction)
        type_ = PolicyType.DATA_COMPACTION if is_compaction else PolicyType.METADATA_COMPACTION
        rule_of_type = compaction_of if is_compaction else manifests_of

        def permitted(table: LoadedTable) -> str | None:
            now_asked, asked = self._required_now(rule_of_type, type_, rewrite, policy, table), rewrite.of_the_work()
            if isinstance(now_asked, str):
                return now_asked
            for name in _REWRITE_OPTIONS:
                if asked.get(name) != now_asked.options.get(name):
                    return f"the policy {policy} now requires another value of {name}"
            return None

        return permitted

    def _required_now(
        self,
        rule_of: Callable[[TableIdentifier, Sequence[ApplicablePolicy], Mapping[str, str], UpkeepLimits], TableRule[A]],
        type_: PolicyType,
        work: TableWork,
        policy: str | None,
        table: LoadedTable,
    ) -> A | str:
        """Return what the policy that required the work requires now, or why it no longer does."""
        applicable = self.policies.applicable(PolicyTarget.of(work.identifier), type_.value)
        rule = rule_of(work.identifier, applicable, table.properties, self.limits)
        if rule.asked is None:
            return f"the policy {policy} no longer requires this ({rule.reason or rule.shown.reason or 'it is off'})"
        if rule.asked.policy != policy:
            return f"the policy {rule.asked.policy} applies now instead of {policy}"
        if rule.asked.dry_run and not work.is_dry_run:
            return "the operator now allows only plans"
        return rule.asked

    def age_of(self, table: LoadedTable) -> timedelta:
        """Return the minimum age of orphan files by a table's policy, executed or not; zero without one. Raises
        GuardRefused (AGE_INVALID) for an unreadable policy, NeighbourChanged for a table that is gone."""
        try:
            applicable = self.policies.applicable(PolicyTarget.of(table.identifier), REMOVAL.value)
        except PoliciesNotSupported:
            return timedelta(0)
        except (NoSuchTable, NoSuchNamespace) as error:
            raise NeighbourChanged(str(table.identifier), "the table") from error
        rule = resolve(table.identifier, applicable, table.properties, self.limits)[REMOVAL]
        unread = next((finding for finding in rule.findings if finding.code in STOPPING), None)
        if unread is not None:
            raise GuardRefused(
                f"{table.identifier} has no valid age for orphan files ({unread.subject}: {unread.text}). "
                f"{_MENDED.get(unread.code, 'Correct or remove the table property')}",
                code="AGE_INVALID",
            )
        return age_in(rule) if rule.values else timedelta(0)
