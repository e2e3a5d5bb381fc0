"""A policy, whose content is not trusted, and the rule that it makes for one table, with the origin of each value.
Source: the JSON schemas of Polaris' predefined policy types, 2025-02-03. "Interoperability is not guaranteed" for
`config`: an unknown key is reported and has no effect."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError

from polaris_common.errors import DelegationError, printable

_SYSTEM = "system."


class PolicyType(Enum):
    """Polaris' predefined types of maintenance (PredefinedPolicyTypes), all inheritable."""

    SNAPSHOT_EXPIRY = "system.snapshot-expiry"
    ORPHAN_FILE_REMOVAL = "system.orphan-file-removal"
    METADATA_COMPACTION = "system.metadata-compaction"
    DATA_COMPACTION = "system.data-compaction"

    @property
    def short(self) -> str:
        """The name in properties, such as `snapshot-expiry`."""
        return self.value.removeprefix(_SYSTEM)

    @classmethod
    def named(cls, text: str) -> "PolicyType | None":
        """Return the type of a name with or without `system.`, None if unknown."""
        return next((member for member in cls if text in {member.value, member.short}), None)


LONGEST_CONTENT: Final = 65_536
"""Characters."""
_MOST_ENTRIES: Final = 100
_LONGEST_NAME: Final = 200
_LONGEST_TEXT: Final = 1_000
_SHOWN: Final = 3

_Name = Annotated[StrictStr, Field(max_length=_LONGEST_NAME)]
_Text = Annotated[StrictStr, Field(max_length=_LONGEST_TEXT)]


class PolicyInvalid(DelegationError):
    """A policy's content cannot be read. The policy has no effect."""

    code = "POLICY_INVALID"


class PolicyContent(BaseModel):
    """The common part of the four types."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    version: Literal["2025-02-03", ""] | None = None
    enable: StrictBool
    config: (
        Annotated[dict[_Name, StrictBool | StrictInt | StrictFloat | _Text], Field(max_length=_MOST_ENTRIES)] | None
    ) = None

    def values(self) -> Mapping[str, object]:
        """Return what the owner set, by key, without the common part."""
        return dict(self.config or {})


class OrphanFilesContent(PolicyContent):
    """The content of `system.orphan-file-removal`, which has two members beside `config`."""

    max_orphan_file_age_in_days: StrictInt | StrictFloat | None = None
    locations: Annotated[tuple[_Text, ...], Field(max_length=_MOST_ENTRIES)] | None = None

    def values(self) -> Mapping[str, object]:
        """Return what the owner set. A key of `config` with a member's name is not the member."""
        own = {"max_orphan_file_age_in_days": self.max_orphan_file_age_in_days, "locations": self.locations}
        config = {f"config.{key}" if key in own else key: value for key, value in super().values().items()}
        return {**config, **{name: value for name, value in own.items() if value is not None}}


def content_of(type_: PolicyType, text: str) -> PolicyContent:
    if len(text) > LONGEST_CONTENT:
        raise PolicyInvalid(f"the content has {len(text):,} characters, more than {LONGEST_CONTENT:,}")
    model = OrphanFilesContent if type_ is PolicyType.ORPHAN_FILE_REMOVAL else PolicyContent
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PolicyInvalid(f"the content is not JSON: {printable(str(error))}") from None
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise PolicyInvalid(f"the content does not match the policy type: {problems_in(error)}") from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises ValueError for a repeated name, whose value is ambiguous."""
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("an object has the same member twice")
    return unique


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def problems_in(error: ValidationError) -> str:
    """Return at most three errors in a document, without its values."""
    problems = [
        f"{printable('.'.join(map(str, each['loc'])) or 'the document')}: {each['msg'][:1].lower()}{each['msg'][1:]}"
        for each in error.errors(include_input=False, include_url=False)
    ]
    more = f"; and {len(problems) - _SHOWN:,} more" if len(problems) > _SHOWN else ""
    return "; ".join(problems[:_SHOWN]) + more


class OriginKind(Enum):
    POLICY = "policy"
    TABLE_PROPERTY = "table property"
    ICEBERG_PROPERTY = "Iceberg property"
    DEFAULT = "default"
    LIMIT = "operator's limit"


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """The origin of a value: a policy or property by name, empty for a default."""

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
    """The operator allows only plans."""
    OFF = "OFF"


class FindingCode(Enum):
    """Findings about a rule, for people. A code in STOPPING turns the rule off."""

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
"""Findings that an operator must see, because an attached policy is not executed."""


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """Something unexpected for a rule's owner. `subject` is a policy or property."""

    code: FindingCode
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class UpkeepRule:
    """The rule of one type for one table. `reason` is why it is not ACTIVE, `policy` names the policy, None without
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
                    "value": list(setting.value) if isinstance(setting.value, tuple) else setting.value,
                    "text": setting.text,
                    "origin": setting.origin.kind.value,
                    "origin_name": setting.origin.name or None,
                    **(
                        {"asked": setting.asked, "asked_by": str(setting.asked_by)} if setting.asked is not None else {}
                    ),
                }
                for key, setting in self.values.items()
            },
            "findings": [
                {"code": finding.code.value, "subject": finding.subject, "text": finding.text}
                for finding in self.findings
            ],
        }
