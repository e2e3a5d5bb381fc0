"""Rewrites as tasks: a kind whose decision a test sets, and Spark jobs in the process of the test."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from delegation.polaris.requests import CatalogRequests
from delegation.removal.choice import RemovalSettings
from delegation.rewrites.behavior import RewriteBehavior, RewriteJob, RewritePlan
from delegation.rewrites.context import DataFilesRewrite, RewriteContext, RewriteResult
from delegation.rewrites.requests import TableCompaction, TableRewrite
from delegation.rewrites.task_type import COMPACTION_TASK_TYPE
from delegation.tasks.life.model import Task
from tests.kit.lakes.lake import LakeSource
from tests.kit.worlds.jobs import JobsHere
from tests.kit.worlds.service import World

NOTHING = RewritePlan(rewrites=(), summary="nothing to rewrite", details={"groups": 0})
SOMETHING = RewritePlan(
    rewrites=(DataFilesRewrite(),), summary="20 files become 2", details={"files": 20, "files_after": 2}
)


@dataclass
class SetKind:
    """A kind of rewrite that decides what the test sets; `first_attempts` are those of the contexts that it got."""

    plan_now: RewritePlan = SOMETHING
    work_type: type[TableRewrite] = TableCompaction
    first_attempts: list[int] = field(default_factory=list)

    def plan(self, ctx: RewriteContext, work: TableRewrite) -> RewritePlan:
        ctx.load_table()
        self.first_attempts.append(ctx.first_attempt)
        return self.plan_now

    def summary(self, result: RewriteResult) -> str:
        return f"rewrote {result.files_rewritten} files"


class RewritingWorld(World):
    """The service with compactions and Spark jobs; `rewrite` does the work of a job."""

    jobs: JobsHere

    def __init__(self, *, has_spark: bool = True) -> None:
        super().__init__()
        self.kind = SetKind()
        self.rewrite: Callable[[RewriteJob], RewriteResult] = lambda job: RewriteResult(
            status="REWRITTEN", identifier=job.ctx.identifier, table_uuid=job.ctx.table_uuid, engine="spark"
        )
        self.jobs = JobsHere(lambda: self.compaction, self._rewrite_now)
        self.deploy(compaction=self._behavior(RemovalSettings(has_spark=has_spark)))

    @property
    def compaction(self) -> RewriteBehavior:
        behavior = self.beside["compaction"]
        assert isinstance(behavior, RewriteBehavior)
        return behavior

    def _rewrite_now(self, job: RewriteJob) -> RewriteResult:
        return self.rewrite(job)

    def compact(self, name: str = "orders", **properties: str) -> Task:
        """Have a request for a compaction run until it ends or waits."""
        task_id = self.submit(self.request(COMPACTION_TASK_TYPE, name, **properties)).task_id
        self.drive()
        return self.tasks.reads.get(task_id)

    def without_spark(self) -> None:
        self.deploy(compaction=replace(self.compaction, settings=RemovalSettings(has_spark=False)))

    def _behavior(self, settings: RemovalSettings) -> RewriteBehavior:
        no_requests: Any = None
        return RewriteBehavior(
            tasks=self.tasks,
            kind=self.kind,
            requests=cast("CatalogRequests", no_requests),
            open_table=lambda identifier: (LakeSource(self.lake, identifier.name), self.objects),
            plans=self.plans,
            settings=settings,
            monotonic=self.seconds,
            sleep=self.sleep,
        )
