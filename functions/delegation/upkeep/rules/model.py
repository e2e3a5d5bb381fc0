"""A rule: what is done to one table by one policy, and the origin of each value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from delegation.upkeep.rules.content import PolicyType


class OriginKind(Enum):
    POLICY = "policy"
    TABLE_PROPERTY = "table property"
    ICEBERG_PROPERTY = "Iceberg property"
    DEFAULT = "default"
    LIMIT = "operator's limit"


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """Where a value comes from: the policy or property by name, empty for a default."""

    kind: OriginKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class RuleValue:
    """One value of a rule, with its unit in `text`. `asked` is the looser value that a limit replaced, and `asked_by`
    its origin, for display."""

    value: Any
    text: str
    origin: ValueOrigin
    asked: str | None = None
    asked_by: ValueOrigin | None = None


class RuleStatus(Enum):
    ACTIVE = "ACTIVE"
    DRY_RUN = "DRY_RUN"
    """The operator allows plans alone."""
    OFF = "OFF"


class FindingCode(Enum):
    """What a person should know about a rule; a code in STOPPING turns the rule off."""

    POLICY_INVALID = "POLICY_INVALID"
    POLICY_AMBIGUOUS = "POLICY_AMBIGUOUS"
    TABLE_PROPERTY_INVALID = "TABLE_PROPERTY_INVALID"
    ICEBERG_PROPERTY_INVALID = "ICEBERG_PROPERTY_INVALID"
    POLICY_KEYS_UNKNOWN = "POLICY_KEYS_UNKNOWN"
    TABLE_PROPERTY_LOOSER = "TABLE_PROPERTY_LOOSER"
    TABLE_PROPERTY_UNKNOWN = "TABLE_PROPERTY_UNKNOWN"
    LIMIT_APPLIED = "LIMIT_APPLIED"


STOPPING = frozenset(
    {
        FindingCode.POLICY_INVALID,
        FindingCode.POLICY_AMBIGUOUS,
        FindingCode.TABLE_PROPERTY_INVALID,
        FindingCode.ICEBERG_PROPERTY_INVALID,
    }
)
"""The findings that an operator must see: a policy that somebody attached is not executed."""


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """Something that a rule's owner did not expect; `subject` is a policy or property."""

    code: FindingCode
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class UpkeepRule:
    """The rule of one type for one table. `reason` states why it is not ACTIVE, `policy` names the policy, None without
    one. `values` are by key, empty if unreadable, and may be used only if the rule is not OFF."""

    type: PolicyType
    status: RuleStatus
    reason: str | None = None
    policy: str | None = None
    values: Mapping[str, RuleValue] = field(default_factory=dict)
    findings: tuple[RuleFinding, ...] = ()

    @property
    def is_executed(self) -> bool:
        """Whether anything is planned because of the rule."""
        return self.status is not RuleStatus.OFF

    def document(self) -> dict[str, Any]:
        return {
            "type": self.type.value,
            "status": self.status.value,
            "reason": self.reason,
            "policy": self.policy,
            "values": {
                key: {
                    "value": list(one.value) if isinstance(one.value, tuple) else one.value,
                    "text": one.text,
                    "origin": one.origin.kind.value,
                    "origin_name": one.origin.name or None,
                    **({"asked": one.asked, "asked_by": str(one.asked_by)} if one.asked is not None else {}),
                }
                for key, one in self.values.items()
            },
            "findings": [{"code": one.code.value, "subject": one.subject, "text": one.text} for one in self.findings],
        }
