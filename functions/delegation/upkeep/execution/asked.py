"""What a catalog's policies require: namespaces' policies are read once a pass, a table's own less often."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import (
    NoSuchNamespace,
    NoSuchTable,
    PolarisError,
    PoliciesNotSupported,
    TableMetadataMissing,
)
from delegation.polaris.model import LoadedTable
from delegation.polaris.policies import ApplicablePolicy, PolicyTarget, StoredPolicy
from delegation.upkeep.health.model import OwnPolicies, OwnPolicy
from delegation.upkeep.health.refresh import LoadsTables
from delegation.upkeep.rules.content import PolicyInvalid, PolicyType, content_of
from delegation.upkeep.rules.expiry import ExpiryRule, expiry_of
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.upkeep.rules.model import UpkeepRule
from delegation.upkeep.rules.resolve import resolve
from delegation.upkeep.rules.settings import SETTINGS

EXPIRY: Final = PolicyType.SNAPSHOT_EXPIRY
_LONGEST_CONTENT: Final = 500
"""What can have an effect is shorter: three numbers and a flag."""
_MOST_OWN: Final = 2
"""One applies, and two are ambiguous."""
_LONGEST_NAME: Final = 1_000


class PolicySource(Protocol):
    """What states which policies apply; PolicyClient, which documents the errors, or DeployedPolicies."""

    def applicable(self, target: PolicyTarget, type_: str | None = None) -> list[ApplicablePolicy]: ...


@dataclass(frozen=True, slots=True)
class AskedExpiryRule:
    """An expiry that a policy requires: the rule, the policy's dotted name, and a text that changes with either."""

    rule: ExpiryRule
    policy: str
    version: str


@dataclass(frozen=True, slots=True)
class TableRule:
    """The rule of a table for display, and what is executed because of it, None if nothing."""

    shown: UpkeepRule
    asked: AskedExpiryRule | None = None


def rule_of(
    table: TableIdentifier, applicable: Sequence[ApplicablePolicy], properties: Mapping[str, str], limits: UpkeepLimits
) -> TableRule:
    """Return a table's rule of expiry: a pure function."""
    found = resolve(table, applicable, properties, limits)[EXPIRY]
    rule = expiry_of(found, limits)
    if rule is None:
        return TableRule(found)
    (one,) = (each for each in applicable if each.policy.type == EXPIRY.value)
    policy = policy_name(table.catalog, one.namespace, one.policy.name)
    version = hashlib.sha256(f"{policy} {rule!r}".encode()).hexdigest()[:32]
    return TableRule(found, AskedExpiryRule(rule, policy, version))


def policy_name(catalog: str, namespace: Sequence[str], name: str) -> str:
    """Return the dotted name by which budgets and tasks know a policy."""
    return ".".join((catalog, *namespace, name))[:_LONGEST_NAME]


class CatalogPolicies:
    """The policies of one pass over a catalog; `pace` returns when the next request may go. Methods raise the catalog's
    errors: not found does not mean that there are no policies."""

    def __init__(self, source: PolicySource, pace: Callable[[], None]) -> None:
        self._source = source
        self._pace = pace
        self._inherited: dict[tuple[str, ...], tuple[ApplicablePolicy, ...]] = {}
        self._unread: dict[tuple[str, ...], PolarisError] = {}

    def applying(self, table: TableIdentifier, own: OwnPolicies | None) -> tuple[ApplicablePolicy, ...]:
        """Return what applies to a table: its own policies as last read, and those of its namespaces."""
        if own is not None and own.policies:
            return tuple(
                ApplicablePolicy(StoredPolicy(one.type, one.name, one.content, one.version), one.namespace, False)
                for one in own.policies
            )
        namespace = table.namespace
        if namespace in self._unread:
            raise self._unread[namespace]
        if namespace not in self._inherited:
            self._pace()
            try:
                found = self._source.applicable(PolicyTarget(table.catalog, namespace), EXPIRY.value)
            except PolarisError as error:
                self._unread[namespace] = error
                raise
            # As the table sees them: Polaris hands down the nearest one of an inheritable type.
            self._inherited[namespace] = tuple(
                ApplicablePolicy(one.policy, one.namespace, True) for one in found if one.policy.inheritable
            )
        return self._inherited[namespace]

    def own(self, table: TableIdentifier, now: datetime) -> OwnPolicies:
        own = (
            OwnPolicy(
                one.policy.type,
                tuple(level[:_LONGEST_NAME] for level in one.namespace[:20]),
                one.policy.name[:_LONGEST_NAME],
                one.policy.version,
                effective(one.policy.content),
            )
            for one in self.now(table)
            if not one.inherited
        )
        return OwnPolicies(now, tuple(own)[:_MOST_OWN])

    def now(self, table: TableIdentifier) -> list[ApplicablePolicy]:
        """Read what applies to a table now."""
        self._pace()
        return self._source.applicable(PolicyTarget.of(table), EXPIRY.value)


class ListedTables:
    """Distinguishes a table that was dropped since it was listed from one whose policies are not found."""

    def __init__(self, catalog: LoadsTables, pace: Callable[[], None]) -> None:
        self._catalog = catalog
        self._pace = pace
        self._gone: dict[TableIdentifier | tuple[str, ...], bool] = {}

    def load(self, table: TableIdentifier) -> LoadedTable | None:
        """Return a table without credentials, None if it does not exist. Raises the errors of the catalog."""
        self._pace()
        try:
            return self._catalog.load_table(table, vend=False, snapshots="refs")
        except (NoSuchTable, NoSuchNamespace, TableMetadataMissing):
            return None

    def why_unread(self, table: TableIdentifier, error: PolarisError) -> str | None:
        """Return why a table's policies could not be read, None if the table is gone; raises what stops the pass. One
        load decides for all tables of a namespace that is not found."""
        if error.retryable or isinstance(error, PoliciesNotSupported):
            raise error
        if not isinstance(error, NoSuchTable | NoSuchNamespace):
            return f"{error.code}: {error}"
        missing = table if isinstance(error, NoSuchTable) else table.namespace
        if missing not in self._gone:
            self._gone[missing] = self.load(table) is None
        return None if self._gone[missing] else f"{error.code}: the policies of {table}, which the catalog has: {error}"


def effective(content: str) -> str:
    """Return the part of a policy's content that has an effect; for an invalid one a text that is no content."""
    try:
        found = content_of(EXPIRY, content)
    except PolicyInvalid:
        return ""
    known = {setting.key for setting in SETTINGS[EXPIRY]}
    config = {key: value for key, value in found.values().items() if key in known}
    text = json.dumps({"enable": found.enable, "config": config})
    return text if len(text) <= _LONGEST_CONTENT else ""
