"""Expiries by policy: what tables need, and the start of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.errors import IcebergError
from delegation.iceberg.metadata import parse_metadata
from delegation.identifiers import TableIdentifier
from delegation.items import each_item, is_answer
from delegation.polaris.answers import NoSuchNamespace, NoSuchTable, PolarisError, TableMetadataMissing
from delegation.polaris.policies import PolicyTarget
from delegation.removal.expiry.errors import check_table
from delegation.removal.expiry.names import TASK_TYPE
from delegation.removal.expiry.requests import TableExpiry
from delegation.upkeep.execution.asked import (
    EXPIRY,
    AskedExpiryRule,
    CatalogPolicies,
    ListedTables,
    PolicySource,
    TableRule,
    rule_of,
)
from delegation.upkeep.execution.kinds import (
    ASIDE_FOR,
    KeptTables,
    TableAsides,
    UpkeepCounts,
    Waited,
    in_turn,
    is_answered,
    nobody_counts,
    run_kinds,
)
from delegation.upkeep.execution.needs import (
    UpkeepTasks,
    can_be_decided,
    is_outdated,
    longest_waiting,
    need_of,
    refused,
    reserved,
    with_need,
    without_rule,
)
from delegation.upkeep.health.model import OwnPolicies, TableHealth
from delegation.upkeep.health.reading import document_of
from delegation.upkeep.health.refresh import LoadsTables
from delegation.upkeep.health.store import HealthStore
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.upkeep.rules.model import FindingCode
from delegation.upkeep.schedule import Choice, UpkeepNeed
from delegation.wire.requests import TableState
from polaris_common.errors import ErrorScope

MOST_OWN_READS: Final = 1_000
"""Tables whose own policies are read in one pass; those that changed come first, then others in turn."""
MOST_LOADS: Final = 100
"""Tables that are loaded in one pass because their history is too large to be kept."""
RULES: Final = "upkeep.rules"
UNREAD: Final = "upkeep.policies"
"""Names in a health why the policies of the table cannot be read."""
_MOST_INVALID: Final = 1_000
_OF_POLICIES: Final = frozenset({FindingCode.POLICY_INVALID, FindingCode.POLICY_AMBIGUOUS})
_GONE: Final = (NoSuchTable, NoSuchNamespace, TableMetadataMissing)
_OF_ONE_TABLE: Final = (GuardRefused, PolarisError, IcebergError)


@dataclass(frozen=True)
class UpkeepPass:
    """Expires the tables of a catalog by its policies; `pace` returns when the next request may go. `checkpoint` is
    called before each table and raises to stop. `waited` is called before the catalog is read, so that a pass which
    gets no further is noticed. Nothing is read if the operator allows no type."""

    realm: str
    healths: HealthStore
    catalog: LoadsTables
    policies: PolicySource
    submitting: UpkeepTasks
    limits: UpkeepLimits
    settings: UpkeepSettings
    clock: Callable[[], datetime]
    pace: Callable[[], None] = lambda: None
    checkpoint: Callable[[], None] = lambda: None
    own_reads: int = MOST_OWN_READS
    loads: int = MOST_LOADS
    waited: Waited = nobody_counts
    task_type: str = TASK_TYPE

    def run(self, catalog: str) -> UpkeepCounts:
        """Make a pass of this kind alone."""
        return run_kinds((self,), catalog)

    @property
    def is_allowed(self) -> bool:
        return EXPIRY in self.limits.types

    def count_wait(self, tables: KeptTables, choice: Choice | None = None) -> None:
        longest = longest_waiting(tables)
        if choice is None and longest is not None and longest.since is not None:
            self.waited(max(self.clock() - longest.since, timedelta(0)), longest.identifier)
        elif choice is None:
            self.waited(timedelta(0), None)

    def settled(self, health: TableHealth) -> TableHealth:
        return self.submitting.settled(health, self.clock())

    def probe(self, catalog: str) -> bool:
        self.pace()
        return is_answered(lambda: self.policies.applicable(PolicyTarget(catalog), EXPIRY.value))

    def look(self, tables: KeptTables) -> "ExpiryLook":
        found = ExpiryLook(self, tables)
        for one in each_item(
            tables.names,
            found.read,
            name=RULES,
            clock=self.clock,
            stops=ErrorScope.CATALOG,
            asides=TableAsides(tables, RULES),
            first_pause=ASIDE_FOR,
            probe=lambda: self.probe(next(iter(tables)).identifier.catalog),
            checkpoint=self.checkpoint,
        ):
            aside = tables[one.item].asides.get(RULES)
            if not one.is_done:
                found.note_unread(str(one.error) if aside is None else aside.error)
        return found


class ExpiryLook:
    """What one pass has read of the policies of expiry."""

    def __init__(self, kind: UpkeepPass, tables: KeptTables) -> None:
        self._kind = kind
        self._tables = tables
        self._policies = CatalogPolicies(kind.policies, kind.pace)
        self._listed = ListedTables(kind.catalog, kind.pace)
        self._loads_left = kind.loads
        self._asked: dict[TableIdentifier, AskedExpiryRule] = {}
        self._invalid: set[str] = set()
        self._computed = 0
        self._unread = 0
        self._why_unread: str | None = None
        self._to_read = self._own_to_read()

    @property
    def counts(self) -> UpkeepCounts:
        return UpkeepCounts(
            ruled=len(self._asked),
            computed=self._computed,
            invalid=frozenset(self._invalid),
            unread=self._unread,
            why_unread=self._why_unread,
        )

    @property
    def needs(self) -> Sequence[UpkeepNeed]:
        found = (need_of(self._tables[name], asked) for name, asked in self._asked.items())
        return [need for need in found if need is not None]

    def _own_to_read(self) -> set[TableIdentifier]:
        """Return the tables whose own policies this pass reads: those that changed, and others in turn."""
        kind, now = self._kind, self._kind.clock()
        known = [one for one in self._tables if not self._tables.is_aside(one.identifier, RULES, now)]
        changed = [one.identifier for one in known if one.own is None or one.own.as_of < one.as_of][: kind.own_reads]
        rest = sorted({one.identifier for one in known} - set(changed), key=str)
        return {*changed, *in_turn(rest, kind.own_reads - len(changed), now, kind.settings.interval)}

    def note_unread(self, reason: str) -> None:
        self._unread += 1
        self._why_unread = self._why_unread or reason

    def read(self, name: TableIdentifier) -> None:
        """Read the rule of one table, compute its need if it may have changed, and store it."""
        now = self._kind.clock()
        changed = self._tables[name]
        try:
            if name in self._to_read:
                changed = replace(changed, own=self._own(changed, now))
            rule = self._rule(changed)
        except PolarisError as error:
            reason = self._listed.why_unread(name, error)
            if reason is not None:
                self.note_unread(reason)
                self._tables.note_unread(name, UNREAD, reason, now)
            return
        changed = changed.set_aside(UNREAD, None)
        self._note(name, rule)
        asked = rule.asked
        if can_be_decided(changed) and is_outdated(changed, asked, now):
            changed = without_rule(changed) if asked is None else self._with_need(changed, asked, now)
        self._tables.put(changed)

    def _own(self, health: TableHealth, now: datetime) -> OwnPolicies:
        own, before = self._policies.own(health.identifier, now), health.own
        if before is None or before.policies != own.policies or before.as_of < health.as_of:
            return own
        return before  # the time alone is no reason for a write

    def _rule(self, health: TableHealth) -> TableRule:
        applicable = self._policies.applying(health.identifier, health.own)
        return rule_of(health.identifier, applicable, health.properties, self._kind.limits)

    def _note(self, table: TableIdentifier, rule: TableRule) -> None:
        """Note what is executed, and which policies cannot be."""
        if rule.asked is not None:
            self._asked[table] = rule.asked
        # What is wrong with a table's own properties concerns its owner, who sees it with the rule.
        if len(self._invalid) < _MOST_INVALID:
            self._invalid.update(one.subject for one in rule.shown.findings if one.code in _OF_POLICIES)

    def _with_need(self, health: TableHealth, asked: AskedExpiryRule, now: datetime) -> TableHealth:
        state = self._kind.healths.read_state(health.identifier)
        if state.history is not None:
            document = document_of(state.history)
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

    def start(self, need: UpkeepNeed) -> bool:
        kind, health, now = self._kind, self._tables[need.table], self._kind.clock()
        if kind.submitting.is_under_way(kind.realm, health):
            return False
        try:
            table = self._listed.load(need.table)
            if table is None:
                return False
            rule = rule_of(need.table, self._policies.now(need.table), table.properties, kind.limits)
            if rule.asked is None:
                self._tables.put(without_rule(health))
                return False
            check_table(parse_metadata(table.metadata_location, table.metadata), table_uuid=table.table_uuid)
        except _OF_ONE_TABLE as error:
            if not is_answer(error):
                raise
            self._tables.put(refused(health, need.policy, error.code, now))
            return False
        wanted = kind.submitting.wanted(
            TableExpiry(
                realm=kind.realm,
                identifier=need.table,
                table=TableState.of(table),
                properties=rule.asked.rule.options(),
                policy=rule.asked.policy,
            )
        )
        if wanted is None or not self._tables.put(reserved(health, wanted.task_id, need.policy, need.cost, now)):
            return False
        kind.checkpoint()
        return kind.submitting.submit(wanted)[1]
