"""Removing orphan files as a task behavior: what an attempt needs, in this process or in a Spark job."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import ClassVar, Final, NoReturn, Protocol

from delegation.errors import RunHandedOver, RunPaused
from delegation.iceberg.errors import ManifestMissing
from delegation.identifiers import TableIdentifier
from delegation.operations.orphans.approval import ListedAmount
from delegation.operations.orphans.behavior.claims import claims_of
from delegation.operations.orphans.behavior.consent import approval_of
from delegation.operations.orphans.behavior.details import OrphanDetails, segments_of
from delegation.operations.orphans.behavior.limits import OrphanLimits
from delegation.operations.orphans.behavior.names import PLAN_TASK_TYPE, TASK_TYPES
from delegation.operations.orphans.behavior.options import options_of
from delegation.operations.orphans.behavior.outcome import success, withdrawn
from delegation.operations.orphans.behavior.parameters import TableOrphans
from delegation.operations.orphans.context import OrphanContext, OrphanResult, OrphanSettings, always_permitted, no_age
from delegation.operations.orphans.errors import IF_MISSING, RemovalWithdrawn, no_role, references_not_indexed
from delegation.operations.orphans.phases import remove_orphan_files
from delegation.operations.orphans.place import Place
from delegation.polaris.model import LoadedTable
from delegation.removal.behaviors import (
    Hold,
    Outcome,
    ReferenceSearch,
    TableEndings,
    UpkeepRuns,
    published_segment,
    refuse_purged,
)
from delegation.removal.choice import HandedToSpark
from delegation.removal.model import ReferenceCheck, TableSource
from delegation.removal.task_attempt import TaskAttempt
from delegation.storage.base import PlanStore
from delegation.storage.listing.model import ListableStore, TagStore
from delegation.storage.locations import split
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import held_by
from delegation.tasks.work.parts.hooks import INLINE, SPARK
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.work_errors import AttemptRunner
from delegation.timestamps import isoformat

_UNPLANNED: Final = 2
"""Attempts that could not plan in their time, after which Spark plans, whose driver has as much as it takes."""
OrphansFunction = Callable[[OrphanContext], OrphanResult]
PermissionsOf = Callable[[TableOrphans], Callable[[LoadedTable], str | None]]
TagsOf = Callable[[str, str, TableSource], TagStore]
PlacesOf = Callable[[Sequence[str], Callable[[], None]], Iterable[Place]]


def _of_callers(_orphans: TableOrphans) -> Callable[[LoadedTable], str | None]:
    return always_permitted


def _no_tags(_role: str, location: str, _table: TableSource) -> NoReturn:
    no_role(split(location)[0])


class IndexedReferences(ReferenceCheck, Protocol):
    """The reference index, and the catalogs whose tables it has."""

    @property
    def catalogs(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class OrphansBehavior:
    """TaskBehavior for ORPHAN_FILES and its dry run.

    `open_table` opens a table's source and its storage with vended credentials, which every load renews; `plans` is the
    service's plan bucket. `places` yields where the namespaces and views of catalogs are, and calls a function before
    each request. `hold` returns how an attempt ends that waits for another table, and for how long. `permissions`
    returns what finds for a loaded table why a removal that a policy asked for has to stop, `asked_age` how old orphan
    files are at least by the table's policies. `tags` opens what tags the files of a table as a role (its ARN, the
    table's location, and where the table's files are).
    """

    task_types: ClassVar[frozenset[str]] = TASK_TYPES

    tasks: TaskService
    open_table: Callable[[TableIdentifier], tuple[TableSource, ListableStore]]
    plans: PlanStore
    search: ReferenceSearch[IndexedReferences]
    places: PlacesOf
    hold: Hold
    limits: OrphanLimits = field(default_factory=OrphanLimits)
    permissions: PermissionsOf = _of_callers
    asked_age: Callable[[LoadedTable], timedelta] = no_age
    tags: TagsOf = _no_tags
    settings: OrphanSettings = field(default_factory=OrphanSettings)
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def context(
        self,
        task: Task,
        *,
        hand_over_at: datetime | None = None,
        spark_above: int | None = None,
        leaves_plan: bool = False,
    ) -> OrphanContext:
        """Return what attempts need; raise MalformedPayload, InvalidOption, GuardRefused (REFERENCES_NOT_INDEXED,
        TABLE_IS_PURGED)."""
        orphans, details = TableOrphans.of(task), OrphanDetails.of(task)
        refuse_purged(self.tasks.reads, orphans, task)
        options = options_of(orphans.properties, self.limits, accepted=True)
        attempt = TaskAttempt(self.tasks, task, hand_over_at=hand_over_at, monotonic=self.monotonic)
        table_uuid = orphans.table.table_uuid.lower()
        neighbours, references = self.search(orphans.identifier, table_uuid, attempt, task)
        if references is None:
            raise references_not_indexed()
        source, store = self.open_table(orphans.identifier)
        return OrphanContext(
            attempt=attempt,
            identifier=orphans.identifier,
            table_uuid=table_uuid,
            tables=source,
            store=store,
            plans=self.plans,
            neighbours=neighbours,
            references=references,
            places=lambda: self.places(references.catalogs, attempt.checkpoint),
            claims=lambda: claims_of(self.tasks, references.catalogs, attempt.checkpoint),
            options=options,
            settings=self.settings,
            clock=self.tasks.clock,
            now=self.monotonic,
            sleep=self.sleep,
            find_plan=partial(published_segment, self.tasks.reads, TASK_TYPES, segments_of=segments_of),
            submission=isoformat(task.received_timestamp),
            began=task.effects_began_ts is not None,
            permitted=self.permissions(orphans),
            asked_age=self.asked_age,
            listed=lambda files: attempt.note(files_listed=files),
            spark_above=spark_above,
            leaves_plan=leaves_plan,
            quarantined=lambda files: attempt.note(files_quarantined=files) if files else None,
            tags=self._tags_of(source),
            request=json.loads(orphans.to_payload()),
            asked_by=attempt.asked_by,
            approval=lambda plan: approval_of(self.tasks.reads, self.limits.approvers, plan, task, self.tasks.clock()),
            waiting=details.waiting_plan,
            deleted_before=ListedAmount(details.files_deleted, details.bytes_deleted),
            planned_before=details.files_planned or 0,
        )

    def _tags_of(self, source: TableSource) -> Callable[[str, str], TagStore]:
        """Return what opens the tags of a bucket once; it raises OperatorRoleRequired."""

        @cache
        def opened(bucket: str, location: str) -> TagStore:
            role = self.limits.roles.get(bucket)
            return no_role(bucket) if role is None else self.tags(role, location, source)

        return opened

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str:  # noqa: ARG002
        """See TaskBehavior.prepare."""
        return self._runs.prepare(task)

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """See TaskBehavior.run: remove in this process."""

        def removed(above: int | None) -> Outcome:
            leaves_plan = above is not None and OrphanDetails.of(task).unplanned >= _UNPLANNED
            ctx = self.context(task, hand_over_at=hand_over_at, spark_above=above, leaves_plan=leaves_plan)
            try:
                return self._removed(task, ctx, remove_orphan_files, INLINE)
            except (HandedToSpark, RunPaused):
                raise
            except RunHandedOver:
                self._count_unplanned(task)
                raise

        return self._runs.run(task, removed)

    def run_job(self, engine: OrphansFunction, task_id: str, attempt: int) -> Task:
        """Remove in a Spark job, which waits for the references if it began too late for those that are known.

        Raises LeaseLost; see UpkeepRuns.run_job.
        """

        def removed(held: Task) -> Outcome:
            return self._removed(held, replace(self.context(held), awaits_references=True), engine, SPARK)

        return self._runs.run_job(task_id, attempt, removed)

    @property
    def _runs(self) -> UpkeepRuns:
        endings = TableEndings(self.hold, unheld=PLAN_TASK_TYPE, advice={ManifestMissing: IF_MISSING})
        return UpkeepRuns(AttemptRunner(self.tasks, endings), self.settings)

    def _removed(self, task: Task, ctx: OrphanContext, remove: OrphansFunction, engine: str) -> Outcome:
        """Remove, and return what a success writes, which a withdrawn policy is too."""
        try:
            result = remove(ctx)
        except RemovalWithdrawn as error:
            summary, details = withdrawn(error.reason, self.tasks.reads.get(task.task_id))
        else:
            segments = ctx.attempt.plan()
            summary, details = success(result, segments[-1] if segments else None, ctx.options.location)
        return summary, details, {"engine": engine}

    def _count_unplanned(self, task: Task) -> None:
        """Count an attempt that had a listing and no time left to make the plan; raise LeaseLost."""

        def decide(current: Task, _now: datetime) -> Task:
            found = OrphanDetails.of(held_by(current, task.attempt_count))
            is_listed = bool(found.plan_segments) and not found.files_planned
            return current.with_details({"unplanned": found.unplanned + 1}) if is_listed else current

        self.tasks.holding(task).writes.change(task.task_id, decide)
