"""A table's rules by policies, table properties, Iceberg's properties and the operator's limits. Pure.

Without an enabled policy nothing is done. A table property can only be stricter, and the operator's limits bound
everything. An unreadable value turns the rule off: files that are not deleted today can be deleted tomorrow.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from delegation.identifiers import TableIdentifier
from delegation.misspellings import did_you_mean, misspelled
from delegation.polaris.policies import ApplicablePolicy
from delegation.removal.path_guard import POLICY, TYPED, unknown_properties
from delegation.upkeep.rules.limits import DRY_RUN_ONLY, UpkeepLimits
from delegation.upkeep.rules.model import (
    FindingCode,
    OriginKind,
    PolicyContent,
    PolicyInvalid,
    PolicyType,
    RuleFinding,
    RuleStatus,
    RuleValue,
    UpkeepRule,
    ValueOrigin,
    content_of,
)
from delegation.upkeep.rules.settings import SETTINGS, RuleSetting
from polaris_common.errors import counted, printable

ENABLE: Final = "enable"
_SHOWN: Final = 5
_OF_CONFIG: Final = "config."


def resolve(
    table: TableIdentifier,
    applicable: Sequence[ApplicablePolicy],
    properties: Mapping[str, str],
    limits: UpkeepLimits,
) -> Mapping[PolicyType, UpkeepRule]:
    """Return the rule of each type for a table. `applicable` are the nearest policies of each type; types outside
    PolicyType are ignored. `properties` are the table's."""
    return {type_: _rule_of(type_, table, applicable, properties, limits) for type_ in PolicyType}


def _rule_of(
    type_: PolicyType,
    table: TableIdentifier,
    applicable: Sequence[ApplicablePolicy],
    properties: Mapping[str, str],
    limits: UpkeepLimits,
) -> UpkeepRule:
    applicable = [candidate for candidate in applicable if candidate.policy.type == type_.value]
    if not applicable:
        return UpkeepRule(type_, RuleStatus.OFF, "no policy of this type applies")
    names = [name_of(table.catalog, policy) for policy in applicable]
    if len(applicable) > 1:
        text = f"{counted(len(names), 'policy', 'policies')} of this type apply, but only one may"
        finding = RuleFinding(FindingCode.POLICY_AMBIGUOUS, ", ".join(names[:_SHOWN]), text)
        return UpkeepRule(type_, RuleStatus.OFF, text, findings=(finding,))
    making = _Making(type_, names[0], properties, limits)
    try:
        making.read(content_of(type_, applicable[0].policy.content))
    except PolicyInvalid as error:
        making.find(FindingCode.POLICY_INVALID, names[0], str(error))
        return making.off(str(error))
    return making.rule(table)


def check_content(type_: PolicyType, text: str) -> tuple[RuleFinding, ...]:
    """Return the findings of a content before it is stored. Raises PolicyInvalid for content without effect."""
    making = _Making(type_, "of this content", {}, UpkeepLimits(least_age_ms=0, least_orphan_age_ms=0))
    making.read(content_of(type_, text))
    return making.findings


def name_of(catalog: str, applicable: ApplicablePolicy) -> str:
    """Return a policy's name, version, and whether it is inherited, for display."""
    if applicable.of_file:
        name = printable(applicable.policy.name)
        return f"{name} of the policy file{' (inherited)' if applicable.inherited else ''}"
    name = printable(".".join((catalog, *applicable.namespace, applicable.policy.name)))
    return f"{name} (version {applicable.policy.version}{', inherited' if applicable.inherited else ''})"


class _Making:
    """Collects a rule's values and findings. `stop` is the first reason that turns it off."""

    def __init__(self, type_: PolicyType, policy: str, properties: Mapping[str, str], limits: UpkeepLimits) -> None:
        self._type = type_
        self._policy = policy
        self._properties = properties
        self._limits = limits
        self._prefix = f"{POLICY}{type_.short}."
        self._values: dict[str, RuleValue] = {}
        self._findings: list[RuleFinding] = []
        self._stop: str | None = None

    def find(self, code: FindingCode, subject: str, text: str) -> None:
        self._findings.append(RuleFinding(code, subject, text))

    @property
    def findings(self) -> tuple[RuleFinding, ...]:
        return tuple(self._findings)

    def off(self, reason: str) -> UpkeepRule:
        return UpkeepRule(self._type, RuleStatus.OFF, reason, self._policy, {}, tuple(self._findings))

    def read(self, content: PolicyContent) -> None:
        """Find each value. Raises PolicyInvalid if one in the policy is unusable."""
        if not content.enable:
            self._stop = f"policy {self._policy} is not enabled"
        given = content.values()
        settings = {setting.key: setting for setting in SETTINGS[self._type]}
        unknown = sorted(printable(key) for key in given.keys() - settings.keys())
        for key in unknown:
            near = misspelled(key.removeprefix(_OF_CONFIG), settings)
            if near is not None:
                raise PolicyInvalid(f"this release does not know {key}; did you mean {near}?")
        if unknown:
            more = f" and {len(unknown) - _SHOWN:,} more" if len(unknown) > _SHOWN else ""
            text = f"this release ignores {', '.join(unknown[:_SHOWN])}{more}, because it has no such setting"
            self.find(FindingCode.POLICY_KEYS_UNKNOWN, self._policy, text)
        own = self._own_properties(settings)
        for setting in settings.values():
            value = self._value_of(setting, given)
            if value is not None:
                self._values[setting.key] = self._limited(setting, self._tightened(setting, value, own))

    def rule(self, table: TableIdentifier) -> UpkeepRule:
        prevented = self._limits.prevented(self._type, table)
        if self._stop is None and prevented is not None:
            self._stop = f"the operator's {prevented} does not allow it"
        status, reason = RuleStatus.ACTIVE, self._stop
        if reason is not None:
            status = RuleStatus.OFF
        elif self._limits.dry_run_only:
            status, reason = RuleStatus.DRY_RUN, f"the operator's {DRY_RUN_ONLY} allows only plans"
        return UpkeepRule(self._type, status, reason, self._policy, self._values, tuple(self._findings))

    def _own_properties(self, settings: Mapping[str, RuleSetting]) -> dict[str, str]:
        """Return the table's properties of this type by key. One that cannot be meant turns the rule off."""
        own = {
            name.removeprefix(self._prefix): text
            for name, text in self._properties.items()
            if name.startswith(self._prefix)
        }
        enable = own.pop(ENABLE, None)
        if enable is not None and enable.strip().lower() == "false":
            self._stop = self._stop or f"the table property {self._prefix}{ENABLE} is false"
        elif enable is not None and enable.strip().lower() != "true":
            self._refuse(f"{self._prefix}{ENABLE}", "is neither true nor false")
        for key in sorted(own.keys() - settings.keys())[:_SHOWN]:
            self._refuse(f"{self._prefix}{key}", "is not a property that this release knows")
        self._find_unknown([f"{self._prefix}{key}" for key in (ENABLE, *settings)])
        for setting in settings.values():
            if setting.key in own and setting.stricter is None:
                self._refuse(
                    f"{self._prefix}{setting.key}", "can be set only in a policy: remove the property from the table"
                )
        return own

    def _find_unknown(self, known: Sequence[str]) -> None:
        """Report properties with the service's prefix and no effect. One similar to a known name turns the rule off."""
        unknown = unknown_properties(self._properties)
        for name in sorted(key for key in self._properties if not key.startswith(TYPED)):
            meant = misspelled(name, known)
            if meant is not None:
                self._refuse(name, f"is not a property that this release knows; did you mean {meant}?")
            elif name in unknown[:_SHOWN]:
                text = f"this release does not know this property; {did_you_mean(name, known)}"
                self.find(FindingCode.TABLE_PROPERTY_UNKNOWN, printable(name), text)

    def _refuse(self, key: str, reason: str) -> None:
        name = printable(key)
        self.find(FindingCode.TABLE_PROPERTY_INVALID, name, reason)
        self._stop = self._stop or f"the table property {name} {reason}"

    def _value_of(self, setting: RuleSetting, given: Mapping[str, object]) -> RuleValue | None:
        """Return the policy's value or its default, None if it cannot be read."""
        if setting.key in given:
            try:
                value = setting.read(given[setting.key])
            except ValueError as error:
                raise PolicyInvalid(f"{setting.key} {error}") from None
            return RuleValue(value, setting.text(value), ValueOrigin(OriginKind.POLICY, self._policy))
        if setting.iceberg is not None and setting.read_iceberg is not None and setting.iceberg in self._properties:
            try:
                value = setting.read_iceberg(self._properties[setting.iceberg])
            except ValueError as error:
                self.find(FindingCode.ICEBERG_PROPERTY_INVALID, setting.iceberg, str(error))
                self._stop = self._stop or f"the table property {setting.iceberg} {error}"
                return None
            return RuleValue(value, setting.text(value), ValueOrigin(OriginKind.ICEBERG_PROPERTY, setting.iceberg))
        default = setting.default
        if default is None and setting.limit_of is not None:
            default = setting.limit_of(self._limits)
        return RuleValue(default, setting.text(default), ValueOrigin(OriginKind.DEFAULT))

    def _tightened(self, setting: RuleSetting, asked: RuleValue, own: Mapping[str, str]) -> RuleValue:
        """Return the table property's value if it is stricter. Reports a looser one."""
        text = own.get(setting.key)
        if text is None or setting.stricter is None:
            return asked
        try:
            value = setting.read(text.strip())
        except ValueError as error:
            self._refuse(f"{self._prefix}{setting.key}", str(error))
            return asked
        if value == asked.value:
            return asked
        name = f"{self._prefix}{setting.key}"
        if setting.stricter(value, asked.value) != value:
            reason = f"{setting.text(value)} is looser than {asked.text} in the {asked.origin}, so it has no effect"
            self.find(FindingCode.TABLE_PROPERTY_LOOSER, name, reason)
            return asked
        return RuleValue(value, setting.text(value), ValueOrigin(OriginKind.TABLE_PROPERTY, name))

    def _limited(self, setting: RuleSetting, asked: RuleValue) -> RuleValue:
        if setting.limit is None or setting.limit_of is None or setting.stricter is None:
            return asked
        limit: Any = setting.limit_of(self._limits)
        if limit is None or setting.stricter(limit, asked.value) == asked.value:
            return asked
        text = f"{setting.key} is {setting.text(limit)} instead of {asked.text} in the {asked.origin}"
        name = setting.limit(self._limits)
        self.find(FindingCode.LIMIT_APPLIED, name, text)
        origin = ValueOrigin(OriginKind.LIMIT, name)
        return RuleValue(limit, setting.text(limit), origin, asked.text, asked.origin)
