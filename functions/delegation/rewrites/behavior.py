"""Rewrites as a task behavior: what an attempt needs, and what its end writes to the task.

An attempt starts in this process: it reads manifests and decides. If something is to be rewritten, it hands over to
Spark, and the job decides again by the table's new state. A process with a Spark session decides and rewrites at once.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from delegation.errors import GuardRefused, RunHandedOver, RunStopped
from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.polaris.requests import CatalogRequests
from delegation.removal.behaviors import (
    KILLED_TWICE,
    Outcome,
    check_killed,
    continue_with,
    engine_of,
    prepared_engine,
    refuse_purged,
)
from delegation.removal.choice import RemovalSettings
from delegation.removal.task_attempt import error_class
from delegation.rewrites.context import Rewrite, RewriteContext, RewriteResult, TableLoader, always_permitted
from delegation.rewrites.errors import RewriteEngineFailed, RewriteWithdrawn
from delegation.rewrites.requests import TableRewrite
from delegation.rewrites.run import committed_before
from delegation.rewrites.task_type import (
    FINDINGS,
    FIRST_ATTEMPT,
    LOSSES,
    NO_SPARK,
    RECEIPT,
    WORKER_ID,
    WORKER_TASK_TYPE,
)
from delegation.storage.base import ObjectStore, PlanStore
from delegation.tasks.errors import RunPostponed
from delegation.tasks.life.model import Status, Task
from delegation.tasks.work.attempt_context import AttemptContext, AttemptEnding, AttemptRunner, ending_of
from delegation.tasks.work.hooks import INLINE, SPARK
from delegation.tasks.work.service import TaskService
from delegation.timestamps import elapsed
from polaris_common.errors import DelegationError, counted

SHARED: Final = "shared-worker"
"""The next engine of a rewrite that waits for the shared worker."""
SHARED_WAIT: Final = timedelta(minutes=10)
"""How long it waits for the worker, or for a place in its session, until its next attempt."""
ALONE_AFTER: Final = 2
"""After this many losses in a row an attempt runs alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePlan:
    """What is to be rewritten, nothing without `rewrites`. `details` state what that costs, gains and leaves out."""

    rewrites: tuple[Rewrite, ...]
    summary: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RewriteJob:
    """A Spark job's work for one attempt. `planned_again` returns the rewrites by the table's current state. It raises
    what RewriteKind.plan raises."""

    ctx: RewriteContext
    plan: RewritePlan
    planned_again: Callable[[], tuple[Rewrite, ...]]


class RewriteKind(Protocol):
    """One kind of rewrite: its requests, and its decision for a table. Both methods raise the errors of the catalog and
    of the table's store."""

    @property
    def work_type(self) -> type[TableRewrite]: ...

    def plan(self, ctx: RewriteContext, work: TableRewrite) -> RewritePlan:
        """Return what a request rewrites, by the table's current manifests. Raises InvalidOption, RewriteWithdrawn."""

    def summary(self, result: RewriteResult) -> str:
        """Return one sentence about what the task's own commits changed."""


class RewriteSession(Protocol):
    """A Spark session in this process, shared by attempts at several tasks."""

    def taken(self, losses: int, checkpoint: Callable[[], None]) -> AbstractContextManager[None]:
        """Give an attempt its place in the session, after this many losses in a row. Raises RunPostponed if it must
        come later, and what `checkpoint` raises while it waits."""
        ...

    def rewrite(self, job: RewriteJob) -> RewriteResult:
        """Perform a job. Raises what `run_rewrites` raises, and RunHandedOver if the session has ended."""
        ...


@dataclass(frozen=True, slots=True)
class SharedWorkerTask:
    """The one task of a deployment's shared worker. Having one task ensures that at most one of its jobs runs."""

    tasks: TaskService

    @property
    def is_open(self) -> bool:
        task = self.tasks.reads.find(WORKER_ID)
        return task is not None and not task.is_terminal

    def start(self) -> None:
        """Submit the task, unless it is open."""
        first = self.tasks.submission.first(task_id=WORKER_ID, task_type=WORKER_TASK_TYPE, payload="{}")
        self.tasks.submission.create(first, rerun=True)


def without_spark(tasks: TaskService, task: Task) -> RunPostponed:
    """Return the error that ends an attempt which needs Spark in a process without it. Each attempt waits longer than
    the one before. Raises LeaseLost."""
    attempts = int(task.details.get(NO_SPARK, 0)) + 1
    tasks.holding(task).leases.note(task.task_id, task.attempt_count, details={NO_SPARK: attempts})
    return RunPostponed(
        "this process has no Spark. Start `delegation worker --engine spark`, which needs the extra [spark] and Java "
        "17, or set the DELEGATION_EMR_* variables of this worker",
        tasks.policies.retry(task.task_type).backoff(attempts),
    )


def losses_of(task: Task) -> int:
    """Return how many attempts in a row started in a Spark session and ended with their process or the session."""
    return int(task.details.get(LOSSES, 0))


def may_share(task: Task) -> bool:
    """Return whether a rewrite may run beside others. After two losses it gets a job of its own."""
    return losses_of(task) < ALONE_AFTER


def is_shared(task: Task) -> bool:
    """Return whether a former attempt left a rewrite to the shared worker or ran in it."""
    return task.details.get("next_engine") == SHARED and may_share(task)


def is_left(task: Task, engines: Collection[str]) -> bool:
    """Return whether a rewrite waits for one of these engines, in a process that has not tried it yet."""
    waits = task.status is Status.RETRY_SCHEDULED and task.error_code == RunPostponed.code
    return waits and task.details.get("next_engine") in engines


OpenedTable = tuple[TableLoader, ObjectStore]
RewriteFunction = Callable[[RewriteJob], RewriteResult]


@dataclass(frozen=True, kw_only=True)
class RewriteBehavior:
    """TaskBehavior of one kind of rewrite and of its dry run.

    `open_table` opens a table's source and its storage with vended credentials, which every load renews. `requests`
    sends to the catalog as the service's principal. `settings` state whether there is Spark. `permissions` returns for
    a request a function of its loaded table, which returns why the table's policy no longer requires it, or None.
    `session` is the Spark session of this process, if it has one. Rewrites are left to the `shared` worker; without it
    each has a job of its own.
    """

    tasks: TaskService
    kind: RewriteKind
    requests: CatalogRequests
    open_table: Callable[[TableIdentifier], OpenedTable]
    plans: PlanStore
    settings: RemovalSettings
    permissions: Callable[[TableRewrite], Callable[[LoadedTable], str | None]] = lambda _work: always_permitted
    session: RewriteSession | None = None
    shared: SharedWorkerTask | None = None
    monotonic: Callable[[], float] = elapsed
    sleep: Callable[[float], None] = time.sleep

    @property
    def task_types(self) -> frozenset[str]:
        return frozenset({self.kind.work_type.work_task_type, self.kind.work_type.plan_task_type})

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str:  # noqa: ARG002
        """See TaskBehavior.prepare. The engine is inline, unless the former attempt found work for another engine."""
        is_here = self.session is not None or self._is_dry_run(task)
        return INLINE if is_here or self._is_shared(task) else prepared_engine(task, self.settings)

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        """See TaskBehavior.run. Decides in this process; records a dry run's outcome, or hands over to Spark."""
        runner = self._runner
        if self.session is not None:
            return self._run_with(task, self.session.rewrite, self.session.taken)

        def done() -> Task:
            check_killed(task, has_spark=self.settings.has_spark)
            if self.shared is not None and self._is_shared(task):
                self._wait_for_shared(task, self.shared)
            elif not self._is_dry_run(task) and engine_of(task, self.settings) == SPARK:
                raise without_spark(self.tasks, task)
            work, ctx = self._started(task, hand_over_at)
            plan = self.kind.plan(ctx, work)
            if work.is_dry_run or not plan.rewrites:
                return self._without_work(task, work, ctx, plan, INLINE)
            if not self.settings.has_spark:
                raise GuardRefused(
                    f"{plan.summary}. This needs Spark, which the deployment does not have. Set "
                    "delegation:emr-subnet-ids and deploy, then send the request again",
                    code="NO_SPARK",
                )
            if self.shared is not None and may_share(task):
                self._continue_with(SHARED, task)
                self.shared.start()
                raise RunPostponed(f"{plan.summary}; the shared Spark worker rewrites the table", SHARED_WAIT)
            # Recorded before the attempt ends, so that an attempt lost in between continues with Spark too.
            self._continue_with(SPARK, task)
            raise RunHandedOver(task.task_id, f"{plan.summary}; the next attempt rewrites the table with Spark")

        return runner.run(task, lambda: self._unless_withdrawn(task, INLINE, done))

    def run_job(self, work: RewriteFunction, task_id: str, attempt: int) -> Task:
        """Do the work in a Spark job; see UpkeepBehavior.run_job. After a failure the next decision is inline again."""
        return self._run_with(self._runner.begin_job(task_id, attempt), work, lambda *_: nullcontext())

    def _run_with(
        self,
        task: Task,
        rewrite: RewriteFunction,
        taken: Callable[[int, Callable[[], None]], AbstractContextManager[None]],
    ) -> Task:
        """Decide and rewrite with this process's Spark session, in a place that the attempt has taken."""
        runner = self._runner

        def done() -> Task:
            held = self._continue_with(None if self.session is None else SHARED, task)
            asked, ctx = self._started(held, None)
            with taken(losses_of(held), ctx.attempt.checkpoint), self._as_loss(held):
                plan = self.kind.plan(ctx, asked)
                if asked.is_dry_run or not plan.rewrites:
                    return self._without_work(held, asked, ctx, plan, SPARK)
                job = RewriteJob(ctx, plan, lambda: self.kind.plan(ctx, asked).rewrites)
                return runner.succeed(held, *self._outcome(plan, rewrite(job)))

        return runner.run(task, lambda: self._unless_withdrawn(task, SPARK, done))

    def _unless_withdrawn(self, task: Task, engine: str, done: Callable[[], Task]) -> Task:
        """Do the work. Records a success if the policy that required it was withdrawn."""
        try:
            return done()
        except RewriteWithdrawn as error:
            committed = self.tasks.reads.get(task.task_id).details
            files, manifests = committed.get("files_rewritten", 0), committed.get("manifests_before", 0)
            rewritten = counted(files, "file") if files else counted(manifests, "manifest")
            before = f"{rewritten} had been rewritten before" if files or manifests else "nothing was rewritten"
            findings = {FINDINGS: [{"code": error.code, "count": 1}], LOSSES: None}
            summary = f"stopped, because {error.reason}; {before}"
            return self._runner.succeed(task, summary, findings, {"engine": engine})

    def _is_shared(self, task: Task) -> bool:
        """Return whether the shared worker must run the task: attempts that decide here must not be killed."""
        return self.shared is not None and is_shared(task) and task.killed.count < KILLED_TWICE

    def _wait_for_shared(self, task: Task, shared: SharedWorkerTask) -> None:
        """Raise RunPostponed while the shared worker is open, which leases waiting tasks and decides itself."""
        if shared.is_open:
            raise RunPostponed("the shared Spark worker will rewrite the table", SHARED_WAIT)
        # An attempt that is handed over for lack of time must not decide here again.
        self._continue_with(None, task)

    def _is_dry_run(self, task: Task) -> bool:
        return task.task_type == self.kind.work_type.plan_task_type

    @contextmanager
    def _as_loss(self, task: Task) -> Iterator[None]:
        """Count the attempt as a loss until it ends normally, because a process that dies records nothing. A stopped
        attempt keeps the former losses. Success and other errors clear them."""
        before = losses_of(task)
        self._note_losses(task, before + 1)
        try:
            yield
        except RewriteEngineFailed:
            # Even if the JVM still answers: without memory a job fails before its JVM ends, or only its executors end.
            raise
        except (DelegationError, RunStopped) as error:
            self._note_losses(task, before if isinstance(error, RunStopped) else 0)
            raise

    def _note_losses(self, task: Task, losses: int) -> None:
        noted = {LOSSES: losses or None}
        self.tasks.holding(task).leases.note(task.task_id, task.attempt_count, details=noted)

    def _continue_with(self, engine: str | None, task: Task) -> Task:
        """Record the engine of the next attempt, and the submission's first attempt that may commit."""
        return continue_with(engine, self.tasks, task, {FIRST_ATTEMPT: task.attempt_count})

    @property
    def _runner(self) -> AttemptRunner:
        return AttemptRunner(self.tasks, _ending)

    def _started(self, task: Task, hand_over_at: datetime | None) -> tuple[TableRewrite, RewriteContext]:
        """Return the request and its attempt's context. Raises MalformedPayload, GuardRefused (TABLE_IS_PURGED)."""
        work = self.kind.work_type.of(task)
        refuse_purged(self.tasks.reads, work, task)
        attempt = AttemptContext(self.tasks, task, hand_over_at=hand_over_at, monotonic=self.monotonic)
        attempt.write(lambda: attempt.tasks.leases.start(task.task_id, task.attempt_count))
        tables, store = self.open_table(work.identifier)
        return work, RewriteContext(
            attempt=attempt,
            identifier=work.identifier,
            table_uuid=work.table.table_uuid.lower(),
            tables=tables,
            requests=self.requests,
            store=store,
            plans=self.plans,
            first_attempt=task.details.get(FIRST_ATTEMPT, task.attempt_count),
            request=work.document(work.task_type),
            permitted=self.permissions(work),
            ended_early=lambda result: self._record(attempt, result),
            clock=self.tasks.clock,
            now=self.monotonic,
            sleep=self.sleep,
        )

    def _without_work(
        self, task: Task, work: TableRewrite, ctx: RewriteContext, plan: RewritePlan, engine: str
    ) -> Task:
        """Record the success of an attempt that rewrites nothing. A former attempt may have ended after its commits."""
        before = None if work.is_dry_run else committed_before(ctx)
        if before is not None:
            return self._runner.succeed(task, *self._outcome(plan, before))
        fields = {"engine": engine, "reported": dict(plan.details)}
        return self._runner.succeed(task, plan.summary, {LOSSES: None}, fields)

    def _outcome(self, plan: RewritePlan, result: RewriteResult) -> Outcome:
        """Return what a success writes. The figures are also details, so that the final progress line shows them."""
        reported = {"estimate": dict(plan.details), **_reported(result), "seconds": round(result.seconds, 1)}
        summary = self.kind.summary(result)
        if result.groups_put_off:
            summary += f"; {counted(result.groups_put_off, 'group')} put off until the next run"
        return summary, {**_details(result), LOSSES: None}, {"engine": SPARK, "reported": reported}

    @staticmethod
    def _record(attempt: AttemptContext, result: RewriteResult) -> None:
        """Record the commits of an attempt that an error ends. Raises LeaseLost."""
        attempt.report(details=_reported(result))
        fields = attempt.unwritten
        note = attempt.tasks.leases.note
        attempt.write(lambda: note(attempt.task_id, attempt.attempt, details=_details(result), **fields))


def _details(result: RewriteResult) -> Mapping[str, Any]:
    return {**result.figures, "groups_put_off": result.groups_put_off, RECEIPT: result.receipt}


def _reported(result: RewriteResult) -> Mapping[str, Any]:
    return {
        **result.figures,
        "groups_put_off": result.groups_put_off,
        "snapshot_ids": [str(snapshot_id) for snapshot_id in result.snapshot_ids],
        "put_off": result.put_off_documents,
        "iceberg_version": result.iceberg_version,
    }


def _ending(_task: Task, error: Exception | RunStopped) -> AttemptEnding:
    return ending_of(error, error_class, traced=False)
