"""One pass over a catalog for its orphan files: which tables a policy wants swept, and the start of what may run now.

As with expiry all that a pass knows is in the healths: a run is reserved there before its task is submitted, and a task
has one id for each table. A table is swept once a week. Which tables' policies are read turns with the clock, so that
one pass reads few and all are read in time.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.errors import IcebergError
from delegation.iceberg.metadata import parse_metadata
from delegation.identifiers import TableIdentifier
from delegation.operations.orphans.behavior.details import OrphanDetails
from delegation.operations.orphans.behavior.names import TASK_TYPE
from delegation.operations.orphans.behavior.parameters import TableOrphans
from delegation.operations.orphans.behavior.relation import obstacle, resumes
from delegation.operations.orphans.place import check_allowed, place_of
from delegation.polaris.errors import PolarisError
from delegation.polaris.policies import PolicyTarget
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Status, Task
from delegation.tasks.work.service import TaskService
from delegation.timestamps import isoformat
from delegation.upkeep.errors import HealthChanged
from delegation.upkeep.execution.asked import ListedTables, PolicySource
from delegation.upkeep.execution.needs import pause_after
from delegation.upkeep.execution.passes import UpkeepCounts, Waited, nobody_counts
from delegation.upkeep.execution.removals import REMOVAL, AskedRemoval, RemovalRule, removal_of
from delegation.upkeep.execution.settings import UpkeepSettings
from delegation.upkeep.health.model import LastRun, TableHealth
from delegation.upkeep.health.refresh import LoadsTables
from delegation.upkeep.health.store import HealthStore
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.upkeep.rules.model import FindingCode
from delegation.upkeep.schedule.amounts import NOTHING, Amount
from delegation.upkeep.schedule.choice import Choice, UpkeepNeed, UpkeepRun, choose
from delegation.wire.requests import TableState

EVERY: Final = timedelta(days=7)
"""Between two removals of one table."""
MOST_ASKED: Final = 1_000
"""Tables whose policies are read in one pass."""
WAITING: Final = "WAITING"
"""The outcome of a run that ended with a plan which waits for a person."""
OFF: Final = "OFF"
"""The outcome of a run that the table's own properties turn off."""
_OF_POLICIES: Final = frozenset({FindingCode.POLICY_INVALID, FindingCode.POLICY_AMBIGUOUS})
_OF_ONE_TABLE: Final = (GuardRefused, PolarisError, IcebergError)
_RUN: Final = Amount(micros=600)
"""The state machine and the function of one short run; what it deletes is not known before."""
_GIB: Final = 1024**3


@dataclass(frozen=True)
class OrphanSweeps:
    """Starts what the policies of a catalog want swept; members as of `passes.UpkeepPass`."""

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
    most_asked: int = MOST_ASKED
    waited: Waited = nobody_counts

    def run(self, catalog: str) -> UpkeepCounts:
        """Make one pass; raises the errors of the stores and the retryable ones of the catalog."""
        if REMOVAL not in self.limits.types:
            return UpkeepCounts()
        found = _Asked(ListedTables(self.catalog, self.pace))
        kept = {one.identifier: self._settled(one) for one in self.healths.healths(catalog)}
        due = [one for _, one in sorted(kept.items(), key=lambda each: str(each[0])) if self._is_due(one)]
        for health in self._in_turn(due):
            self._ask(health, found)
        needs = [self._need(kept[table], asked) for table, asked in found.asked.items()]
        terms = self.settings.terms_of({one.policy for one in found.asked.values()})
        choice = choose(needs, terms, list(_runs(kept)), self.clock(), at_once=self.settings.at_once)
        self._count_wait(choice)
        started = sum(self._start(kept[need.table], found.asked[need.table], found.tables) for need in choice.start)
        waiting: dict[str, int] = {}
        for _, why in choice.waiting:
            waiting[why.value] = waiting.get(why.value, 0) + 1
        return UpkeepCounts(
            tables=len(kept),
            ruled=len(found.asked),
            started=started,
            waiting=waiting,
            invalid=frozenset(found.invalid),
            unread=found.unread,
            why_unread=found.why_unread,
        )

    def _count_wait(self, choice: Choice) -> None:
        """Count the longest wait of a table that was swept before: of others it is not known since when they wait."""
        longest = min((one for one, _ in choice.waiting), key=lambda one: (one.since, str(one.table)), default=None)
        if longest is not None:
            self.waited(self.clock() - longest.since, longest.table)

    def _in_turn(self, due: list[TableHealth]) -> list[TableHealth]:
        """Return the tables to ask about in this pass, others in the next one."""
        if len(due) <= self.most_asked:
            return due
        turn = int(self.clock().timestamp() // self.settings.interval.total_seconds())
        first = turn * self.most_asked % len(due)
        return [*due, *due][first : first + self.most_asked]

    def _is_due(self, health: TableHealth) -> bool:
        """Return whether a table may be swept again: a week after the last time, and not while a plan waits.

        After a failure it may be earlier, and once the plan is approved, but on another day of the budget
        (`schedule.choice`).
        """
        run = health.runs.get(TASK_TYPE)
        if run is None:
            return True
        pause = pause_after(run.failures) if run.failures else EVERY
        if run.ended is None or (not run.waiting and self.clock() < run.began + pause):
            return False
        task = self.tasks.reads.find(run.task_id) if run.task_id else None
        waiting = None if task is None else _waiting(task)
        return waiting is None or waiting.is_approved(self.clock())

    def _ask(self, health: TableHealth, found: "_Asked") -> None:
        self.checkpoint()
        self.pace()
        try:
            applicable = self.policies.applicable(PolicyTarget.of(health.identifier), REMOVAL.value)
        except PolarisError as error:
            reason = found.tables.why_unread(health.identifier, error)
            found.unread += reason is not None
            found.why_unread = found.why_unread or reason
            return
        # The table's own properties are read when it is loaded.
        found.note(health.identifier, removal_of(health.identifier, applicable, {}, self.limits))

    def _need(self, health: TableHealth, asked: AskedRemoval) -> UpkeepNeed:
        run = health.runs.get(TASK_TYPE)
        since = self.clock() if run is None else min(run.began + EVERY, self.clock())
        return UpkeepNeed(health.identifier, TASK_TYPE, asked.policy, 1 + health.bytes // _GIB, _RUN, since)

    def _start(self, health: TableHealth, before: AskedRemoval, tables: ListedTables) -> bool:
        """Start one run by the table and its policies as they are now; return whether a task was submitted."""
        self.checkpoint()
        try:
            table = tables.load(health.identifier)
            if table is None:
                return False
            applicable = self.policies.applicable(PolicyTarget.of(health.identifier), REMOVAL.value)
            rule = removal_of(health.identifier, applicable, table.properties, self.limits)
            if rule.asked is None:
                self._note(_ended_at_once(health, before.policy, OFF, self.clock(), failed=False))
                return False
            metadata = parse_metadata(table.metadata_location, table.metadata)
            check_allowed(metadata)
            if not rule.asked.locations:
                place_of(metadata)
        except _OF_ONE_TABLE as error:
            if error.retryable:
                raise
            self._note(_ended_at_once(health, before.policy, error.code, self.clock(), failed=True))
            return False
        turn = int(self.clock().timestamp() // EVERY.total_seconds())
        wanted = TableOrphans(
            realm=self.realm,
            identifier=health.identifier,
            table=TableState.of(table),
            properties=dict(rule.asked.properties(turn)),
        )
        stored = self.tasks.reads.find(wanted.task_id)
        if stored is not None and (waiting := _waiting(stored)) is not None:
            if not waiting.is_approved(self.clock()):
                self._note(_found_waiting(health, stored, rule.asked.policy, _plan_of(waiting), self.clock()))
                return False
            properties = dict(rule.asked.properties(turn, waiting.waiting_location))
            wanted = wanted.model_copy(update={"properties": properties})
        if stored is not None and obstacle(stored, wanted) is not None:
            return False  # somebody else's removal of the table is under way
        if not self._note(_reserved(health, wanted.task_id, rule.asked.policy, self.clock())):
            return False
        self.checkpoint()
        return self._submitted(wanted, stored)

    def _submitted(self, wanted: TableOrphans, stored: Task | None) -> bool:
        first = self.tasks.submission.first(
            task_id=wanted.task_id, task_type=wanted.task_type, payload=wanted.to_payload()
        )
        kept = stored is not None and stored.is_terminal and resumes(stored, wanted)
        return self.tasks.submission.create(first, resumes=kept, rerun=True)[1]

    def _settled(self, health: TableHealth) -> TableHealth:
        """Return the health with the end of its last run, if that has ended, or without one that never began."""
        self.checkpoint()
        run = health.runs.get(TASK_TYPE)
        if run is None or (run.ended is not None and not run.waiting):
            return health
        task = self.tasks.reads.find(run.task_id)
        if run.ended is not None:
            waits = "" if task is None else _plan_of(_waiting(task))
            if waits == run.waiting:
                return health
            after = replace(health, runs={**health.runs, TASK_TYPE: replace(run, waiting=waits)})
        elif task is None or (task.is_terminal and task.last_status_change_ts < run.began):
            after = replace(health, runs={name: one for name, one in health.runs.items() if name != TASK_TYPE})
        elif task.is_terminal:
            after = health.with_run(_ended(run, task))
        else:
            return health
        try:
            return self.healths.put(after)
        except HealthChanged:
            return health

    def _note(self, after: TableHealth) -> bool:
        """Store what changed; return False if another process wrote meanwhile, whose pass continues."""
        try:
            self.healths.put(after)
        except HealthChanged:
            return False
        return True


@dataclass
class _Asked:
    """What a pass has read so far."""

    tables: ListedTables
    asked: dict[TableIdentifier, AskedRemoval] = field(default_factory=dict)
    invalid: set[str] = field(default_factory=set)
    unread: int = 0
    why_unread: str | None = None

    def note(self, table: TableIdentifier, rule: RemovalRule) -> None:
        if rule.asked is not None:
            self.asked[table] = rule.asked
        elif rule.shown.is_executed and rule.shown.policy is not None:
            self.invalid.add(rule.shown.policy)
        self.invalid.update(one.subject for one in rule.shown.findings if one.code in _OF_POLICIES)


def _runs(healths: Mapping[TableIdentifier, TableHealth]) -> Iterator[UpkeepRun]:
    """Yield the last runs of every kind: a table has one at a time, and all hold places."""
    for health in healths.values():
        for run in health.runs.values():
            yield UpkeepRun(
                health.identifier, run.task_type, run.policy, run.began, run.reserved, ended=run.ended, used=run.used
            )


def _waiting(task: Task) -> OrphanDetails | None:
    """Return the details of a task that ended with a plan which waits for a person, None for any other."""
    try:
        details = OrphanDetails.of(task)
    except MalformedRecord:
        return None
    return details if task.is_terminal and details.waiting_plan is not None else None


def _plan_of(waiting: OrphanDetails | None) -> str:
    return "" if waiting is None or waiting.waiting_plan is None else waiting.waiting_plan.id


def _ended(run: LastRun, task: Task) -> LastRun:
    succeeded, waits = task.status is Status.SUCCESS, _plan_of(_waiting(task))
    outcome = WAITING if waits else str(task.status)
    try:
        details = OrphanDetails.of(task)
        used = Amount(details.files_deleted, details.bytes_deleted)
    except MalformedRecord:
        used = NOTHING
    return replace(
        run,
        ended=max(task.last_status_change_ts, run.began),
        outcome=outcome if succeeded else task.error_code or str(task.status),
        used=used,
        waiting=waits,
        failures=0 if succeeded else run.failures + 1,
    )


def _reserved(health: TableHealth, task_id: str, policy: str, now: datetime) -> TableHealth:
    before = health.runs.get(TASK_TYPE)
    # Stored with the resolution of timestamps, so that a task of the same moment is not taken for an earlier one.
    began = datetime.fromisoformat(isoformat(now))
    run = LastRun(TASK_TYPE, task_id, policy, began, _RUN, failures=0 if before is None else before.failures)
    return health.with_run(run)


def _ended_at_once(health: TableHealth, policy: str, outcome: str, now: datetime, *, failed: bool) -> TableHealth:
    """Return the health with a run that ended before it began, so that it is not tried in each pass."""
    before = health.runs.get(TASK_TYPE)
    failures = (0 if before is None else before.failures) + 1 if failed else 0
    run = LastRun(TASK_TYPE, "", policy, now, NOTHING, ended=now, outcome=outcome, failures=failures)
    return health.with_run(run)


def _found_waiting(health: TableHealth, task: Task, policy: str, plan: str, now: datetime) -> TableHealth:
    """Return the health with a run that ended before it began, because the plan of a caller waits for a person."""
    run = LastRun(TASK_TYPE, task.task_id, policy, now, NOTHING, ended=now, outcome=WAITING, waiting=plan)
    return health.with_run(run)


def together(first: UpkeepCounts, second: UpkeepCounts) -> UpkeepCounts:
    """Return what two passes over one catalog did."""
    waiting = dict(first.waiting)
    for why, number in second.waiting.items():
        waiting[why] = waiting.get(why, 0) + number
    return UpkeepCounts(
        tables=max(first.tables, second.tables),
        ruled=first.ruled + second.ruled,
        computed=first.computed + second.computed,
        started=first.started + second.started,
        waiting=waiting,
        invalid=first.invalid | second.invalid,
        unread=first.unread + second.unread,
        why_unread=first.why_unread or second.why_unread,
    )
