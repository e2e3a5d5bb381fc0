"""Compactions and rewrites of manifests by policy. A table's need is estimated from its health, so no manifest is read
before a run starts. The run decides by the table's files, and may find nothing to do.

The first table is the one with the most files removed and deletes folded for its cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final

from delegation.errors import GuardRefused
from delegation.iceberg.metadata import parse_metadata
from delegation.polaris.model import LoadedTable
from delegation.polaris.policies import ApplicablePolicy
from delegation.removal.requests import TableWork
from delegation.rewrites import choose, manifests
from delegation.rewrites.choose import Work
from delegation.rewrites.decide import check_spec, check_terms
from delegation.rewrites.errors import RewriteError, RewriteWithdrawn
from delegation.rewrites.estimate import cost_of, cost_of_manifests
from delegation.rewrites.manifests import ManifestState, ManifestWork
from delegation.rewrites.requests import TableCompaction, TableManifestsRewrite, TableRewrite
from delegation.rewrites.task_type import COMPACTION_TASK_TYPE, FINDINGS, MANIFESTS_TASK_TYPE
from delegation.rewrites.terms import DEFAULT_MIN_INPUT_FILES, CompactionTerms, ManifestTerms
from delegation.tasks.life.model import Status, Task
from delegation.upkeep.execution.asked import AskedRewrite, RuleOf, TableRule, compaction_of, manifests_of
from delegation.upkeep.execution.expiries import STOPPED, pause_after
from delegation.upkeep.execution.kinds import KeptTables, KindEvaluation, PolicyKind, outcome_of, run_after
from delegation.upkeep.health.model import LastRun, TableHealth
from delegation.upkeep.rules.model import PolicyType
from delegation.upkeep.schedule import MICROS, Amount, UpkeepNeed
from delegation.wire.requests import TableState

EVERY: Final = timedelta(days=1)
"""Between two runs of one table."""
_RUN_MICROS: Final = 600
"""The state machine and the function that decides."""
_FILE_MICROS: Final = 400
"""What a file or a delete costs readers in a month, in millionths of a dollar: a request and the time to open it, at
one scan an hour. Orders needs, bills nobody."""
NOTHING_DONE: Final = "NOTHING_DONE"
"""The outcome of a run that found nothing to rewrite."""
PUT_OFF: Final = "PUT_OFF"
"""The outcome of a run that rewrote nothing because other writers changed the files first."""


@dataclass(frozen=True, slots=True)
class RewriteNeed:
    """The effect of a rewrite by a table's health: `gain` is files removed and deletes folded, `cost` is money."""

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
    """Return what a compaction would do, None if nothing. It is an upper bound, as if all small files were in one
    partition and each delete had its own data file, of the average size of files that are not small."""
    deletes = health.delete_files + health.deletion_vectors
    small = health.small_files if health.small_files >= DEFAULT_MIN_INPUT_FILES else 0
    if not small and not deletes:
        return None
    size = (health.small_bytes or 0) if small else 0
    data_files = max(health.files, 1)
    others = max(data_files - health.small_files, 0)
    deleted_from = min(deletes, max(data_files - small, 0))
    # The number of small files does not indicate the size of the others.
    large = (health.bytes - (health.small_bytes or 0)) // others if others else health.bytes // data_files
    size += max(large, 0) * deleted_from
    after = max(1, -(-size // choose.DEFAULT_TARGET)) if small else deleted_from
    work = Work(small + deleted_from, size, min(after + deleted_from, small + deleted_from), deletes, groups=1)
    return RewriteNeed(work.gain, work.files, size, cost_of(work)) if work.gain > 0 else None


def manifests_need(health: TableHealth) -> RewriteNeed | None:
    """Return what a rewrite of a table's manifests would do, by their number and size, None if nothing."""
    state = ManifestState(0, False, health.manifests, health.manifest_bytes, 1, health.manifests)
    choice = manifests.choose_manifests([state], manifests.DEFAULT_TARGET, cost=lambda _work: 0.0)
    work: ManifestWork = choice.work
    return RewriteNeed(work.gain, work.manifests, work.bytes, cost_of_manifests(work)) if choice.chosen else None


def ended_run(run: LastRun, task: Task) -> LastRun:
    """Return a run whose task has ended. A policy withdrawn meanwhile is not a failure."""
    files, size = (_count(task, name) for name in ("files_rewritten", "bytes_rewritten"))
    rewritten = files or _count(task, "manifests_before")
    succeeded, outcome = task.status is Status.SUCCESS, outcome_of(task)
    if succeeded and any(finding["code"] == RewriteWithdrawn.code for finding in task.details.get(FINDINGS) or ()):
        outcome = STOPPED
    elif succeeded and task.task_type == run.task_type and not rewritten:
        outcome = PUT_OFF if _count(task, "groups_put_off") else NOTHING_DONE
    return run_after(run, task, outcome, Amount(rewritten, size), failed=not succeeded)


def _count(task: Task, name: str) -> int:
    value = task.details.get(name, 0)
    return value if isinstance(value, int) and value > 0 else 0


class RewriteEvaluation(KindEvaluation[AskedRewrite]):
    """What one pass has read of the policies of a kind of rewrite."""

    def __init__(self, kind: "PolicyRewrites", tables: KeptTables) -> None:
        super().__init__(kind, tables)
        self._rewrites = kind

    def is_due(self, health: TableHealth) -> bool:
        run = health.runs.get(self._kind.task_type)
        if type(self._rewrites).need_of(health) is None or health.problem is not None:
            return False
        if run is None:
            return True
        pause = pause_after(run.failures) if run.failures else EVERY
        return run.ended is not None and self._kind.clock() >= run.ended + pause

    def need(self, health: TableHealth, asked: AskedRewrite) -> UpkeepNeed | None:
        need, task_type = type(self._rewrites).need_of(health), self._kind.task_type
        if need is None or need.per_cost < asked.min_benefit:
            return None
        run, aside = health.runs.get(task_type), health.asides.get(task_type)
        # A table that is written often is read often.
        first = health.wanted.get(task_type, health.as_of)
        return UpkeepNeed(
            table=health.identifier,
            task_type=task_type,
            policy=asked.policy,
            score=max(round(need.gain * _FILE_MICROS), 1),
            cost=need.amount,
            since=first if run is None or run.ended is None else min(run.ended + EVERY, self._kind.clock()),
            not_before=None if aside is None else aside.next_try,
            per_cost=round(need.per_cost * _FILE_MICROS),
        )

    def rule_now(self, table: LoadedTable, applicable: Sequence[ApplicablePolicy]) -> TableRule[AskedRewrite]:
        rule = super().rule_now(table, applicable)
        if rule.asked is None:
            return rule
        try:
            if self._kind.policy_type is PolicyType.DATA_COMPACTION:
                check_terms(table.metadata, CompactionTerms.of(rule.asked.options))
            else:
                check_spec(table.metadata, ManifestTerms.of(rule.asked.options))
        except (GuardRefused, RewriteError) as error:
            return TableRule(rule.shown, reason=str(error))
        return rule

    def check(self, table: LoadedTable, asked: AskedRewrite) -> None:  # noqa: ARG002
        parse_metadata(table.metadata_location, table.metadata)

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


@dataclass(frozen=True)
class PolicyRewrites(PolicyKind):
    """Rewrites the tables of a catalog by its policies, each at most once a day."""

    work: ClassVar[type[TableRewrite]]
    need_of: ClassVar[Callable[[TableHealth], RewriteNeed | None]]
    evaluation: ClassVar[type[KindEvaluation[Any]]] = RewriteEvaluation

    def settled(self, health: TableHealth) -> TableHealth:
        health = super().settled(health)
        return health if type(self).need_of(health) is not None else health.wanted_since(self.task_type, None)

    def ended(self, health: TableHealth, run: LastRun, task: Task | None) -> TableHealth:
        return health if task is None else health.with_run(ended_run(run, task))


@dataclass(frozen=True)
class PolicyCompactions(PolicyRewrites):
    task_type: ClassVar[str] = COMPACTION_TASK_TYPE
    policy_type: ClassVar[PolicyType] = PolicyType.DATA_COMPACTION
    work: ClassVar[type[TableRewrite]] = TableCompaction
    rules: ClassVar[str] = "compaction.rules"
    unread: ClassVar[str] = "compaction.policies"
    rule_of: ClassVar[RuleOf] = staticmethod(compaction_of)
    need_of: ClassVar[Callable[[TableHealth], RewriteNeed | None]] = staticmethod(compaction_need)


@dataclass(frozen=True)
class PolicyManifestsRewrites(PolicyRewrites):
    task_type: ClassVar[str] = MANIFESTS_TASK_TYPE
    policy_type: ClassVar[PolicyType] = PolicyType.METADATA_COMPACTION
    work: ClassVar[type[TableRewrite]] = TableManifestsRewrite
    rules: ClassVar[str] = "manifests.rules"
    unread: ClassVar[str] = "manifests.policies"
    rule_of: ClassVar[RuleOf] = staticmethod(manifests_of)
    need_of: ClassVar[Callable[[TableHealth], RewriteNeed | None]] = staticmethod(manifests_need)
