"""Removals of orphan files by policy, once a week for each table. The clock decides which tables' policies a pass
reads, so that each pass reads few and all are read in time."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from delegation.iceberg.metadata import parse_metadata
from delegation.polaris.model import LoadedTable
from delegation.removal.orphans.details import OrphanDetails
from delegation.removal.orphans.place import check_allowed, place_of
from delegation.removal.orphans.requests import TableOrphans
from delegation.removal.orphans.task_type import TASK_TYPE
from delegation.removal.requests import TableWork
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Status, Task
from delegation.upkeep.execution.asked import REMOVAL, AskedRemoval, RuleOf, TableRule, removal_of
from delegation.upkeep.execution.expiries import pause_after
from delegation.upkeep.execution.kinds import KindEvaluation, PolicyKind, outcome_of, run_after
from delegation.upkeep.health.model import LastRun, TableHealth
from delegation.upkeep.rules.model import PolicyType
from delegation.upkeep.schedule import NOTHING, Amount, UpkeepNeed
from delegation.wire.requests import TableState

EVERY: Final = timedelta(days=7)
"""Between two removals of one table."""
WAITING: Final = "WAITING"
"""The outcome of a run that ended with a plan waiting for approval."""
_RUN: Final = Amount(micros=600)
"""The state machine and the function of one short run. What it deletes is not known in advance."""
_GIB: Final = 1024**3


class RemovalEvaluation(KindEvaluation[AskedRemoval]):
    """The policies of orphan files that one pass has read."""

    def is_due(self, health: TableHealth) -> bool:
        """Return whether a table's last run is a week old, or its shorter pause after a failure is over. It must also
        be another day of the budget (`schedule.py`)."""
        run = health.runs.get(TASK_TYPE)
        if run is None:
            return True
        pause = pause_after(run.failures) if run.failures else EVERY
        return run.ended is not None and (bool(run.waiting) or self._kind.clock() >= run.began + pause)

    def ruled(self, health: TableHealth) -> tuple[TableHealth, TableRule[AskedRemoval] | None]:
        """Read what a policy requires of one table, unless a plan of the table waits for approval."""
        kind, run = self._kind, health.runs.get(TASK_TYPE)
        task = kind.tasks.reads.find(run.task_id) if run is not None and run.task_id else None
        waiting = None if task is None else _waiting(task)
        if waiting is not None and not waiting.is_approved(kind.clock()):
            return health, None
        return super().ruled(health)

    def need(self, health: TableHealth, asked: AskedRemoval) -> UpkeepNeed:
        run, now, aside = health.runs.get(TASK_TYPE), self._kind.clock(), health.asides.get(TASK_TYPE)
        since = health.wanted.get(TASK_TYPE, now) if run is None else min(run.began + EVERY, now)
        score, before = 1 + health.bytes // _GIB, None if aside is None else aside.next_try
        return UpkeepNeed(health.identifier, TASK_TYPE, asked.policy, score, _RUN, since, before)

    def check(self, table: LoadedTable, asked: AskedRemoval) -> None:
        metadata = parse_metadata(table.metadata_location, table.metadata)
        check_allowed(metadata)
        if not asked.locations:
            place_of(metadata)

    def wanted(self, table: LoadedTable, asked: AskedRemoval, need: UpkeepNeed) -> TableWork | None:
        kind, name, now = self._kind, need.table, self._kind.clock()
        turn = int(now.timestamp() // EVERY.total_seconds())
        wanted = TableOrphans(
            realm=kind.realm, identifier=name, table=TableState.of(table), properties=dict(asked.properties(turn))
        )
        stored = kind.tasks.reads.find(wanted.task_id)
        if stored is not None and (waiting := _waiting(stored)) is not None:
            if not waiting.is_approved(now):
                health = self._tables[name]
                self._tables.put(_found_waiting(health, stored, asked.policy, _plan_of(waiting), now))
                return None
            properties = dict(asked.properties(turn, waiting.waiting_location))
            wanted = wanted.model_copy(update={"properties": properties})
        return None if stored is not None and wanted.obstacle(stored) is not None else wanted


@dataclass(frozen=True)
class OrphanSweeps(PolicyKind):
    """Removes the orphan files of the tables of a catalog by its policies."""

    task_type: ClassVar[str] = TASK_TYPE
    policy_type: ClassVar[PolicyType] = REMOVAL
    work: ClassVar[type[TableWork]] = TableOrphans
    rules: ClassVar[str] = "orphans.rules"
    unread: ClassVar[str] = "orphans.policies"
    rule_of: ClassVar[RuleOf] = staticmethod(removal_of)
    evaluation: ClassVar[type[KindEvaluation[Any]]] = RemovalEvaluation

    def ended(self, health: TableHealth, run: LastRun, task: Task | None) -> TableHealth:
        if run.ended is None and task is not None:
            return health.with_run(_ended(run, task))
        waits = "" if task is None else _plan_of(_waiting(task))
        return replace(health, runs={**health.runs, TASK_TYPE: replace(run, waiting=waits)})


def _waiting(task: Task) -> OrphanDetails | None:
    """Return the details of a task that ended with a plan waiting for approval, else None."""
    try:
        details = OrphanDetails.of(task)
    except MalformedRecord:
        return None
    return details if task.is_terminal and details.waiting_plan is not None else None


def _plan_of(waiting: OrphanDetails | None) -> str:
    return "" if waiting is None or waiting.waiting_plan is None else waiting.waiting_plan.id


def _ended(run: LastRun, task: Task) -> LastRun:
    succeeded, waits = task.status is Status.SUCCESS, _plan_of(_waiting(task))
    try:
        details = OrphanDetails.of(task)
        used = Amount(details.files_deleted, details.bytes_deleted)
    except MalformedRecord:
        used = NOTHING
    outcome = WAITING if waits and succeeded else outcome_of(task)
    return run_after(run, task, outcome, used, failed=not succeeded, waiting=waits)


def _found_waiting(health: TableHealth, task: Task, policy: str, plan: str, now: datetime) -> TableHealth:
    """Return the health with a run that did not start because a caller's plan waits for approval."""
    run = LastRun(TASK_TYPE, task.task_id, policy, now, NOTHING, ended=now, outcome=WAITING, waiting=plan)
    return health.with_run(run)
