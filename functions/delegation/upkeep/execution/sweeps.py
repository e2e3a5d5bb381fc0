"""Removals of orphan files by policy; a table is swept once a week. The clock decides which tables' policies a pass
reads, so that one pass reads few and all are read in time."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.errors import IcebergError
from delegation.iceberg.metadata import parse_metadata
from delegation.identifiers import TableIdentifier
from delegation.items import each_item, is_answer
from delegation.polaris.answers import PolarisError
from delegation.polaris.policies import PolicyTarget
from delegation.removal.behaviors import purge_under_way
from delegation.removal.orphans.details import OrphanDetails
from delegation.removal.orphans.names import TASK_TYPE
from delegation.removal.orphans.place import check_allowed, place_of
from delegation.removal.orphans.requests import TableOrphans, obstacle, resumes
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Status, Task
from delegation.tasks.work.service import TaskService
from delegation.timestamps import isoformat
from delegation.upkeep.execution.asked import REMOVAL, AskedRemoval, ListedTables, PolicySource, RemovalRule, removal_of
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
from delegation.upkeep.execution.needs import pause_after
from delegation.upkeep.health.model import LastRun, TableHealth
from delegation.upkeep.health.refresh import LoadsTables
from delegation.upkeep.health.store import HealthStore
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.upkeep.rules.model import FindingCode
from delegation.upkeep.schedule import NOTHING, Amount, Choice, UpkeepNeed
from delegation.wire.requests import TableState
from polaris_common.errors import ErrorScope

EVERY: Final = timedelta(days=7)
"""Between two removals of one table."""
MOST_ASKED: Final = 1_000
"""Tables whose policies are read in one pass."""
WAITING: Final = "WAITING"
"""The outcome of a run that ended with a plan which waits for a person."""
OFF: Final = "OFF"
"""The outcome of a run that the table's own properties turn off."""
RULES: Final = "orphans.rules"
UNREAD: Final = "orphans.policies"
"""Names in a health why the policies of the table cannot be read."""
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
    task_type: str = TASK_TYPE

    def run(self, catalog: str) -> UpkeepCounts:
        """Make a pass of this kind alone."""
        return run_kinds((self,), catalog)

    @property
    def is_allowed(self) -> bool:
        return REMOVAL in self.limits.types

    def count_wait(self, tables: KeptTables, choice: Choice | None = None) -> None:
        """Count the longest wait, which is known once a table's policy was read."""
        waiting = () if choice is None else [one for one, _ in choice.waiting if one.task_type == TASK_TYPE]
        longest = min(waiting, key=lambda one: (one.since, str(one.table)), default=None)
        if longest is not None:
            self.waited(self.clock() - longest.since, longest.table)

        def note(need: UpkeepNeed) -> None:
            health = tables[need.table]
            if health.sweep_since is None and TASK_TYPE not in health.runs:
                tables.put(replace(health, sweep_since=self.clock()))

        deque(each_item(waiting, note, name="upkeep.waits", clock=self.clock, shown=lambda one: str(one.table)), 0)

    def settled(self, health: TableHealth) -> TableHealth:
        run = health.runs.get(TASK_TYPE)
        if run is None or (run.ended is not None and not run.waiting):
            return health
        task = self.tasks.reads.find(run.task_id)
        if run.ended is not None:
            waits = "" if task is None else _plan_of(_waiting(task))
            return replace(health, runs={**health.runs, TASK_TYPE: replace(run, waiting=waits)})
        if task is None or (task.is_terminal and task.last_status_change_ts < run.began):
            return replace(health, runs={name: one for name, one in health.runs.items() if name != TASK_TYPE})
        return health.with_run(_ended(run, task)) if task.is_terminal else health

    def probe(self, catalog: str) -> bool:
        self.pace()
        return is_answered(lambda: self.policies.applicable(PolicyTarget(catalog), REMOVAL.value))

    def look(self, tables: KeptTables) -> "RemovalLook":
        found, now = RemovalLook(self, tables), self.clock()
        due = {one.identifier for one in tables if self._is_due(one)}
        aside = {one for one in due if tables.is_aside(one, RULES, now)}
        asked = in_turn(sorted(due - aside, key=str), self.most_asked, now, self.settings.interval)
        for one in each_item(
            [*asked, *aside],
            found.read,
            name=RULES,
            clock=self.clock,
            stops=ErrorScope.CATALOG,
            asides=TableAsides(tables, RULES),
            first_pause=ASIDE_FOR,
            probe=lambda: self.probe(next(iter(tables)).identifier.catalog),
            checkpoint=self.checkpoint,
        ):
            if one.error is not None:
                found.note_unread(str(one.error))
        return found

    def _is_due(self, health: TableHealth) -> bool:
        """Return whether a table's last run is a week old; after a failure the pause may be shorter. It must also be
        another day of the budget (`schedule.py`)."""
        run = health.runs.get(TASK_TYPE)
        if run is None:
            return True
        pause = pause_after(run.failures) if run.failures else EVERY
        return run.ended is not None and (bool(run.waiting) or self.clock() >= run.began + pause)


class RemovalLook:
    """What one pass has read of the policies of orphan files."""

    def __init__(self, kind: OrphanSweeps, tables: KeptTables) -> None:
        self._kind = kind
        self._tables = tables
        self._listed = ListedTables(kind.catalog, kind.pace)
        self._asked: dict[TableIdentifier, AskedRemoval] = {}
        self._invalid: set[str] = set()
        self._unread = 0
        self._why_unread: str | None = None

    @property
    def counts(self) -> UpkeepCounts:
        return UpkeepCounts(
            ruled=len(self._asked),
            invalid=frozenset(self._invalid),
            unread=self._unread,
            why_unread=self._why_unread,
        )

    @property
    def needs(self) -> Sequence[UpkeepNeed]:
        return [self._need(self._tables[name], asked) for name, asked in self._asked.items()]

    def note_unread(self, reason: str) -> None:
        self._unread += 1
        self._why_unread = self._why_unread or reason

    def read(self, name: TableIdentifier) -> None:
        """Read what a policy requires of one table, unless an unapproved plan of it waits."""
        kind, run = self._kind, self._tables[name].runs.get(TASK_TYPE)
        task = kind.tasks.reads.find(run.task_id) if run is not None and run.task_id else None
        waiting = None if task is None else _waiting(task)
        if waiting is not None and not waiting.is_approved(kind.clock()):
            return
        kind.pace()
        try:
            applicable = kind.policies.applicable(PolicyTarget.of(name), REMOVAL.value)
        except PolarisError as error:
            reason = self._listed.why_unread(name, error)
            if reason is not None:
                self.note_unread(reason)
                self._tables.note_unread(name, UNREAD, reason, kind.clock())
            return
        self._tables.put(self._tables[name].set_aside(UNREAD, None))
        # The table's own properties are read when it is loaded.
        self._note(name, removal_of(name, applicable, {}, kind.limits))

    def _note(self, table: TableIdentifier, rule: RemovalRule) -> None:
        if rule.asked is not None:
            self._asked[table] = rule.asked
        elif rule.shown.is_executed and rule.shown.policy is not None:
            self._invalid.add(rule.shown.policy)
        self._invalid.update(one.subject for one in rule.shown.findings if one.code in _OF_POLICIES)

    def _need(self, health: TableHealth, asked: AskedRemoval) -> UpkeepNeed:
        run, now, aside = health.runs.get(TASK_TYPE), self._kind.clock(), health.asides.get(TASK_TYPE)
        since = health.sweep_since or now if run is None else min(run.began + EVERY, now)
        score, before = 1 + health.bytes // _GIB, None if aside is None else aside.next_try
        return UpkeepNeed(health.identifier, TASK_TYPE, asked.policy, score, _RUN, since, before)

    def start(self, need: UpkeepNeed) -> bool:
        kind, name, health, now = self._kind, need.table, self._tables[need.table], self._kind.clock()
        reads = kind.tasks.reads
        under_way = reads.find(TableOrphans.id_of(kind.realm, name.catalog, health.table_uuid))
        if (under_way is not None and not under_way.is_terminal) or purge_under_way(
            reads, kind.realm, name, health.table_uuid
        ):
            return False  # somebody else's removal or purge of the table
        try:
            table = self._listed.load(name)
            if table is None:
                return False
            applicable = kind.policies.applicable(PolicyTarget.of(name), REMOVAL.value)
            rule = removal_of(name, applicable, table.properties, kind.limits)
            if rule.asked is None:
                self._tables.put(_ended_at_once(health, need.policy, OFF, now, failed=False))
                return False
            metadata = parse_metadata(table.metadata_location, table.metadata)
            check_allowed(metadata)
            if not rule.asked.locations:
                place_of(metadata)
        except _OF_ONE_TABLE as error:
            if not is_answer(error):
                raise
            self._tables.put(_ended_at_once(health, need.policy, error.code, now, failed=True))
            return False
        turn = int(now.timestamp() // EVERY.total_seconds())
        wanted = TableOrphans(
            realm=kind.realm,
            identifier=name,
            table=TableState.of(table),
            properties=dict(rule.asked.properties(turn)),
        )
        stored = kind.tasks.reads.find(wanted.task_id)
        if stored is not None and (waiting := _waiting(stored)) is not None:
            if not waiting.is_approved(now):
                self._tables.put(_found_waiting(health, stored, rule.asked.policy, _plan_of(waiting), now))
                return False
            properties = dict(rule.asked.properties(turn, waiting.waiting_location))
            wanted = wanted.model_copy(update={"properties": properties})
        if stored is not None and obstacle(stored, wanted) is not None:
            return False
        if not self._tables.put(_reserved(health, wanted.task_id, rule.asked.policy, now)):
            return False
        kind.checkpoint()
        return self._submitted(wanted, stored)

    def _submitted(self, wanted: TableOrphans, stored: Task | None) -> bool:
        submission = self._kind.tasks.submission
        first = submission.first(task_id=wanted.task_id, task_type=wanted.task_type, payload=wanted.to_payload())
        kept = stored is not None and stored.is_terminal and resumes(stored, wanted)
        return submission.create(first, resumes=kept, rerun=True)[1]


def _waiting(task: Task) -> OrphanDetails | None:
    """Return the details of a task that ended with a plan waiting for approval, None for any other."""
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
    return replace(health.with_run(run), sweep_since=None)


def _ended_at_once(health: TableHealth, policy: str, outcome: str, now: datetime, *, failed: bool) -> TableHealth:
    """Return the health with a run that ended before it began, so that not every pass tries it."""
    before = health.runs.get(TASK_TYPE)
    failures = (0 if before is None else before.failures) + 1 if failed else 0
    run = LastRun(TASK_TYPE, "", policy, now, NOTHING, ended=now, outcome=outcome, failures=failures)
    return health.with_run(run)


def _found_waiting(health: TableHealth, task: Task, policy: str, plan: str, now: datetime) -> TableHealth:
    """Return the health with a run that did not begin because a caller's plan waits for approval."""
    run = LastRun(TASK_TYPE, task.task_id, policy, now, NOTHING, ended=now, outcome=WAITING, waiting=plan)
    return health.with_run(run)
