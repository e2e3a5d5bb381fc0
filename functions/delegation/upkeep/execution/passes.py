"""One pass over a catalog: read its policies, compute what tables need, and start what may run now.

All that a pass knows is in the healths, so that one which is killed is repeated by the next: a run is reserved in its
table's health before its task is submitted, and a task has one id for each table.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.errors import IcebergError
from delegation.iceberg.metadata import parse_metadata
from delegation.identifiers import TableIdentifier
from delegation.operations.expiry.behavior.names import TASK_TYPE
from delegation.operations.expiry.behavior.parameters import TableExpiry
from delegation.operations.expiry.guards import check_table
from delegation.polaris.errors import (
    NoSuchNamespace,
    NoSuchTable,
    PolarisError,
    TableMetadataMissing,
)
from delegation.upkeep.errors import HealthChanged
from delegation.upkeep.execution.asked import (
    AskedExpiryRule,
    CatalogPolicies,
    ListedTables,
    PolicySource,
    TableRule,
    rule_of,
)
from delegation.upkeep.execution.needs import (
    can_be_decided,
    is_outdated,
    longest_waiting,
    need_of,
    with_need,
    without_rule,
)
from delegation.upkeep.execution.settings import UpkeepSettings
from delegation.upkeep.execution.submitting import UpkeepTasks, refused, reserved
from delegation.upkeep.health.history import document_of
from delegation.upkeep.health.model import OwnPolicies, TableHealth
from delegation.upkeep.health.refresh import LoadsTables
from delegation.upkeep.health.store import HealthStore
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.upkeep.rules.model import FindingCode
from delegation.upkeep.rules.types import PolicyType
from delegation.upkeep.schedule.choice import Choice, UpkeepNeed, UpkeepRun, choose
from delegation.wire.requests import TableState

MOST_OWN_READS: Final = 1_000
"""Tables whose own policies are read in one pass; those that changed come first, then those read longest ago."""
MOST_LOADS: Final = 100
"""Tables that are loaded in one pass because their history is too large to be kept."""
_MOST_INVALID: Final = 1_000
_OF_POLICIES: Final = frozenset({FindingCode.POLICY_INVALID, FindingCode.POLICY_AMBIGUOUS})
_GONE: Final = (NoSuchTable, NoSuchNamespace, TableMetadataMissing)
_OF_ONE_TABLE: Final = (GuardRefused, PolarisError, IcebergError)


@dataclass(frozen=True, slots=True)
class UpkeepCounts:
    """What a pass did: tables, those with a rule that is executed, needs computed, runs started, and who waits why.

    `invalid` are the policies that apply somewhere and cannot be executed, `unread` the tables whose policies cannot be
    read, for the reason `why_unread` one of them.
    """

    tables: int = 0
    ruled: int = 0
    computed: int = 0
    started: int = 0
    waiting: Mapping[str, int] = field(default_factory=dict)
    invalid: frozenset[str] = frozenset()
    unread: int = 0
    why_unread: str | None = None


Waited = Callable[[timedelta, TableIdentifier | None], object]
"""Called once in a pass with the longest time that a table has been waiting for a run, and with that table."""


def nobody_counts(_wait: timedelta, _table: TableIdentifier | None) -> None:
    """Count no waits."""


@dataclass(frozen=True)
class UpkeepPass:
    """Keeps the tables of a catalog by its policies; `pace` returns when the next request may go.

    `checkpoint` is called before each table and raises to stop. `waited` is called before anything is read of the
    catalog, so that a pass which never gets further is noticed. Nothing is read where the operator allows no type.
    """

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

    def run(self, catalog: str) -> UpkeepCounts:
        """Make one pass; raises the errors of the stores and the retryable ones of the catalog."""
        if PolicyType.SNAPSHOT_EXPIRY not in self.limits.types:
            return UpkeepCounts()
        healths = list(self.healths.healths(catalog))
        self._count_wait(healths)
        found = _Found(
            CatalogPolicies(self.policies, self.pace),
            ListedTables(self.catalog, self.pace),
            self.loads,
            reads_all=len(healths) <= self.own_reads,
        )
        to_read = self._to_read(healths)
        kept = [self._kept(health, found, read=health.identifier in to_read) for health in healths]
        choice = self._chosen(found, kept)
        by_table = {health.identifier: health for health in kept}
        started = sum(self._start(need, by_table[need.table], found) for need in choice.start)
        waiting = Counter(why.value for _, why in choice.waiting)
        return UpkeepCounts(
            tables=len(healths),
            ruled=len(found.asked),
            computed=found.computed,
            started=started,
            waiting=dict(waiting),
            invalid=frozenset(found.invalid),
            unread=found.unread,
            why_unread=found.why_unread,
        )

    def _count_wait(self, healths: list[TableHealth]) -> None:
        longest = longest_waiting(healths)
        if longest is None or longest.since is None:
            self.waited(timedelta(0), None)
        else:
            self.waited(max(self.clock() - longest.since, timedelta(0)), longest.identifier)

    def _to_read(self, healths: list[TableHealth]) -> set[TableIdentifier]:
        """Return the tables whose own policies are read in this pass."""

        def longest_ago(health: TableHealth) -> tuple[bool, float]:
            own = health.own
            is_newer = own is not None and own.as_of >= health.as_of
            return is_newer, 0.0 if own is None else own.as_of.timestamp()

        return {one.identifier for one in sorted(healths, key=longest_ago)[: self.own_reads]}

    def _kept(self, health: TableHealth, found: "_Found", *, read: bool) -> TableHealth:
        """Return the health of one table with its rule, its need and the end of its last run, and store it."""
        self.checkpoint()
        now = self.clock()
        changed = self.submitting.settled(health, now)
        try:
            if read:
                changed = replace(changed, own=self._own(changed, found, now))
            rule = self._rule(changed, found)
        except PolarisError as error:
            reason = found.tables.why_unread(health.identifier, error)
            found.unread += reason is not None
            found.why_unread = found.why_unread or reason
            return self._stored(health, changed)
        found.note(health.identifier, rule)
        asked = rule.asked
        if can_be_decided(changed) and is_outdated(changed, asked, now):
            changed = without_rule(changed) if asked is None else self._computed(changed, asked, found, now)
        return self._stored(health, changed)

    def _own(self, health: TableHealth, found: "_Found", now: datetime) -> OwnPolicies:
        own = found.policies.own(health.identifier, now)
        before = health.own
        if before is None or before.policies != own.policies or before.as_of < health.as_of or not found.reads_all:
            return own
        # The time alone is no reason for a write while the policies of all tables are read in each pass.
        return before

    def _rule(self, health: TableHealth, found: "_Found") -> TableRule:
        applicable = found.policies.applying(health.identifier, health.own)
        return rule_of(health.identifier, applicable, health.properties, self.limits)

    def _computed(self, health: TableHealth, asked: AskedExpiryRule, found: "_Found", now: datetime) -> TableHealth:
        """Return the health with its need by another rule, from what was kept of the table's metadata."""
        state = self.healths.read_state(health.identifier)
        if state.history is not None:
            document = document_of(state.history)
        elif found.loads_left > 0:
            found.loads_left -= 1
            self.pace()
            try:
                document = dict(self.catalog.load_table(health.identifier, vend=False).metadata)
            except _GONE:
                return without_rule(health)
        else:
            return health
        found.computed += 1
        return with_need(health, document, state, asked, now)

    def _stored(self, before: TableHealth, after: TableHealth) -> TableHealth:
        """Store what changed; a table that another process wrote meanwhile is computed by the next pass."""
        if after == before:
            return before
        try:
            return self.healths.put(after)
        except HealthChanged:
            return before

    def _chosen(self, found: "_Found", healths: list[TableHealth]) -> Choice:
        terms = self.settings.terms_of({one.policy for one in found.asked.values()})
        needs = (need_of(one, found.asked[one.identifier]) for one in healths if one.identifier in found.asked)
        return choose(
            [need for need in needs if need is not None],
            terms,
            list(runs_of(healths)),
            self.clock(),
            at_once=self.settings.at_once,
        )

    def _start(self, need: UpkeepNeed, health: TableHealth, found: "_Found") -> bool:
        """Start one run by the table and its policies as they are now; return whether a task was submitted."""
        self.checkpoint()
        now = self.clock()
        try:
            table = found.tables.load(need.table)
            if table is None:
                return False
            rule = rule_of(need.table, found.policies.now(need.table), table.properties, self.limits)
            if rule.asked is None:
                self._stored(health, without_rule(health))
                return False
            check_table(parse_metadata(table.metadata_location, table.metadata), table_uuid=table.table_uuid)
        except _OF_ONE_TABLE as error:
            if error.retryable:
                raise
            self._stored(health, refused(health, need.policy, error.code, now))
            return False
        wanted = self.submitting.wanted(
            TableExpiry(
                realm=self.realm,
                identifier=need.table,
                table=TableState.of(table),
                properties=rule.asked.rule.options(),
                policy=rule.asked.policy,
            )
        )
        if wanted is None:
            return False
        try:
            self.healths.put(reserved(health, wanted.task_id, need.policy, need.cost, now))
        except HealthChanged:
            return False
        self.checkpoint()
        return self.submitting.submit(wanted)[1]


def runs_of(healths: list[TableHealth]) -> Iterator[UpkeepRun]:
    """Yield the last run of each table as the schedule has it."""
    for health in healths:
        run = health.runs.get(TASK_TYPE)
        if run is not None:
            yield UpkeepRun(
                health.identifier, TASK_TYPE, run.policy, run.began, run.reserved, ended=run.ended, used=run.used
            )


class _Found:
    """What a pass has read so far."""

    def __init__(self, policies: CatalogPolicies, tables: ListedTables, loads_left: int, *, reads_all: bool) -> None:
        self.policies = policies
        self.tables = tables
        self.loads_left = loads_left
        self.reads_all = reads_all
        self.asked: dict[TableIdentifier, AskedExpiryRule] = {}
        self.invalid: set[str] = set()
        self.computed = 0
        self.unread = 0
        self.why_unread: str | None = None

    def note(self, table: TableIdentifier, rule: TableRule) -> None:
        """Note what is executed, and which policies cannot be."""
        if rule.asked is not None:
            self.asked[table] = rule.asked
        # What is wrong with a table's own properties concerns its owner, who sees it with the rule.
        if len(self.invalid) < _MOST_INVALID:
            self.invalid.update(one.subject for one in rule.shown.findings if one.code in _OF_POLICIES)
