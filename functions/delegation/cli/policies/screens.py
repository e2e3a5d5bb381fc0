"""How policies and rules are printed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

from delegation.cli.screens import Rows, Whole
from delegation.polaris.policies import PolicyIdentifier, StoredPolicy
from delegation.upkeep.rules.content import PolicyInvalid, content_of
from delegation.upkeep.rules.model import RuleStatus, RuleValue, UpkeepRule
from delegation.upkeep.rules.types import PolicyType
from polaris_common.errors import printable

_LONGEST_REASON: Final = 800
_STYLES: Mapping[RuleStatus, str] = {
    RuleStatus.ACTIVE: "green",
    RuleStatus.DRY_RUN: "yellow",
    RuleStatus.OFF: "dim",
}


def print_policies(policies: Sequence[tuple[PolicyIdentifier, StoredPolicy]]) -> None:
    """Print the policies of a namespace."""
    console = Console(highlight=False)
    if not policies:
        console.print("No policies.")
        return
    rows = Rows("policy", "type", "version", "state", "description")
    for identifier, policy in policies:
        state = state_of(policy)
        cells = (policy.type.removeprefix("system."), str(policy.version), state, printable(policy.description))
        rows.add(str(identifier), *cells)
    console.print(rows, crop=False)


def state_of(policy: StoredPolicy) -> str:
    """Return whether a policy is enabled, or that this service cannot read or does not know it."""
    type_ = PolicyType.named(policy.type)
    if type_ is None:
        return "unknown type"
    try:
        return "enabled" if content_of(type_, policy.content).enable else "disabled"
    except PolicyInvalid:
        return "invalid"


def print_rules(name: str, rules: Sequence[UpkeepRule], note: str, unreadable: str | None = None) -> None:
    """Print the rules of a table, namespace or catalog with the origin of each value."""
    console = Console(highlight=False)
    for rule in rules:
        for part in _rule(rule):
            console.print(part, crop=False)
    if not any(rule.policy or rule.findings for rule in rules):
        console.print(Whole(f"No policy applies to {name}: nothing is done."), crop=False)
    if unreadable is not None:
        console.print(Whole(Text(printable(unreadable, _LONGEST_REASON), "yellow")), crop=False)
    console.print(Whole(Text(note, "dim")), crop=False)


def _rule(rule: UpkeepRule) -> Iterator[RenderableType]:
    if rule.policy is None and not rule.findings:
        return
    yield Whole(Text.assemble((rule.type.short, "bold"), "  ", (rule.status.value, _STYLES[rule.status])))
    if rule.reason is not None:
        yield Whole(f"  {rule.reason}")
    if rule.values:
        rows = Rows("value", "", "from")
        for key, value in rule.values.items():
            rows.add(f"  {key}", value.text, _origin(value))
        yield rows
    for finding in rule.findings:
        yield Whole(Text(f"  {finding.code.value} {finding.subject}: {finding.text}", "yellow"))


def _origin(value: RuleValue) -> str:
    asked = f"; {value.asked} of the {value.asked_by} is looser" if value.asked is not None else ""
    return f"{value.origin}{asked}"
