"""Expiries by policy: what tables need, and the start of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Final

from delegation.iceberg.metadata import parse_metadata
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchNamespace, NoSuchTable, TableMetadataMissing
from delegation.polaris.model import LoadedTable
from delegation.polaris.policies import ApplicablePolicy
from delegation.removal.expiry.errors import check_table
from delegation.removal.expiry.requests import TableExpiry
from delegation.removal.expiry.task_type import TASK_TYPE
from delegation.removal.requests import TableWork
from delegation.tasks.life.model import Task
from delegation.upkeep.execution.asked import EXPIRY, AskedExpiryRule, CatalogPolicies, TableRule, rule_of
from delegation.upkeep.execution.kinds import KeptTables, KindLook, PolicyKind, in_turn
from delegation.upkeep.execution.needs import (
    can_be_decided,
    ended,
    is_outdated,
    longest_waiting,
    need_of,
    to_submit,
    with_need,
    without_rule,
)
from delegation.upkeep.health.model import LastRun, OwnPolicies, TableHealth
from delegation.upkeep.health.reading import document_of
from delegation.upkeep.rules.model import PolicyType
from delegation.upkeep.schedule import Choice, UpkeepNeed
from delegation.wire.requests import TableState

MOST_LOADS: Final = 100
"""Tables that are loaded in one pass because their history is too large to be kept."""
_GONE: Final = (NoSuchTable, NoSuchNamespace, TableMetadataMissing)


@dataclass(frozen=True)
class PolicyExpiries(PolicyKind):
    """Expires the tables of a catalog by its policies. Tables that changed are asked for their own policies first, then
    others in turn."""

    loads: int = MOST_LOADS

    task_type: ClassVar[str] = TASK_TYPE
    policy_type: ClassVar[PolicyType] = EXPIRY
    work: ClassVar[type[TableWork]] = TableExpiry
    rules: ClassVar[str] = "upkeep.rules"
    unread: ClassVar[str] = "upkeep.policies"

    def count_wait(self, tables: KeptTables, choice: Choice | None = None) -> None:
        longest = longest_waiting(tables)
        if choice is None and longest is not None and longest.since is not None:
            self.waited(max(self.clock() - longest.since, timedelta(0)), longest.identifier)
        elif choice is None:
            self.waited(timedelta(0), None)

    def ended(self, health: TableHealth, run: LastRun, task: Task | None) -> TableHealth:
        return health if task is None else ended(health, run, task, self.clock())

    def looking(self, tables: KeptTables) -> "ExpiryLook":
        return ExpiryLook(self, tables)


class ExpiryLook(KindLook[AskedExpiryRule]):
    """What one pass has read of the policies of expiry."""

    def __init__(self, kind: PolicyExpiries, tables: KeptTables) -> None:
        super().__init__(kind, tables)
        self._policies = CatalogPolicies(kind.applicable)
        self._loads_left = kind.loads
        self._to_read = self._own_to_read()

    @property
    def needs(self) -> Sequence[UpkeepNeed]:
        found = (need_of(self._tables[name], asked) for name, asked in self._asked.items())
        return [need for need in found if need is not None]

    def to_read(self) -> Sequence[TableIdentifier]:
        return self._tables.names

    def _own_to_read(self) -> set[TableIdentifier]:
        """Return the tables whose own policies this pass reads."""
        kind, now = self._kind, self._kind.clock()
        known = [one for one in self._tables if not self._tables.is_aside(one.identifier, kind.rules, now)]
        changed = [one.identifier for one in known if one.own is None or one.own.as_of < one.as_of][: kind.most_asked]
        rest = sorted({one.identifier for one in known} - set(changed), key=str)
        return {*changed, *in_turn(rest, kind.most_asked - len(changed), now, kind.settings.interval)}

    def ruled(self, health: TableHealth) -> tuple[TableHealth, TableRule[AskedExpiryRule]]:
        if health.identifier in self._to_read:
            health = replace(health, own=self._own(health, self._kind.clock()))
        applicable = self._policies.applying(health.identifier, health.own)
        return health, rule_of(health.identifier, applicable, health.properties, self._kind.limits)

    def _own(self, health: TableHealth, now: datetime) -> OwnPolicies:
        own, before = self._policies.own(health.identifier, now), health.own
        if before is None or before.policies != own.policies or before.as_of < health.as_of:
            return own
        return before  # the time alone is no reason for a write

    def needed(self, health: TableHealth, asked: AskedExpiryRule | None) -> TableHealth:
        now = self._kind.clock()
        if not can_be_decided(health) or not is_outdated(health, asked, now):
            return health
        return without_rule(health) if asked is None else self._with_need(health, asked, now)

    def _with_need(self, health: TableHealth, asked: AskedExpiryRule, now: datetime) -> TableHealth:
        state = self._kind.healths.read_state(health.identifier)
        if (history := state.history_of(health)) is not None:
            document = document_of(history)
        elif self._loads_left > 0:
            self._loads_left -= 1
            self._kind.pace()
            try:
                document = dict(self._kind.catalog.load_table(health.identifier, vend=False).metadata)
            except _GONE:
                return without_rule(health)
        else:
            return health
        self._computed += 1
        return with_need(health, document, state, asked, now)

    def rule_now(self, table: LoadedTable, applicable: Sequence[ApplicablePolicy]) -> TableRule[AskedExpiryRule]:
        rule = rule_of(table.identifier, applicable, table.properties, self._kind.limits)
        if rule.asked is not None:
            check_table(parse_metadata(table.metadata_location, table.metadata), table_uuid=table.table_uuid)
        return rule

    def turned_off(self, health: TableHealth, need: UpkeepNeed) -> TableHealth:  # noqa: ARG002
        return without_rule(health)

    def wanted(self, table: LoadedTable, asked: AskedExpiryRule, need: UpkeepNeed) -> TableWork | None:
        expiry = TableExpiry(
            realm=self._kind.realm,
            identifier=need.table,
            table=TableState.of(table),
            properties=asked.rule.options(),
            policy=asked.policy,
        )
        return to_submit(expiry, self._kind.tasks.reads.find(expiry.task_id))
