"""What a catalog's policies require of a table; for an expiry also in Iceberg's terms."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

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
from delegation.removal.expiry.requests import MAX_REF_AGE, MAX_SNAPSHOT_AGE, RETAIN_LAST
from delegation.removal.expiry.retention import Retention
from delegation.removal.orphans.options import location_of
from delegation.removal.orphans.place import LEAST_AGE
from delegation.removal.orphans.requests import FILE_AGE, LOCATION, LOCATIONS, MISMATCH
from delegation.removal.orphans.task_type import POLICY, PREFIX
from delegation.rewrites.terms import (
    COLD_AFTER,
    CONCURRENT_REWRITES,
    DELETE_FILE_THRESHOLD,
    MIN_BENEFIT,
    MIN_INPUT_FILES,
    STRATEGY,
    TARGET_FILE_SIZE,
)
from delegation.rewrites.terms import SPEC_ID as OF_SPEC
from delegation.tasks.options import DRY_RUN, InvalidOption
from delegation.upkeep.health.model import OwnPolicies, OwnPolicy
from delegation.upkeep.health.refresh import LoadsTables
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.upkeep.rules.model import (
    OriginKind,
    PolicyInvalid,
    PolicyType,
    RuleStatus,
    RuleValue,
    UpkeepRule,
    content_of,
)
from delegation.upkeep.rules.resolve import resolve
from delegation.upkeep.rules.settings import (
    COMPACTION_STRATEGY,
    KEEP,
    ORPHAN_AGE,
    REF_AGE,
    SETTINGS,
    SNAPSHOT_AGE,
    SPEC_ID,
    TARGET_SIZE,
)

_LONGEST_OPTION: Final = 10**15 - 1
"""The longest age in an option of an expiry: 31,000 years."""
_MOST_OPTION: Final = 10**9 - 1
_MOST_CONCURRENT: Final = 999
_LONGEST_AGE_SECONDS: Final = 3_650 * 86_400


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """Arguments of ExpireSnapshots, and the lower bounds for a single ref's retention.

    `min_snapshots_to_keep` is Iceberg's retainLast, `max_snapshot_age_ms` the age from which a snapshot may be expired,
    `max_ref_age_ms` that of a branch or tag, FOREVER_MS if none may. As in Iceberg a ref's own retention replaces each,
    but not below `least_snapshots`, `least_age_ms` and `least_ref_age_ms`: the operator's limit, or the policy's or
    table property's where stricter.
    """

    min_snapshots_to_keep: int
    max_snapshot_age_ms: int
    max_ref_age_ms: int
    least_snapshots: int
    least_age_ms: int
    least_ref_age_ms: int
    dry_run: bool

    def older_than_ms(self, now_ms: int) -> int:
        """Return the time before which a snapshot may be expired: Iceberg's expireOlderThan, at least 0."""
        return max(0, now_ms - self.max_snapshot_age_ms)

    def retention(self, asked_ms: int) -> Retention:
        """Return the rule for an expiry requested at `asked_ms`, since 1970, with its bounds for refs."""
        return Retention(
            older_than_ms=self.older_than_ms(asked_ms),
            retain_last=self.min_snapshots_to_keep,
            max_ref_age_ms=max(self.max_ref_age_ms, 1),
            least_age_ms=self.least_age_ms,
            least_snapshots=self.least_snapshots,
            least_ref_age_ms=self.least_ref_age_ms,
        )

    def options(self) -> Mapping[str, str]:
        """Return the unprefixed options of a task TABLE_EXPIRE_SNAPSHOTS, in which an age is at least 1 ms."""
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
    """Return the lower bound of a ref's own retention, which may replace Iceberg's property or default."""
    binds = value.origin.kind in {OriginKind.POLICY, OriginKind.TABLE_PROPERTY}
    return max(value.value, limit) if binds else limit


EXPIRY: Final = PolicyType.SNAPSHOT_EXPIRY
_LONGEST_CONTENT: Final = 500
"""Content that has an effect is shorter: three numbers and a flag."""
_MOST_OWN: Final = 2
"""One policy applies, and two are ambiguous."""
_LONGEST_NAME: Final = 1_000


@dataclass(frozen=True, slots=True)
class AskedExpiryRule:
    """An expiry required by a policy: the rule, the policy's dotted name, and a text that changes with either."""

    rule: ExpiryRule
    policy: str
    version: str

    @property
    def dry_run(self) -> bool:
        return self.rule.dry_run


A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class TableRule(Generic[A]):
    """The rule of a table for display, and what is executed because of it, or why nothing is."""

    shown: UpkeepRule
    asked: A | None = None
    reason: str = ""


RuleOf = Callable[[TableIdentifier, Sequence[ApplicablePolicy], Mapping[str, str], UpkeepLimits], TableRule[Any]]
"""Returns a table's rule of one type, from its applicable policies, its properties and the operator's limits."""


def rule_of(
    table: TableIdentifier, applicable: Sequence[ApplicablePolicy], properties: Mapping[str, str], limits: UpkeepLimits
) -> TableRule[AskedExpiryRule]:
    """Return a table's rule of expiry. Pure."""
    resolved = resolve(table, applicable, properties, limits)[EXPIRY]
    rule = expiry_of(resolved, limits)
    if rule is None:
        return TableRule(resolved)
    policy = _policy_of(EXPIRY, table, applicable)
    version = hashlib.sha256(f"{policy} {rule!r}".encode()).hexdigest()[:32]
    return TableRule(resolved, AskedExpiryRule(rule, policy, version))


def _policy_of(type_: PolicyType, table: TableIdentifier, applicable: Sequence[ApplicablePolicy]) -> str:
    """Return the dotted name of the policy of a type that applies to a table, as budgets and tasks use it."""
    (own,) = (each for each in applicable if each.policy.type == type_.value)
    return ".".join((table.catalog, *own.namespace, own.policy.name))[:_LONGEST_NAME]


class CatalogPolicies:
    """The expiry policies of one pass over a catalog. `applicable` requests those of a target. Methods raise the
    catalog's errors; "not found" does not mean that there are no policies."""

    def __init__(self, applicable: Callable[[PolicyTarget], Sequence[ApplicablePolicy]]) -> None:
        self._applicable = applicable
        self._inherited: dict[tuple[str, ...], tuple[ApplicablePolicy, ...]] = {}
        self._unread: dict[tuple[str, ...], PolarisError] = {}

    def applying(self, table: TableIdentifier, own: OwnPolicies | None) -> tuple[ApplicablePolicy, ...]:
        """Return the policies that apply to a table: its own as last read, and those of its namespaces."""
        if own is not None and own.policies:
            return tuple(
                ApplicablePolicy(
                    StoredPolicy(policy.type, policy.name, policy.content, policy.version), policy.namespace, False
                )
                for policy in own.policies
            )
        namespace = table.namespace
        if namespace in self._unread:
            raise self._unread[namespace]
        if namespace not in self._inherited:
            try:
                attached = self._applicable(PolicyTarget(table.catalog, namespace))
            except PolarisError as error:
                self._unread[namespace] = error
                raise
            # As for the table: of an inheritable type Polaris returns only the nearest policy.
            self._inherited[namespace] = tuple(
                ApplicablePolicy(applicable.policy, applicable.namespace, True)
                for applicable in attached
                if applicable.policy.inheritable
            )
        return self._inherited[namespace]

    def own(self, table: TableIdentifier, now: datetime) -> OwnPolicies:
        own = (
            OwnPolicy(
                applicable.policy.type,
                tuple(level[:_LONGEST_NAME] for level in applicable.namespace[:20]),
                applicable.policy.name[:_LONGEST_NAME],
                applicable.policy.version,
                effective(applicable.policy.content),
            )
            for applicable in self._applicable(PolicyTarget.of(table))
            if not applicable.inherited
        )
        return OwnPolicies(now, tuple(own)[:_MOST_OWN])


class ListedTables:
    """Distinguishes a table dropped since it was listed from one whose policies are not found."""

    def __init__(self, catalog: LoadsTables, pace: Callable[[], None]) -> None:
        self._catalog = catalog
        self._pace = pace
        self._gone: dict[TableIdentifier | tuple[str, ...], bool] = {}

    def load(self, table: TableIdentifier) -> LoadedTable | None:
        """Return a table without credentials, None if it does not exist. Raises the catalog's errors."""
        self._pace()
        try:
            return self._catalog.load_table(table, vend=False, snapshots="refs")
        except (NoSuchTable, NoSuchNamespace, TableMetadataMissing):
            return None

    def why_unread(self, table: TableIdentifier, error: PolarisError) -> str | None:
        """Return why a table's policies could not be read, None if the table is gone. Raises errors that stop the pass.
        One load decides for all tables of a namespace that is not found."""
        if error.retryable or isinstance(error, PoliciesNotSupported):
            raise error
        if not isinstance(error, NoSuchTable | NoSuchNamespace):
            return f"{error.code}: {error}"
        missing = table if isinstance(error, NoSuchTable) else table.namespace
        if missing not in self._gone:
            self._gone[missing] = self.load(table) is None
        if self._gone[missing]:
            return None
        return f"{error.code}: {table} exists, but its policies cannot be read: {error}"


def effective(content: str) -> str:
    """Return the part of a policy's content that has an effect; for invalid content an invalid text."""
    try:
        parsed = content_of(EXPIRY, content)
    except PolicyInvalid:
        return ""
    known = {setting.key for setting in SETTINGS[EXPIRY]}
    config = {key: value for key, value in parsed.values().items() if key in known}
    text = json.dumps({"enable": parsed.enable, "config": config})
    return text if len(text) <= _LONGEST_CONTENT else ""


REMOVAL: Final = PolicyType.ORPHAN_FILE_REMOVAL
_LOCATIONS: Final = "locations"
MODE: Final = "prefix_mismatch_mode"
_LONGEST: Final = timedelta(days=10_000)


@dataclass(frozen=True, slots=True)
class AskedRemoval:
    """A removal required by a policy: the policy's dotted name, and the request's properties. If there are `locations`,
    they are searched in turn instead of the table's location."""

    policy: str
    age: timedelta
    mode: str
    dry_run: bool
    locations: tuple[str, ...] = ()

    def properties(self, turn: int = 0, waiting: str = "") -> Mapping[str, str]:
        """Return the properties of a request, with the age in whole seconds, rounded up. `turn` selects the location,
        unless the location `waiting` still applies and its plan waits for approval."""
        seconds = -(-self.age // timedelta(seconds=1))
        given = {FILE_AGE: f"{seconds}s", MISMATCH: self.mode, POLICY: self.policy}
        if self.locations:
            in_turn = self.locations[turn % len(self.locations)]
            given[LOCATION] = waiting if waiting in self.locations else in_turn
        return {**given, DRY_RUN: "true"} if self.dry_run else given


def removal_of(
    table: TableIdentifier, applicable: Sequence[ApplicablePolicy], properties: Mapping[str, str], limits: UpkeepLimits
) -> TableRule[AskedRemoval]:
    """Return the rule of the removal of a table's orphan files. Pure. With a location that the operator does not allow,
    nothing is removed: a policy's owner may not choose where files are deleted."""
    resolved = resolve(table, applicable, properties, limits)[REMOVAL]
    if not resolved.is_executed:
        return TableRule(resolved, reason=resolved.reason or "it is off")
    try:
        locations = tuple(dict.fromkeys(map(location_of, resolved.values[_LOCATIONS].value or ())))
    except InvalidOption as error:
        return TableRule(resolved, reason=f"it names an invalid location: {error}")
    if not all(location.startswith(limits.orphan_locations) for location in locations):
        return TableRule(resolved, reason=f"it names locations that {PREFIX}{LOCATIONS} does not allow")
    age = max(age_in(resolved), LEAST_AGE)
    dry_run = resolved.status is RuleStatus.DRY_RUN
    name = _policy_of(REMOVAL, table, applicable)
    return TableRule(resolved, AskedRemoval(name, age, resolved.values[MODE].value, dry_run, locations))


def age_in(rule: UpkeepRule) -> timedelta:
    return timedelta(milliseconds=min(rule.values[ORPHAN_AGE].value, _LONGEST // timedelta(milliseconds=1)))


@dataclass(frozen=True, slots=True)
class AskedRewrite:
    """A rewrite required by a policy: the policy's dotted name, and the request's options."""

    policy: str
    options: Mapping[str, str]
    min_benefit: float
    dry_run: bool

    @property
    def properties(self) -> Mapping[str, str]:
        return {**self.options, **({DRY_RUN: "true"} if self.dry_run else {})}


def compaction_of(
    table: TableIdentifier, applicable: Sequence[ApplicablePolicy], properties: Mapping[str, str], limits: UpkeepLimits
) -> TableRule[AskedRewrite]:
    """Return the rule of a table's compaction. Pure. A size that no policy sets is the table's own."""
    rule = resolve(table, applicable, properties, limits)[PolicyType.DATA_COMPACTION]
    if not rule.is_executed:
        return TableRule(rule, reason=rule.reason or "it is off")
    size, threshold = rule.values[TARGET_SIZE], rule.values[DELETE_FILE_THRESHOLD].value
    options = {
        STRATEGY: rule.values[COMPACTION_STRATEGY].value,
        MIN_INPUT_FILES: str(min(rule.values[MIN_INPUT_FILES].value, _MOST_OPTION)),
        CONCURRENT_REWRITES: str(min(rule.values[CONCURRENT_REWRITES].value, _MOST_CONCURRENT)),
        COLD_AFTER: _seconds(rule.values[COLD_AFTER].value),
        MIN_BENEFIT: _decimal(rule.values[MIN_BENEFIT].value),
    }
    if size.origin.kind is OriginKind.POLICY:
        options[TARGET_FILE_SIZE] = str(min(size.value, _LONGEST_OPTION))
    if threshold is not None:
        options[DELETE_FILE_THRESHOLD] = str(min(threshold, _MOST_OPTION))
    return _rewrite_of(table, rule, applicable, options)


def manifests_of(
    table: TableIdentifier, applicable: Sequence[ApplicablePolicy], properties: Mapping[str, str], limits: UpkeepLimits
) -> TableRule[AskedRewrite]:
    """Return the rule of the rewrite of a table's manifests. Pure."""
    rule = resolve(table, applicable, properties, limits)[PolicyType.METADATA_COMPACTION]
    if not rule.is_executed:
        return TableRule(rule, reason=rule.reason or "it is off")
    spec_id = rule.values[SPEC_ID].value
    options = {MIN_BENEFIT: _decimal(rule.values[MIN_BENEFIT].value)}
    if spec_id is not None:
        options[OF_SPEC] = str(min(spec_id, _MOST_OPTION))
    return _rewrite_of(table, rule, applicable, options)


def _rewrite_of(
    table: TableIdentifier, rule: UpkeepRule, applicable: Sequence[ApplicablePolicy], options: Mapping[str, str]
) -> TableRule[AskedRewrite]:
    name = _policy_of(rule.type, table, applicable)
    benefit = float(rule.values[MIN_BENEFIT].value)
    return TableRule(rule, AskedRewrite(name, options, benefit, rule.status is RuleStatus.DRY_RUN))


def _seconds(milliseconds: int) -> str:
    """Return an age as an option: whole seconds, rounded up."""
    return f"{min(-(-milliseconds // 1000), _LONGEST_AGE_SECONDS)}s" if milliseconds else "0"


def _decimal(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")
