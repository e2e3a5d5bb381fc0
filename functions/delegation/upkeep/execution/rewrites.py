"""Compactions and rewrites of manifests by policy. What a table needs is estimated from its health, so that no manifest
is read before a run begins; the run decides by the table's files, and may find nothing to do.

Of the tables that need a rewrite, the first is that with the most files removed and deletes folded for its cost.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, Final

from delegation.errors import GuardRefused
from delegation.iceberg.metadata import parse_metadata
from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.polaris.policies import ApplicablePolicy, PolicyTarget
from delegation.removal.requests import TableWork
from delegation.rewrites import choose, manifests
from delegation.rewrites.choose import Work
from delegation.rewrites.decide import check_terms
from delegation.rewrites.errors import WITHDRAWN
from delegation.rewrites.estimate import cost_of, cost_of_manifests
from delegation.rewrites.manifests import ManifestState, ManifestWork
from delegation.rewrites.requests import TableCompaction, TableManifestsRewrite, TableRewrite
from delegation.rewrites.task_type import COMPACTION_TASK_TYPE, MANIFESTS_TASK_TYPE
from delegation.rewrites.terms import DEFAULT_MIN_INPUT_FILES, CompactionTerms
from delegation.tasks.life.model import Status, Task
from delegation.upkeep.execution.asked import AskedRewrite, TableRule, compaction_of, manifests_of
from delegation.upkeep.execution.expiries import STOPPED, pause_after
from delegation.upkeep.execution.kinds import KeptTables, KindEvaluation, PolicyKind, in_turn
from delegation.upkeep.health.model import LastRun, TableHealth
from delegation.upkeep.rules.model import PolicyType
from delegation.upkeep.schedule import MICROS, Amount, Choice, UpkeepNeed
from delegation.wire.requests import TableState

EVERY: Final = timedelta(days=1)
"""Between two runs of one table."""
_RUN_MICROS: Final = 600
"""The state machine and the function that decides."""
_FILE_MICROS: Final = 400
"""What a file or a delete costs readers in a month, in millionths of a dollar: a request and the time to open it, at
one scan an hour. It orders needs, and bills nobody."""
NOTHING_DONE: Final = "NOTHING_DONE"
"""The outcome of a run that found nothing to rewrite."""


@dataclass(frozen=True, slots=True)
class RewriteNeed:
    """What a rewrite would do by a table's health: `gain` are files removed and deletes folded, `cost` is money."""

    gain: float
    files: int
    bytes: int
    cost: float

    @property
    def per_cost(self) -> float:
        return self.gain / (self.cost + _RUN_MICROS / MICROS)

    @property
    def amount(self) -> Amount:
        return Amount(self.files, self.bytes, _RUN_MICROS + round(self.cost * MICROS))


def compaction_need(health: TableHealth) -> RewriteNeed | None:
    """Return what a compaction of a table would do, None if nothing: an upper bound, as if all its small files were in
    one partition, and a delete had a data file of its own."""
    deletes = health.delete_files + health.deletion_vectors
    small = health.small_files if health.small_files >= DEFAULT_MIN_INPUT_FILES else 0
    if not small and not deletes:
        return None
    size = (health.small_bytes or 0) if small else 0
    data_files = max(health.files - health.delete_files, 1)
    deleted_from = min(deletes, max(data_files - small, 0))
    size += (health.bytes // data_files) * deleted_from
    after = max(1, -(-size // choose.DEFAULT_TARGET)) if small else deleted_from
    work = Work(small + deleted_from, size, min(after + deleted_from, small + deleted_from), deletes, groups=1)
    return RewriteNeed(work.gain, work.files, size, cost_of(work)) if work.gain > 0 else None


def manifests_need(health: TableHealth) -> RewriteNeed | None:
    """Return what a rewrite of a table's manifests would do by their number and size, None if nothing."""
    state = ManifestState(0, False, health.manifests, health.manifest_bytes, 1, health.manifests)
    choice = manifests.choose_manifests([state], manifests.DEFAULT_TARGET, cost=lambda _work: 0.0)
    work: ManifestWork = choice.work
    return RewriteNeed(work.gain, work.manifests, work.bytes, cost_of_manifests(work)) if choice.chosen else None


@dataclass(frozen=True)
class PolicyRewrites(PolicyKind):
    """Rewrites the tables of a catalog by its policies, each at most once a day."""

    work: ClassVar[type[TableRewrite]]

    @abstractmethod
    def rule(
        self, table: TableIdentifier, applicable: Sequence[ApplicablePolicy], properties: Mapping[str, str]
    ) -> TableRule[AskedRewrite]:
        """Return a table's rule within the operator's limits."""

    @abstractmethod
    def need(self, health: TableHealth) -> RewriteNeed | None:
        """Return what a table needs by its health, None if nothing."""

    def count_wait(self, tables: KeptTables, choice: Choice | None = None) -> None:  # noqa: ARG002
        """Count the longest wait, which is known once a table's policy was read."""
        waiting = () if choice is None else [need for need, _ in choice.waiting if need.task_type == self.task_type]
        longest = min(waiting, key=lambda need: (need.since, str(need.table)), default=None)
        if longest is not None:
            self.waited(self.clock() - longest.since, longest.table)

    def ended(self, health: TableHealth, run: LastRun, task: Task | None) -> TableHealth:
        return health if task is None else health.with_run(ended_run(run, task))

    def new_evaluation(self, tables: KeptTables) -> "RewriteEvaluation":
        return RewriteEvaluation(self, tables)


@dataclass(frozen=True)
class PolicyCompactions(PolicyRewrites):
    task_type: ClassVar[str] = COMPACTION_TASK_TYPE
    policy_type: ClassVar[PolicyType] = PolicyType.DATA_COMPACTION
    work: ClassVar[type[TableRewrite]] = TableCompaction
    rules: ClassVar[str] = "compaction.rules"
    unread: ClassVar[str] = "compaction.policies"

    def rule(
        self, table: TableIdentifier, applicable: Sequence[ApplicablePolicy], properties: Mapping[str, str]
    ) -> TableRule[AskedRewrite]:
        return compaction_of(table, applicable, properties, self.limits)

    def need(self, health: TableHealth) -> RewriteNeed | None:
        return compaction_need(health)


@dataclass(frozen=True)
class PolicyManifestsRewrites(PolicyRewrites):
    task_type: ClassVar[str] = MANIFESTS_TASK_TYPE
    policy_type: ClassVar[PolicyType] = PolicyType.METADATA_COMPACTION
    work: ClassVar[type[TableRewrite]] = TableManifestsRewrite
    rules: ClassVar[str] = "manifests.rules"
    unread: ClassVar[str] = "manifests.policies"

    def rule(
        self, table: TableIdentifier, applicable: Sequence[ApplicablePolicy], properties: Mapping[str, str]
    ) -> TableRule[AskedRewrite]:
        return manifests_of(table, applicable, properties, self.limits)

    def need(self, health: TableHealth) -> RewriteNeed | None:
        return manifests_need(health)


def ended_run(run: LastRun, task: Task) -> LastRun:
    """Return a run whose task has ended. A policy that was withdrawn meanwhile is no failure."""
    files, size = (_count(task, name) for name in ("files_rewritten", "bytes_rewritten"))
    rewritten = files or _count(task, "manifests_before")
    succeeded, withdrawn = task.status is Status.SUCCESS, task.error_code == WITHDRAWN
    outcome = str(task.status) if succeeded else task.error_code or str(task.status)
    if withdrawn:
        outcome = STOPPED
    elif succeeded and task.task_type == run.task_type and not rewritten:
        outcome = NOTHING_DONE
    return replace(
        run,
        ended=max(task.last_status_change_ts, run.began),
        outcome=outcome,
        used=Amount(rewritten, size),
        failures=0 if succeeded or withdrawn else run.failures + 1,
    )


def _count(task: Task, name: str) -> int:
    value = task.details.get(name, 0)
    return value if isinstance(value, int) and value > 0 else 0


class RewriteEvaluation(KindEvaluation[AskedRewrite]):
    """What one pass has read of the policies of a kind of rewrite."""

    def __init__(self, kind: PolicyRewrites, tables: KeptTables) -> None:
        super().__init__(kind, tables)
        self._rewrites = kind

    @property
    def needs(self) -> Sequence[UpkeepNeed]:
        needs = (self._need(self._tables[name], asked) for name, asked in self._asked.items())
        return [need for need in needs if need is not None]

    def to_read(self) -> Sequence[TableIdentifier]:
        kind, now = self._kind, self._kind.clock()
        due = {health.identifier for health in self._tables if self._is_due(health)}
        aside = {name for name in due if self._tables.is_aside(name, kind.rules, now)}
        return [*in_turn(sorted(due - aside, key=str), kind.most_asked, now, kind.settings.interval), *aside]

    def _is_due(self, health: TableHealth) -> bool:
        run = health.runs.get(self._kind.task_type)
        if self._rewrites.need(health) is None or health.problem is not None:
            return False
        if run is None:
            return True
        pause = pause_after(run.failures) if run.failures else EVERY
        return run.ended is not None and self._kind.clock() >= run.ended + pause

    def ruled(self, health: TableHealth) -> tuple[TableHealth, TableRule[AskedRewrite] | None]:
        applicable = self._kind.applicable(PolicyTarget.of(health.identifier))
        # The table's own properties are read when it is loaded.
        return health, self._rewrites.rule(health.identifier, applicable, {})

    def _need(self, health: TableHealth, asked: AskedRewrite) -> UpkeepNeed | None:
        need, task_type = self._rewrites.need(health), self._kind.task_type
        if need is None or need.per_cost < asked.min_benefit:
            return None
        run, aside = health.runs.get(task_type), health.asides.get(task_type)
        return UpkeepNeed(
            table=health.identifier,
            task_type=task_type,
            policy=asked.policy,
            score=max(round(need.gain * _FILE_MICROS), 1),
            cost=need.amount,
            since=health.as_of if run is None or run.ended is None else min(run.ended + EVERY, self._kind.clock()),
            not_before=None if aside is None else aside.next_try,
            per_cost=round(need.per_cost * _FILE_MICROS),
        )

    def rule_now(self, table: LoadedTable, applicable: Sequence[ApplicablePolicy]) -> TableRule[AskedRewrite]:
        rule = self._rewrites.rule(table.identifier, applicable, table.properties)
        if rule.asked is None:
            return rule
        parse_metadata(table.metadata_location, table.metadata)
        if self._kind.policy_type is PolicyType.DATA_COMPACTION:
            try:
                check_terms(table.metadata, CompactionTerms.of(rule.asked.options))
            except GuardRefused as error:
                return TableRule(rule.shown, reason=str(error))
        return rule

    def wanted(self, table: LoadedTable, asked: AskedRewrite, need: UpkeepNeed) -> TableWork | None:
        rewrite = self._rewrites.work(
            realm=self._kind.realm,
            identifier=need.table,
            table=TableState.of(table),
            properties=dict(asked.properties),
            policy=asked.policy,
        )
        stored = self._kind.tasks.reads.find(rewrite.task_id)
        return None if stored is not None and rewrite.obstacle(stored) is not None else rewrite
