"""One kind of upkeep by policy, and what a pass knows of its catalog's tables. All state is in the healths, so the next
pass repeats one that is killed. A run is reserved in its table's health before its task is submitted, and a table's
task has a fixed id. A table that fails is set aside and takes no place."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Generic, TypeVar

from delegation.errors import GuardRefused
from delegation.iceberg.errors import IcebergError
from delegation.identifiers import TableIdentifier
from delegation.items import Asides, SetAside, each_item, is_answer
from delegation.polaris.answers import PolarisError
from delegation.polaris.model import LoadedTable
from delegation.polaris.policies import ApplicablePolicy, PolicyTarget
from delegation.removal.behaviors import purge_under_way
from delegation.removal.requests import TableWork
from delegation.tasks.life.model import Status, Task
from delegation.tasks.work.service import TaskService
from delegation.upkeep.errors import HealthChanged, UpkeepError
from delegation.upkeep.execution.asked import ListedTables, RuleOf, TableRule
from delegation.upkeep.health.model import LastRun, TableHealth
from delegation.upkeep.health.refresh import LoadsTables
from delegation.upkeep.health.store import HealthStore
from delegation.upkeep.policy_file import PolicySource
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.upkeep.rules.model import FindingCode, PolicyType
from delegation.upkeep.schedule import NOTHING, Amount, Choice, UpkeepNeed
from polaris_common.errors import DelegationError, ErrorScope

A = TypeVar("A")
T = TypeVar("T")

ASIDE_FOR: Final = timedelta(minutes=30)
"""A table is set aside for this long after its first failure: two intervals."""
_LONGEST_REASON: Final = 600
_GOLDEN: Final = 0.6180339887498949
RULES: Final = "upkeep.rules"
MOST_ASKED: Final = 1_000
"""Tables whose own policies are read in one pass."""
_MOST_INVALID: Final = 1_000
_OF_POLICIES: Final = frozenset({FindingCode.POLICY_INVALID, FindingCode.POLICY_AMBIGUOUS})
_OF_ONE_TABLE: Final = (GuardRefused, PolarisError, IcebergError)


@dataclass(frozen=True, slots=True)
class UpkeepCounts:
    """The results of a pass: tables, executed rules, needs, started runs, and the reasons of waiting needs. `invalid`
    are policies that apply to a table but cannot be executed, `unread` tables whose policies cannot be read, and
    `why_unread` the reason for one of them."""

    tables: int = 0
    ruled: int = 0
    computed: int = 0
    started: int = 0
    waiting: Mapping[str, int] = field(default_factory=dict)
    invalid: frozenset[str] = frozenset()
    unread: int = 0
    why_unread: str | None = None


Waited = Callable[[timedelta, TableIdentifier | None], object]
"""Called with the longest time that a table has waited for a run, and that table."""


def nobody_counts(_wait: timedelta, _table: TableIdentifier | None) -> None: ...


class KeptTables:
    """A catalog's table healths, as read and written by one pass."""

    def __init__(self, healths: HealthStore, catalog: str) -> None:
        self._healths = healths
        self._by_name = {health.identifier: health for health in healths.healths(catalog)}
        self.unsettled: set[TableIdentifier] = set()
        """Tables for which it is unknown whether their last run has ended."""

    @property
    def names(self) -> Sequence[TableIdentifier]:
        return list(self._by_name)

    def __iter__(self) -> Iterator[TableHealth]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def __getitem__(self, name: TableIdentifier) -> TableHealth:
        return self._by_name[name]

    def put(self, after: TableHealth) -> bool:
        """Store what changed. Returns False if another process wrote meanwhile; its pass continues."""
        if after == self._by_name[after.identifier]:
            return True
        try:
            self._by_name[after.identifier] = self._healths.put(after)
        except HealthChanged:
            return False
        return True

    def note_unread(self, name: TableIdentifier, key: str, reason: str, now: datetime) -> None:
        """Store why a table's policies cannot be read, once per reason. Every pass reads the table."""
        before = self[name].asides.get(key)
        if before is None or before.error != reason[:_LONGEST_REASON]:
            self.put(self[name].set_aside(key, SetAside(reason[:_LONGEST_REASON], now, 1, now)))

    def is_aside(self, name: TableIdentifier, key: str, now: datetime) -> bool:
        aside = self[name].asides.get(key)
        return aside is not None and now < aside.next_try


@dataclass(frozen=True, slots=True)
class TableAsides(Asides[TableIdentifier]):
    """Asides in the healths of tables. Each kind of failure has its own `key`."""

    tables: KeptTables
    key: str

    def of(self, item: TableIdentifier) -> SetAside | None:
        return self.tables[item].asides.get(self.key)

    def put(self, item: TableIdentifier, aside: SetAside | None) -> None:
        """Store or remove an aside. If that fails, the next pass tries the table again."""
        with suppress(UpkeepError):
            self.tables.put(self.tables[item].set_aside(self.key, aside))


@dataclass(frozen=True)
class PolicyKind(ABC):
    """One kind of upkeep by policy; the kinds of a pass share healths, settings and clock. `pace` returns when the next
    request may be sent. `checkpoint` is called before each table and raises to stop. `waited` is called before the
    catalog is read, so that a pass that gets no further is noticed. Nothing is read if the operator does not allow the
    type."""

    realm: str
    healths: HealthStore
    catalog: LoadsTables
    policies: PolicySource
    tasks: TaskService
    limits: UpkeepLimits
    settings: UpkeepSettings
    clock: Callable[[], datetime]
    pace: Callable[[], None] = lambda: None
    checkpoint: Callable[[], None] = lambda: None
    waited: Waited = nobody_counts
    most_asked: int = MOST_ASKED

    task_type: ClassVar[str]
    policy_type: ClassVar[PolicyType]
    work: ClassVar[type[TableWork]]
    rules: ClassVar[str]
    unread: ClassVar[str]
    """Keys in a health for a table whose rule fails, and for one whose policies cannot be read."""
    rule_of: ClassVar[RuleOf]
    evaluation: ClassVar["type[KindEvaluation[Any]]"]

    def count_wait(self, tables: KeptTables, choice: Choice | None = None) -> None:
        """Count the longest wait: before the catalog is read, and again with the first choice, which for most kinds is
        the first to know what tables need. Record since when tables without any run have waited."""
        waiting = self.waiting_in(choice)
        longest = min(waiting, key=lambda need: (need.since, str(need.table)), default=None)
        if longest is not None:
            self.waited(self.clock() - longest.since, longest.table)

        def note(need: UpkeepNeed) -> None:
            health = tables[need.table]
            if self.task_type not in {*health.wanted, *health.runs}:
                tables.put(health.wanted_since(self.task_type, need.since))

        deque(each_item(waiting, note, name="upkeep.waits", clock=self.clock, shown=lambda need: str(need.table)), 0)

    def waiting_in(self, choice: Choice | None) -> Sequence[UpkeepNeed]:
        return () if choice is None else [need for need, _ in choice.waiting if need.task_type == self.task_type]

    @abstractmethod
    def ended(self, health: TableHealth, run: LastRun, task: Task | None) -> TableHealth:
        """Return the health after a run whose task has ended, or whose waiting plan may no longer wait."""

    def applicable(self, target: PolicyTarget) -> list[ApplicablePolicy]:
        self.pace()
        return self.policies.applicable(target, self.policy_type.value)

    def probe(self, catalog: str) -> bool:
        """Request something other than a table from the catalog; return whether it answers."""
        return is_answered(lambda: self.applicable(PolicyTarget(catalog)))

    def settled(self, health: TableHealth) -> TableHealth:
        """Return the health with the end of its last run, or without a run that never started, because its process died
        between reserving the run and submitting its task."""
        run = health.runs.get(self.task_type)
        if run is None or (run.ended is not None and not run.waiting):
            return health
        task = self.tasks.reads.find(run.task_id)
        if run.ended is not None:
            return self.ended(health, run, task)
        if task is None or (task.is_terminal and task.last_status_change_ts < run.began):
            return replace(health, runs={name: run for name, run in health.runs.items() if name != self.task_type})
        return self.ended(health, run, task) if task.is_terminal else health

    def evaluate(self, tables: KeptTables) -> "KindEvaluation[Any]":
        """Read the policies, compute what tables need, and store it."""
        evaluation = self.evaluation(self, tables)
        for reading in each_item(
            evaluation.to_read(),
            evaluation.read,
            name=RULES,
            clock=self.clock,
            stops=ErrorScope.CATALOG,
            asides=TableAsides(tables, self.rules),
            first_pause=ASIDE_FOR,
            probe=lambda: self.probe(next(iter(tables)).identifier.catalog),
            checkpoint=self.checkpoint,
        ):
            aside = tables[reading.item].asides.get(self.rules)
            if not reading.is_done:
                evaluation.note_unread(str(reading.error) if aside is None else aside.error)
        return evaluation

    def is_under_way(self, health: TableHealth) -> bool:
        """Return whether a task of this kind or a purge of the table is in progress, whoever requested it."""
        name, reads = health.identifier, self.tasks.reads
        if purge_under_way(reads, self.realm, name, health.table_uuid) is not None:
            return True
        stored = reads.find(self.work.id_of(self.realm, name.catalog, health.table_uuid))
        return stored is not None and not stored.is_terminal


class KindEvaluation(ABC, Generic[A]):
    """What one pass has read of the policies of a kind."""

    def __init__(self, kind: PolicyKind, tables: KeptTables) -> None:
        self._kind = kind
        self._tables = tables
        self._listed = ListedTables(kind.catalog, kind.pace)
        self._asked: dict[TableIdentifier, A] = {}
        self._invalid: set[str] = set()
        self._computed = 0
        self._unread = 0
        self._why_unread: str | None = None

    @property
    def needs(self) -> Sequence[UpkeepNeed]:
        needs = (self.need(self._tables[name], asked) for name, asked in self._asked.items())
        return [need for need in needs if need is not None]

    @abstractmethod
    def need(self, health: TableHealth, asked: A) -> UpkeepNeed | None:
        """Return what a table needs by its rule, None if nothing."""

    def to_read(self) -> Sequence[TableIdentifier]:
        """Return the tables whose rule must be read, including those set aside. All due tables are returned within a
        few passes."""
        kind, now = self._kind, self._kind.clock()
        due = {health.identifier for health in self._tables if self.is_due(health)}
        aside = {name for name in due if self._tables.is_aside(name, kind.rules, now)}
        return [*in_turn(sorted(due - aside, key=str), kind.most_asked, now, kind.settings.interval), *aside]

    @abstractmethod
    def is_due(self, health: TableHealth) -> bool:
        """Return whether the table's rule must be read, by the time of its last run."""

    def rule(
        self, table: TableIdentifier, applicable: Sequence[ApplicablePolicy], properties: Mapping[str, str]
    ) -> TableRule[A]:
        """Return a table's rule within the operator's limits."""
        return type(self._kind).rule_of(table, applicable, properties, self._kind.limits)

    def ruled(self, health: TableHealth) -> tuple[TableHealth, TableRule[A] | None]:
        """Return the health with what was read, and the table's rule, None if it is not needed now. The table's
        properties are read when it is loaded."""
        applicable = self._kind.applicable(PolicyTarget.of(health.identifier))
        return health, self.rule(health.identifier, applicable, {})

    def rule_now(self, table: LoadedTable, applicable: Sequence[ApplicablePolicy]) -> TableRule[A]:
        """Return the rule of a loaded table. Raises the error that refuses the table for such a run."""
        rule = self.rule(table.identifier, applicable, table.properties)
        if rule.asked is not None:
            self.check(table, rule.asked)
        return rule

    @abstractmethod
    def check(self, table: LoadedTable, asked: A) -> None:
        """Raise the error that refuses a loaded table for such a run."""

    @abstractmethod
    def wanted(self, table: LoadedTable, asked: A, need: UpkeepNeed) -> TableWork | None:
        """Return the work to submit, None if it must not start now."""

    def needed(self, health: TableHealth, asked: A | None) -> TableHealth:  # noqa: ARG002
        """Return the health with what the table needs by its rule."""
        return health

    def turned_off(self, health: TableHealth, need: UpkeepNeed) -> TableHealth:
        """Return the health of a table that needs no run because of its own properties."""
        return ended_at_once(health, need, OFF, self._kind.clock(), failed=False)

    def reserved(self, health: TableHealth, task_id: str, need: UpkeepNeed) -> TableHealth:
        """Return the health with a run that is about to be submitted, and its share of the budget."""
        before = health.runs.get(need.task_type)
        failures = 0 if before is None else before.failures
        now = self._kind.clock()
        return health.with_run(LastRun(need.task_type, task_id, need.policy, now, need.cost, failures=failures))

    @property
    def counts(self) -> UpkeepCounts:
        return UpkeepCounts(
            ruled=len(self._asked),
            computed=self._computed,
            invalid=frozenset(self._invalid),
            unread=self._unread,
            why_unread=self._why_unread,
        )

    def note_unread(self, reason: str) -> None:
        self._unread += 1
        self._why_unread = self._why_unread or reason

    def read(self, name: TableIdentifier) -> None:
        """Read the rule of one table, compute its need if it may have changed, and store it."""
        try:
            health, rule = self.ruled(self._tables[name])
        except PolarisError as error:
            reason = self._listed.why_unread(name, error)
            if reason is not None:
                self.note_unread(reason)
                self._tables.note_unread(name, self._kind.unread, reason, self._kind.clock())
            return
        if rule is None:
            return
        if rule.asked is not None:
            self._asked[name] = rule.asked
        # Errors in a table's own properties concern its owner, who sees them with the rule.
        if len(self._invalid) < _MOST_INVALID:
            self._invalid.update(finding.subject for finding in rule.shown.findings if finding.code in _OF_POLICIES)
            if rule.asked is None and rule.shown.is_executed and rule.shown.policy is not None:
                self._invalid.add(rule.shown.policy)
        self._tables.put(self.needed(health.set_aside(self._kind.unread, None), rule.asked))

    def start(self, need: UpkeepNeed) -> bool:
        """Start one run by the table's current state and policies. Returns whether a task was submitted."""
        kind, health = self._kind, self._tables[need.table]
        if kind.is_under_way(health):
            return False
        try:
            table = self._listed.load(need.table)
            if table is None:
                return False
            rule = self.rule_now(table, kind.applicable(PolicyTarget.of(need.table)))
        except _OF_ONE_TABLE as error:
            if not is_answer(error):
                raise
            self._tables.put(ended_at_once(health, need, error.code, kind.clock(), failed=True))
            return False
        if rule.asked is None:
            self._tables.put(self.turned_off(health, need))
            return False
        wanted = self.wanted(table, rule.asked, need)
        if wanted is None or not self._tables.put(self.reserved(health, wanted.task_id, need)):
            return False
        kind.checkpoint()
        return submitted(kind.tasks, wanted)[1]


def submitted(tasks: TaskService, wanted: TableWork) -> tuple[Task, bool]:
    """Store the task or attach to the running one; return it, and whether this call submitted it. The stored task is
    read again: since the run was reserved, a caller's may have failed after its first effect, and needs its plan."""
    stored = tasks.reads.find(wanted.task_id)
    resumes = stored is not None and stored.is_terminal and wanted.resumes(stored)
    first = tasks.submission.first(
        task_id=wanted.task_id,
        task_type=wanted.task_type,
        payload=wanted.to_payload(),
        payload_version=wanted.payload_version,
    )
    return tasks.submission.create(first, resumes=resumes, rerun=True)


def ended_at_once(health: TableHealth, need: UpkeepNeed, outcome: str, now: datetime, *, failed: bool) -> TableHealth:
    """Return the health with a run that ended before it started, so that not every pass tries it."""
    before = health.runs.get(need.task_type)
    failures = (0 if before is None else before.failures) + 1 if failed else 0
    run = LastRun(need.task_type, "", need.policy, now, NOTHING, ended=now, outcome=outcome, failures=failures)
    return health.with_run(run)


OFF: Final = "OFF"
"""The outcome of a run that the table's own properties turn off."""


def outcome_of(task: Task) -> str:
    """Return how a task ended: SUCCESS, or its error."""
    return str(task.status) if task.status is Status.SUCCESS else task.error_code or str(task.status)


def run_after(run: LastRun, task: Task, outcome: str, used: Amount, *, failed: bool, waiting: str = "") -> LastRun:
    ended, failures = max(task.last_status_change_ts, run.began), run.failures + 1 if failed else 0
    return replace(run, ended=ended, outcome=outcome, used=used, failures=failures, waiting=waiting)


def in_turn(items: Sequence[T], most: int, now: datetime, interval: timedelta) -> Sequence[T]:
    """Return the items of this pass. All items come within a few passes, even if passes are skipped or late: the start
    moves by the golden ratio of the length, so that no rhythm of passes skips items."""
    if len(items) <= most:
        return items
    turn = int(now.timestamp() // interval.total_seconds())
    first = int(turn * _GOLDEN % 1 * len(items))
    return [*items[first : first + most], *items[: max(first + most - len(items), 0)]]


def is_answered(call: Callable[[], object]) -> bool:
    """Return whether a request gets an answer. A refusal is an answer."""
    try:
        call()
    except DelegationError as error:
        return is_answer(error)
    return True
