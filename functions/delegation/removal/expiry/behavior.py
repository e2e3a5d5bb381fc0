"""Expiry of snapshots as a task behavior: what an attempt needs, and what its end writes to the task."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from delegation.polaris.model import LoadedTable
from delegation.references.store import ReferenceStore
from delegation.removal.behaviors import Outcome, UpkeepBehavior, published_segment, refuse_purged
from delegation.removal.details import changed, counts_of
from delegation.removal.expiry.context import Commits, ExpiryContext, ExpiryOptions, ExpiryResult, ExpirySettings
from delegation.removal.expiry.errors import ADVICE, check_table
from delegation.removal.expiry.planning import metadata_of
from delegation.removal.expiry.requests import Floor, TableExpiry, choices_of
from delegation.removal.expiry.retention import Permission, Retention, Withdrawn
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.expiry.task_type import BY_POLICY, PLAN_TASK_TYPE, TASK_TYPES, ExpiryDetails
from delegation.removal.lost_refs import LostRefsKeeper
from delegation.removal.task_attempt import TaskAttempt
from delegation.tasks.life.model import Task
from polaris_common.errors import counted


def success(result: ExpiryResult) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the summary, the details and the other fields of a successful task."""
    findings = counts_of(result.findings)
    common = {
        "findings": findings,
        "snapshots_expired": len(result.snapshot_ids),
        "refs_expired": len(result.refs),
    }
    snapshots, refs = counted(len(result.snapshot_ids), "snapshot"), counted(len(result.refs), "ref")
    match result.status:
        case "NOTHING":
            summary = "no snapshots to expire; nothing changed"
            if result.findings:
                summary = (
                    "no more snapshots to expire, but an earlier plan is lost, so files of its snapshots may "
                    "remain. `delegation orphans scan` finds them"
                )
            return summary, changed(ExpiryDetails, findings=findings), {}
        case "STOPPED":
            done = "before its commit; nothing changed"
            if result.snapshot_ids or result.refs:
                files = counted(result.files_deleted, "file")
                when = f"after it deleted {files}" if result.files_deleted else "before its first delete"
                done = f"{when}: {snapshots} and {refs} are removed; other files that only these referenced remain"
            details = changed(
                ExpiryDetails,
                files_deleted=result.files_deleted,
                bytes_deleted=result.bytes_deleted,
                **common,
            )
            return f"{result.withdrawn}, so the expiry stopped {done}", details, {}
        case "PLANNED":
            spark = ", to be deleted with Spark" if result.deletes_with == "spark" else ""
            summary = (
                f"{snapshots} and {refs} would be removed; planned {counted(result.files_planned, 'file')}, "
                f"{result.bytes_planned} bytes{spark}; nothing was changed"
            )
            fields: dict[str, Any] = {}
            if result.forecast is not None:
                summary += f"; deleting the files takes {result.forecast.text()}"
                fields["result_extended"] = result.forecast.without_samples()
            details = changed(
                ExpiryDetails,
                files_planned=result.files_planned,
                files_kept=result.files_kept,
                **common,
            )
            return summary, details, fields
    kept = f"; kept {counted(result.files_kept, 'file')}" if result.files_kept else ""
    deleted = result.deleted_text(counted(result.files_deleted, "file"))
    summary = f"removed {snapshots} and {refs}, {deleted}{kept}{result.freed_text()}"
    return summary, changed(ExpiryDetails, **result.deleted_details(), files_kept=result.files_kept, **common), {}


ExpiryFunction = Callable[[ExpiryContext], ExpiryResult]
PermissionsOf = Callable[[TableExpiry, Retention, datetime], Callable[[LoadedTable], Permission]]


def no_policies(_expiry: TableExpiry, _asked: Retention, _asked_at: datetime) -> Callable[[LoadedTable], Permission]:
    """Permit nothing that a policy required, because no policy can be read."""
    return lambda _table: Withdrawn("this process cannot read the catalog's policies")


@dataclass(frozen=True, kw_only=True)
class ExpiryBehavior(UpkeepBehavior[ExpiryContext, ExpiryResult]):
    """TaskBehavior for TABLE_EXPIRE_SNAPSHOTS and its dry run.

    `commits` commits as the service's principal. `floor` is what the operator keeps. `permissions` returns for an
    expiry a function of its loaded table, which returns what the policy permits now, at most what was requested at a
    time. `lost_refs` is where `search` finds the files of lost refs, None without an index.
    """

    task_types: ClassVar[frozenset[str]] = TASK_TYPES
    payload_version: ClassVar[int] = BY_POLICY
    unheld = PLAN_TASK_TYPE
    advice = ADVICE

    commits: Commits
    floor: Floor = field(default_factory=Floor)
    permissions: PermissionsOf = no_policies
    lost_refs: ReferenceStore | None = None
    settings: ExpirySettings = field(default_factory=ExpirySettings)

    def context(
        self, task: Task, *, hand_over_at: datetime | None = None, spark_above: int | None = None
    ) -> ExpiryContext:
        """Return what an attempt needs. Raises MalformedPayload, InvalidOption, GuardRefused (TABLE_IS_PURGED)."""
        expiry = TableExpiry.of(task)
        refuse_purged(self.tasks.reads, expiry, task)
        choices = choices_of(expiry.properties, asked_at=task.received_timestamp, floor=self.floor)
        attempt = TaskAttempt(self.tasks, task, hand_over_at=hand_over_at, monotonic=self.monotonic)
        opened = self.open_table(expiry.identifier)
        table_uuid = expiry.table.table_uuid.lower()
        tables = self.search(expiry.identifier, table_uuid, attempt, task)
        keeper = None
        if self.lost_refs is not None:
            keeper = LostRefsKeeper(
                self.lost_refs, self.plans, expiry.identifier, table_uuid, task.task_id, self.tasks.clock
            )
        asked_at = task.received_timestamp
        permitted = self.permissions(expiry, choices.retention, asked_at) if expiry.policy is not None else None

        def check(table: LoadedTable) -> None:
            check_table(metadata_of(table), table_uuid=table_uuid)

        return ExpiryContext(
            **self.fields(expiry, attempt, opened, tables) | {"table_uuid": table_uuid},
            spark_above=spark_above,
            commits=self.commits,
            retention=choices.retention,
            options=ExpiryOptions(dry_run=choices.dry_run, execute_plan=choices.execute_plan),
            check=check,
            permitted=permitted,
            lost_refs=keeper,
            find_plan=partial(published_segment, self.tasks.reads, TASK_TYPES),
        )

    def outcome(self, _task: Task, ctx: ExpiryContext, work: ExpiryFunction | None = None) -> Outcome:
        result = (work or expire_snapshots)(ctx)
        summary, details, fields = success(result)
        return summary, details, {"engine": result.engine, **fields}
