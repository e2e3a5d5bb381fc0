"""What behaviors share: running attempts in this process or in a job, how an attempt ends, and the search for other
tables. An attempt starts inline. If too many files are left when the references are known, it hands them over to Spark.
A process without Spark deletes them inline."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from delegation.errors import GuardRefused, RunStopped
from delegation.identifiers import TableIdentifier
from delegation.references.errors import ReferencesError, ReferencesNotKnown
from delegation.removal.attempt import PlanSegment
from delegation.removal.choice import HandedToSpark, RemovalSettings
from delegation.removal.context import Ctx
from delegation.removal.details import HandedDetails, PlanDetails, purge_id
from delegation.removal.errors import NeighbourChanged, NeighbourUnreadable, plan_not_found
from delegation.removal.neighbourhood import Neighbour, ReferenceCheck, TableSource
from delegation.removal.task_attempt import TaskAttempt, error_class
from delegation.storage.base import PlanStore
from delegation.storage.locations import Roots
from delegation.tasks.errors import MalformedRecord, TaskNotFound
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import MEASURED, AttemptError
from delegation.tasks.life.transitions import HANDED_OVER, LOST, held_by
from delegation.tasks.work.attempt_context import AttemptEnding, AttemptRunner, ending_of
from delegation.tasks.work.hooks import INLINE, SPARK
from delegation.tasks.work.reads import TaskReads
from delegation.tasks.work.service import TaskService
from polaris_common.errors import DelegationError, counted

if TYPE_CHECKING:
    from delegation.removal.requests import TableWork
    from delegation.storage.listing.model import ListableStore

    OpenedTable = tuple[TableSource, ListableStore]

Hold = Callable[[Task, NeighbourUnreadable | NeighbourChanged], tuple[AttemptError, timedelta] | None]
Check = TypeVar("Check", bound=ReferenceCheck)
Check_co = TypeVar("Check_co", bound=ReferenceCheck, covariant=True)
NeighboursOf = Callable[[Roots | None], Iterable[Neighbour | NeighbourUnreadable]]
FoundTables = tuple[NeighboursOf, Check | None]
"""Yields other tables, and the index that the search uses, if any."""
Result = TypeVar("Result")


class ReferenceSearch(Protocol, Generic[Check_co]):
    """Finds the live tables that may reference a table's files, for one attempt at an operation."""

    def __call__(
        self, identifier: TableIdentifier, table_uuid: str, attempt: TaskAttempt, task: Task
    ) -> FoundTables[Check_co]:
        """Return a function that yields them as of a pass that starts after its first call, and its index, if any."""
        ...


def plan_segments(task: Task) -> Sequence[PlanSegment]:
    """Return the published segments of a task's plan. Raises MalformedRecord."""
    return PlanDetails.of(task).plan_segments


def published_segment(
    reads: TaskReads,
    task_types: Collection[str] | None,
    plan_id: str,
    *,
    segments_of: Callable[[Task], Sequence[PlanSegment]] = plan_segments,
) -> PlanSegment:
    """Return the segment that a task of these types (None for any) published under this id. Raises GuardRefused
    (PLAN_NOT_FOUND)."""
    try:
        task = reads.get(plan_id.partition("/")[0])
    except TaskNotFound:
        raise plan_not_found(plan_id) from None
    published = None
    if task_types is None or task.task_type in task_types:
        published = next((segment for segment in segments_of(task) if segment.id == plan_id), None)
    if published is None:
        raise plan_not_found(plan_id)
    return published


def purge_under_way(reads: TaskReads, realm: str, identifier: TableIdentifier, table_uuid: str) -> str | None:
    """Return the id of a table's unfinished purge, None without one."""
    purge = reads.find(purge_id(realm, identifier.catalog, table_uuid))
    return None if purge is None or purge.is_terminal else purge.task_id


def refuse_purged(reads: TaskReads, work: "TableWork", task: Task) -> None:
    """Raise GuardRefused (TABLE_IS_PURGED) if the table is being purged, unless the work has changed something."""
    purge = purge_under_way(reads, work.realm, work.identifier, work.table.table_uuid)
    if purge is not None and task.effects_began_ts is None and not work.is_dry_run:
        raise GuardRefused(
            f"task {purge} is already purging the table and its files. If that task fails or is cancelled, and the "
            "table stays, send this request again",
            code="TABLE_IS_PURGED",
        )


_REFERENCES_WAIT: Final = timedelta(seconds=15)
"""The pause before a retry of work that waits for another process's pass, if that pass's time is unknown."""
KILLED_TWICE: Final = 2
"""Attempts killed without progress in between, after which no further one is tried in a function."""
_LOST_OFTEN: Final = 5
_SHORTEST_WAIT: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class TableEndings:
    """Translates the error that ended an attempt at work on a table into the attempt's ending.

    `hold` returns the ending, and the pause, of an attempt that waits for another table; attempts of the type `unheld`
    wait for none. Work that waits for a pass over the catalog is handed over, so its attempts do not count. `advice` is
    what the operation adds to an error of a class.
    """

    hold: Hold
    unheld: str | None = None
    advice: Mapping[type[DelegationError], str] = field(default_factory=dict)

    def __call__(self, task: Task, error: Exception | RunStopped) -> AttemptEnding:
        """Return how the attempt ends. Raises errors that are not the service's own."""
        if isinstance(error, (NeighbourUnreadable, NeighbourChanged)) and task.task_type != self.unheld:
            held = self.hold(task, error)
            if held is not None:
                return AttemptEnding(*held)
        ending = ending_of(error, error_class, traced=False)
        for kind, advice in self.advice.items():
            if isinstance(error, kind):
                ending = replace(ending, error=replace(ending.error, summary=f"{ending.error.summary}{advice}"))
        return replace(ending, wait=_wait_for_references(error)) if isinstance(error, ReferencesError) else ending


def _wait_for_references(error: ReferencesError) -> timedelta:
    if not isinstance(error, ReferencesNotKnown) or error.wait is None:
        return _REFERENCES_WAIT
    return min(max(error.wait, _SHORTEST_WAIT), _LONGEST_WAIT)


def check_killed(task: Task, *, has_spark: bool) -> None:
    """Raise GuardRefused (TOO_LARGE_FOR_FUNCTION) if attempts are killed and the next would run in a function."""
    if task.killed.count < KILLED_TWICE or has_spark:
        return
    raise too_large(task, "Set delegation:emr-subnet-ids, so that Spark runs the task, or give the process more memory")


def too_large(task: Task, action: str) -> GuardRefused:
    """Return the error, with the size that the attempts measured before they were killed."""
    details = PlanDetails.of(task)
    listed = task.details.get("files_listed")
    sizes = [
        str(task.details[MEASURED]) if MEASURED in task.details else "",
        f"{counted(listed, 'file')} listed" if listed else "",
        f"{counted(details.files_planned, 'file')} planned" if details.files_planned else "",
    ]
    measured = ", ".join(filter(None, sizes)) or "no attempt read the table's metadata"
    return GuardRefused(
        f"{task.killed.count} attempts were killed without progress, probably for lack of memory or time "
        f"({measured}). {action}. Then retry the task",
        code="TOO_LARGE_FOR_FUNCTION",
    )


_UNFINISHED: Final = 2
"""Attempts without enough time, after which the next runs with Spark, whose driver has enough."""


def engine_of(task: Task, settings: RemovalSettings) -> str:
    """Return the engine of an attempt, from the task's record of earlier ones. Raises MalformedRecord."""
    details = HandedDetails.of(task)
    stalled = not details.plan_segments and (_is_stalled(task) or is_lost_often(task))
    unable = task.killed.count >= KILLED_TWICE or stalled
    return SPARK if settings.has_spark and (details.next_engine == SPARK or unable) else INLINE


def prepared_engine(task: Task, settings: RemovalSettings) -> str:
    """As `engine_of`. With an unreadable record the attempt starts inline, and fails with that error."""
    try:
        return engine_of(task, settings)
    except MalformedRecord:
        return INLINE


def continue_with(engine: str | None, tasks: TaskService, task: Task, first: Mapping[str, Any] | None = None) -> Task:
    """Record the engine of the next attempt, None if it is open. Raises LeaseLost. `first` are details that are
    recorded unless the task has them."""

    def decide(current: Task, _now: datetime) -> Task:
        recorded = {name: current.details.get(name, value) for name, value in (first or {}).items()}
        return held_by(current, task.attempt_count).with_details({"next_engine": engine, **recorded})

    return tasks.holding(task).writes.change(task.task_id, decide)


def spark_above(task: Task, settings: RemovalSettings) -> int | None:
    """Return the number of remaining files above which an inline attempt hands over. None: it deletes all. Raises
    MalformedRecord. An attempt that needs Spark but runs inline belongs to a process without Spark."""
    if not settings.has_spark or engine_of(task, settings) == SPARK:
        return None
    return 0 if _is_stalled(task) else settings.inline_max_files


def is_lost_often(task: Task) -> bool:
    """Return whether more attempts without a plan were lost than deployments explain: memory may be short. Without
    Spark such a task is retried like any lost one, because nothing reports the kill of a plain process."""
    lost = task.error_code == LOST and task.unexcused_attempts > _LOST_OFTEN
    return lost and task.effects_began_ts is None and not plan_segments(task)


def _is_stalled(task: Task) -> bool:
    return task.error_code == HANDED_OVER and task.attempt_count > _UNFINISHED


Outcome = tuple[str, Mapping[str, Any], Mapping[str, Any]]
"""What a success writes: the summary, the operation's own details, and fields of the record."""


class TableBehavior(ABC, Generic[Ctx, Result]):
    """The behavior of an operation on tables: the context of an attempt, what a success writes, how an attempt ends.

    `plans` is the service's plan bucket. `hold` returns the ending, and the pause, of an attempt that waits for another
    table; one of the type `unheld` waits for none. `advice` is what the operation adds to an error of a class.
    """

    unheld: ClassVar[str | None] = None
    advice: ClassVar[Mapping[type[DelegationError], str]]

    tasks: TaskService
    plans: PlanStore
    settings: RemovalSettings
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    hold: Hold

    @abstractmethod
    def outcome(self, task: Task, ctx: Ctx, work: Callable[[Ctx], Result] | None = None) -> Outcome:
        """Do the `work` of a job, or without it this process's work; return what a success writes."""

    @abstractmethod
    def done_in_job(self, task: Task, work: Callable[[Ctx], Result]) -> Task:
        """Do the `work` of a job for a leased task, and record its success. Otherwise raises what ends the attempt."""

    def run_job(self, work: Callable[[Ctx], Result], task_id: str, attempt: int) -> Task:
        """Do the work in a Spark job, whose lease another process renews while it makes progress. The job service
        reports the start. Raises LeaseLost if the attempt no longer holds the task."""
        task = self.runner.begin_job(task_id, attempt)
        return self.runner.run(task, lambda: self.done_in_job(task, work))

    def fields(
        self, work: "TableWork", attempt: TaskAttempt, table: "OpenedTable", tables: FoundTables[Any]
    ) -> dict[str, Any]:
        """Return the fields common to all contexts: the opened `table`, and the search for other tables."""
        return {
            "attempt": attempt,
            "identifier": work.identifier,
            "table_uuid": work.table.table_uuid,
            "tables": table[0],
            "store": table[1],
            "neighbours": tables[0],
            "references": tables[1],
            "plans": self.plans,
            "settings": self.settings,
            "clock": self.tasks.clock,
            "now": self.monotonic,
            "sleep": self.sleep,
            "request": json.loads(work.to_payload()),
        }

    @property
    def runner(self) -> AttemptRunner:
        """Return the runner, which runs its attempts and records how they end."""
        return AttemptRunner(self.tasks, TableEndings(self.hold, unheld=self.unheld, advice=self.advice))


@dataclass(frozen=True, kw_only=True)
class UpkeepBehavior(TableBehavior[Ctx, Result]):
    """TaskBehavior for upkeep of tables, whose attempts run in this process or in a Spark job. `open_table` opens a
    table's source and its storage with vended credentials, which every load renews. `search` finds other tables."""

    tasks: TaskService
    open_table: "Callable[[TableIdentifier], OpenedTable]"
    plans: PlanStore
    search: ReferenceSearch[Any]
    hold: Hold
    settings: RemovalSettings
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @abstractmethod
    def context(self, task: Task, *, hand_over_at: datetime | None = None, spark_above: int | None = None) -> Ctx:
        """Return the context of an attempt. It hands over more than `spark_above` files."""

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str:  # noqa: ARG002
        """See TaskBehavior.prepare. The engine is inline, unless the former attempt handed the rest over to Spark."""
        return prepared_engine(task, self.settings)

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """See TaskBehavior.run. Does the work in this process and records the outcome, also a hand-over to Spark."""
        runner = self.runner

        def done() -> Task:
            check_killed(task, has_spark=self.settings.has_spark)
            try:
                above = spark_above(task, self.settings)
                ctx = self.context(task, hand_over_at=hand_over_at, spark_above=above)
                return runner.succeed(task, *self.outcome(task, ctx))
            except HandedToSpark:
                # Recorded before the attempt ends, so that an attempt lost in between continues with Spark too.
                continue_with(SPARK, self.tasks, task)
                raise

        return runner.run(task, done)

    def done_in_job(self, task: Task, work: Callable[[Ctx], Result]) -> Task:
        """See TableBehavior.done_in_job. It waits for the references if it started too late for the known ones. After a
        failure the engine is chosen again: an inline attempt waits for the references, and hands over again."""
        held = continue_with(None, self.tasks, task)
        ctx = replace(self.context(held), awaits_references=True)
        return self.runner.succeed(held, *self.outcome(held, ctx, work))
