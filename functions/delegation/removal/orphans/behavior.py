"""What a successful removal of orphan files writes to its task."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any, ClassVar, Final, NoReturn, Protocol

from delegation.errors import RunHandedOver, RunPaused
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import PlanSegment
from delegation.removal.behaviors import Outcome, ReferenceSearch, UpkeepBehavior, published_segment, refuse_purged
from delegation.removal.choice import HandedToSpark
from delegation.removal.details import changed, counts_of
from delegation.removal.errors import POLICY_WITHDRAWN
from delegation.removal.neighbourhood import ReferenceCheck, TableSource
from delegation.removal.orphans.claims import claims_of
from delegation.removal.orphans.context import OrphanContext, OrphanResult, OrphanSettings, always_permitted, no_age
from delegation.removal.orphans.details import ListedAmount, OrphanDetails, segments_of, share_of
from delegation.removal.orphans.errors import ADVICE, RemovalWithdrawn, no_role, references_not_indexed
from delegation.removal.orphans.options import options_of
from delegation.removal.orphans.place import Place
from delegation.removal.orphans.released import released_text
from delegation.removal.orphans.requests import OrphanLimits, TableOrphans, approval_of
from delegation.removal.orphans.run import remove_orphan_files
from delegation.removal.orphans.task_type import PLAN_TASK_TYPE, TASK_TYPES
from delegation.removal.task_attempt import TaskAttempt
from delegation.storage.listing.model import TAG, TagStore
from delegation.storage.locations import split
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import held_by
from delegation.tasks.work.hooks import INLINE, SPARK
from delegation.timestamps import isoformat
from polaris_common.errors import counted, printable

_WHY = {
    "first-run": "it is the table's first plan at this location",
    "max-share": "the share of orphan files is unusually large",
    "max-files": "the number of orphan files is unusually large",
    "finding": "the removal found something new after the approval",
}
_SHOWN: Final = 3


def success(
    result: OrphanResult, segment: PlanSegment | None, location: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Return the summary and the details of a successful task. `segment` is its plan. `location` is where it searched,
    if that is not the table's location."""
    details: dict[str, Any] = {
        "files_planned": result.files_planned,
        "files_listed": result.files_listed,
        "findings": counts_of(result.findings),
        "waits": "",
        "waiting_plan": None,
        "waiting_location": "",
    }
    listed = f"{counted(result.files_listed, 'object')} at {result.location}"
    released = f"{released_text(result.findings)}{_foreign_text(result)}"
    nothing = f"no orphan files among {listed}{released}"
    verb = "tags" if result.quarantine else "deletes"
    amount = f"{counted(result.files_planned, 'orphan file')}, {result.bytes_planned} bytes, of {listed}"
    match result.status:
        case "NOTHING":
            return nothing, changed(OrphanDetails, **details)
        case "PLANNED" if not result.files_planned:
            return nothing, changed(OrphanDetails, **details)
        case "PLANNED":
            spark = " with Spark" if result.deletes_with == "spark" else ""
            summary = (
                f"found {amount}; nothing was deleted. `delegation orphans approve {result.plan_ids[-1]}` "
                f"{verb} them{spark}{released}"
            )
            return summary, changed(OrphanDetails, **details)
        case "WAITING":
            waiting = None if segment is None else {"id": segment.id, "sha256": segment.sha256}
            details |= {"waits": result.waits, "waiting_plan": waiting, "waiting_location": location or ""}
            gone = result.files_deleted + result.deleted_before.files
            done = (
                f"{counted(gone, 'file')} had already been deleted, and the other files stay"
                if gone
                else "nothing was deleted"
            )
            summary = (
                f"found {amount}; {done}, because {_WHY[result.waits]} ({result.waits}, "
                f"{_percent(result)} of the files at the location). `delegation orphans show {result.plan_ids[-1]}` "
                f"lists them, `delegation orphans approve {result.plan_ids[-1]}` {verb} them{released}"
            )
            return summary, changed(OrphanDetails, **details)
    stayed = f"; {counted(result.files_changed, 'file')} that had changed stayed" if result.files_changed else ""
    if result.quarantine:
        kept = (
            f"; {counted(result.files_untagged, 'file')} that already had ten tags stayed"
            if result.files_untagged
            else ""
        )
        deleted = f"; {counted(result.files_deleted, 'file')} had been deleted before" if result.files_deleted else ""
        summary = (
            f"tagged {counted(result.files_quarantined, 'orphan file')} ({'='.join(TAG)}), {result.bytes_quarantined} "
            f"bytes, of {listed} in {result.seconds:.1f} s{stayed}{kept}{deleted}{released}"
        )
    else:
        deleted = result.deleted_text(counted(result.files_deleted, "orphan file"), f", of {listed}")
        summary = f"{deleted}{stayed}{result.freed_text()}{released}"
    details |= result.deleted_details() | {
        "files_deleted": result.files_deleted + result.deleted_before.files,
        "files_changed": result.files_changed,
        "files_quarantined": result.files_quarantined,
        "bytes_deleted": result.bytes_deleted + result.deleted_before.bytes,
    }
    return summary, changed(OrphanDetails, **details)


def withdrawn(reason: str, task: Task) -> tuple[str, dict[str, Any]]:
    """Return the summary and the details of a removal that stopped because its policy was withdrawn: a SUCCESS."""
    deleted = OrphanDetails.of(task).files_deleted
    done = f"{counted(deleted, 'orphan file')} had been deleted before" if deleted else "nothing was deleted"
    findings = [{"code": POLICY_WITHDRAWN, "count": 1}]
    return f"stopped, because {reason}; {done}", changed(OrphanDetails, findings=findings)


def _foreign_text(result: OrphanResult) -> str:
    """Return a summary's text about tables that no catalog lists: how much stays for which, and how to remove it."""
    tables = result.foreign
    if not tables:
        return ""
    shown = [
        f"{table.uuid} at {printable(table.place)} ({counted(table.files, 'file')}, {table.bytes} bytes)"
        for table in tables
    ]
    more = f" and {counted(len(tables) - _SHOWN, 'other')}" if len(tables) > _SHOWN else ""
    approve = f"; `delegation orphans approve {result.plan_ids[-1]} --including UUID` includes the files of one table"
    how = approve if result.status in ("PLANNED", "WAITING") else ""
    return f"; files of unlisted tables stay: {', '.join(shown[:_SHOWN])}{more}{how}"


def _percent(result: OrphanResult) -> str:
    planned = ListedAmount(result.files_planned, result.bytes_planned)
    return f"{share_of(planned, ListedAmount(result.files_listed, result.bytes_listed)):.0%}"


_UNPLANNED: Final = 2
"""Attempts without enough time to plan, after which Spark plans, whose driver has enough."""
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


@dataclass(frozen=True, kw_only=True)
class OrphansBehavior(UpkeepBehavior[OrphanContext, OrphanResult]):
    """TaskBehavior for ORPHAN_FILES and its dry run.

    `places` yields the locations of namespaces and views of catalogs, and calls a function before each request.
    `permissions` returns for a removal a function of its loaded table, which returns why a policy's removal must stop.
    `asked_age` returns the minimum age of orphan files by the table's policies. `tags` opens what tags the files of a
    table as a role (its ARN, the table's location, and the files' location).
    """

    task_types: ClassVar[frozenset[str]] = TASK_TYPES
    unheld = PLAN_TASK_TYPE
    advice = ADVICE

    search: ReferenceSearch[IndexedReferences]
    places: PlacesOf
    limits: OrphanLimits = field(default_factory=OrphanLimits)
    permissions: PermissionsOf = _of_callers
    asked_age: Callable[[LoadedTable], timedelta] = no_age
    tags: TagsOf = _no_tags
    settings: OrphanSettings = field(default_factory=OrphanSettings)

    def context(
        self, task: Task, *, hand_over_at: datetime | None = None, spark_above: int | None = None
    ) -> OrphanContext:
        """Return what an attempt needs. Raises MalformedPayload, InvalidOption, GuardRefused (REFERENCES_NOT_INDEXED,
        TABLE_IS_PURGED)."""
        orphans, details = TableOrphans.of(task), OrphanDetails.of(task)
        refuse_purged(self.tasks.reads, orphans, task)
        options = options_of(orphans.properties, self.limits, accepted=True)
        attempt = TaskAttempt(self.tasks, task, hand_over_at=hand_over_at, monotonic=self.monotonic)
        table_uuid = orphans.table.table_uuid.lower()
        tables = self.search(orphans.identifier, table_uuid, attempt, task)
        references = tables[1]
        if references is None:
            raise references_not_indexed()
        opened = self.open_table(orphans.identifier)
        return OrphanContext(
            **self.fields(orphans, attempt, opened, tables) | {"table_uuid": table_uuid},
            spark_above=spark_above,
            places=lambda: self.places(references.catalogs, attempt.checkpoint),
            claims=lambda: claims_of(self.tasks, references.catalogs, attempt.checkpoint),
            options=options,
            find_plan=partial(published_segment, self.tasks.reads, TASK_TYPES, segments_of=segments_of),
            submission=isoformat(task.received_timestamp),
            began=task.effects_began_ts is not None,
            permitted=self.permissions(orphans),
            asked_age=self.asked_age,
            leaves_plan=spark_above is not None and details.unplanned >= _UNPLANNED,
            tags=self._tags_of(opened[0]),
            approval=lambda plan: approval_of(self.tasks.reads, self.limits.approvers, plan, task, self.tasks.clock()),
            waiting=details.waiting_plan,
            deleted_before=ListedAmount(details.files_deleted, details.bytes_deleted),
            planned_before=details.files_planned or 0,
        )

    def _tags_of(self, source: TableSource) -> Callable[[str, str], TagStore]:
        """Return a function that opens the tags of a bucket once. It raises OperatorRoleRequired."""

        @cache
        def opened(bucket: str, location: str) -> TagStore:
            role = self.limits.roles.get(bucket)
            return no_role(bucket) if role is None else self.tags(role, location, source)

        return opened

    def outcome(self, task: Task, ctx: OrphanContext, work: OrphansFunction | None = None) -> Outcome:
        """Remove, and return what a success writes. A withdrawn policy is a success too."""
        try:
            result = (work or remove_orphan_files)(ctx)
        except RemovalWithdrawn as error:
            summary, details = withdrawn(error.reason, self.tasks.reads.get(task.task_id))
        except RunHandedOver as error:
            if work is None and not isinstance(error, (HandedToSpark, RunPaused)):
                self._count_unplanned(task)
            raise
        else:
            segments = ctx.attempt.plan()
            summary, details = success(result, segments[-1] if segments else None, ctx.options.location)
        return summary, details, {"engine": INLINE if work is None else SPARK}

    def _count_unplanned(self, task: Task) -> None:
        """Count an attempt that had a listing but no time to make the plan. Raises LeaseLost."""

        def decide(current: Task, _now: datetime) -> Task:
            details = OrphanDetails.of(held_by(current, task.attempt_count))
            is_listed = bool(details.plan_segments) and not details.files_planned
            return current.with_details({"unplanned": details.unplanned + 1}) if is_listed else current

        self.tasks.holding(task).writes.change(task.task_id, decide)
