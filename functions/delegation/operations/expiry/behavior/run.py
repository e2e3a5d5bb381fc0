"""Expiring snapshots as a task behavior: what an attempt needs, in this process or in a Spark job."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import ClassVar

from delegation.attempts.task_attempt import TaskAttempt
from delegation.iceberg.errors import ManifestMissing
from delegation.identifiers import TableIdentifier
from delegation.keeping.lost import LostRefsKeeper
from delegation.keeping.model import ReferenceCheck, TableSource
from delegation.operations.behaviors.engines import Outcome, UpkeepRuns
from delegation.operations.behaviors.outcome import TableEndings
from delegation.operations.behaviors.sources import Hold, ReferenceSearch, published_segment, refuse_purged
from delegation.operations.expiry.behavior.limits import Floor
from delegation.operations.expiry.behavior.names import BY_POLICY, PLAN_TASK_TYPE, TASK_TYPES
from delegation.operations.expiry.behavior.options import choices_of
from delegation.operations.expiry.behavior.outcome import success
from delegation.operations.expiry.behavior.parameters import TableExpiry
from delegation.operations.expiry.commits import Commits
from delegation.operations.expiry.context import ExpiryContext, ExpiryOptions, ExpiryResult, ExpirySettings
from delegation.operations.expiry.errors import IF_MISSING
from delegation.operations.expiry.guards import check_table
from delegation.operations.expiry.permission import Permission, Withdrawn
from delegation.operations.expiry.phases import expire_snapshots
from delegation.operations.expiry.planning.reach import metadata_of
from delegation.operations.expiry.retention import Retention
from delegation.polaris.model import LoadedTable
from delegation.references.lost import LostRefsStore
from delegation.storage.base import PlanStore
from delegation.storage.listing.model import ListableStore
from delegation.tasks.life.model import Task
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.work_errors import AttemptRunner

ExpiryFunction = Callable[[ExpiryContext], ExpiryResult]
PermissionsOf = Callable[[TableExpiry, Retention, datetime], Callable[[LoadedTable], Permission]]


def no_policies(_expiry: TableExpiry, _asked: Retention, _asked_at: datetime) -> Callable[[LoadedTable], Permission]:
    """Permit nothing that a policy asked for, where no policy can be read."""
    return lambda _table: Withdrawn("the policies of the catalog cannot be read by this process")


@dataclass(frozen=True)
class ExpiryBehavior:
    """TaskBehavior for TABLE_EXPIRE_SNAPSHOTS and its dry run.

    `commits` commits as the service's principal. `open_table` opens a table's source and its storage with vended
    credentials, which every load renews; `plans` is the service's plan bucket. `hold` returns
    how an attempt ends that waits for another table, and for how long. `floor` is what the operator keeps.
    `permissions` returns what finds for a loaded table what the policy that asked for an expiry permits now, at most
    what was asked for at a time. `lost_refs` is where `search` finds what lost refs need, None without an index.
    """

    task_types: ClassVar[frozenset[str]] = TASK_TYPES
    payload_version: ClassVar[int] = BY_POLICY

    tasks: TaskService
    commits: Commits
    open_table: Callable[[TableIdentifier], tuple[TableSource, ListableStore]]
    plans: PlanStore
    search: ReferenceSearch[ReferenceCheck]
    hold: Hold
    floor: Floor = field(default_factory=Floor)
    permissions: PermissionsOf = no_policies
    lost_refs: LostRefsStore | None = None
    settings: ExpirySettings = field(default_factory=ExpirySettings)
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def context(
        self, task: Task, *, hand_over_at: datetime | None = None, spark_above: int | None = None
    ) -> ExpiryContext:
        """Return what an attempt needs; raise MalformedPayload, InvalidOption, GuardRefused (TABLE_IS_PURGED)."""
        expiry = TableExpiry.of(task)
        refuse_purged(self.tasks.reads, expiry, task)
        choices = choices_of(expiry.properties, asked_at=task.received_timestamp, floor=self.floor)
        attempt = TaskAttempt(self.tasks, task, hand_over_at=hand_over_at, monotonic=self.monotonic)
        source, store = self.open_table(expiry.identifier)
        table_uuid = expiry.table.table_uuid.lower()
        neighbours, references = self.search(expiry.identifier, table_uuid, attempt, task)

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
            attempt=attempt,
            identifier=expiry.identifier,
            table_uuid=table_uuid,
            tables=source,
            commits=self.commits,
            store=store,
            plans=self.plans,
            retention=choices.retention,
            options=ExpiryOptions(dry_run=choices.dry_run, execute_plan=choices.execute_plan),
            settings=self.settings,
            check=check,
            permitted=permitted,
            neighbours=neighbours,
            references=references,
            lost_refs=keeper,
            clock=self.tasks.clock,
            now=self.monotonic,
            sleep=self.sleep,
            find_plan=partial(published_segment, self.tasks.reads, TASK_TYPES),
            measured=attempt.measured,
            spark_above=spark_above,
            request=json.loads(expiry.to_payload()),
            asked_by=attempt.asked_by,
        )

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str:  # noqa: ARG002
        """See TaskBehavior.prepare."""
        return self._runs.prepare(task)

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """See TaskBehavior.run: expire in this process."""

        def expired(above: int | None) -> Outcome:
            ctx = self.context(task, hand_over_at=hand_over_at, spark_above=above)
            return _outcome(expire_snapshots(ctx))

        return self._runs.run(task, expired)

    def run_job(self, engine: ExpiryFunction, task_id: str, attempt: int) -> Task:
        """Expire in a Spark job, which waits for the references if it began too late for those that are known.

        Raises LeaseLost; see UpkeepRuns.run_job.
        """

        def expired(held: Task) -> Outcome:
            return _outcome(engine(replace(self.context(held), awaits_references=True)))

        return self._runs.run_job(task_id, attempt, expired)

    @property
    def _runs(self) -> UpkeepRuns:
        endings = TableEndings(self.hold, unheld=PLAN_TASK_TYPE, advice={ManifestMissing: IF_MISSING})
        return UpkeepRuns(AttemptRunner(self.tasks, endings), self.settings)


def _outcome(result: ExpiryResult) -> Outcome:
    summary, details, fields = success(result)
    return summary, details, {"engine": result.engine, **fields}
