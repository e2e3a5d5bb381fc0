"""Expiries as tasks, with a reference index over two namespaces and tables that pyiceberg writes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from delegation.removal.choice import EngineChoice
from delegation.removal.chunks import Phase
from delegation.removal.expiry.behavior import ExpiryBehavior
from delegation.removal.expiry.context import ExpiryContext, ExpiryResult
from delegation.removal.expiry.reduction import InlineExpiry
from delegation.removal.expiry.run import ExpiryRun
from delegation.removal.expiry.task_type import TASK_TYPE, ExpiryDetails
from delegation.removal.index import load_index, planned_paths
from delegation.tasks.life.model import Task
from tests.kit.lakes.commits import LakeCommits
from tests.kit.lakes.lake import LakeSource
from tests.kit.stories.expiries import SMALL
from tests.kit.worlds.indexed import IndexedWorld
from tests.kit.worlds.jobs import JobsHere
from tests.kit.worlds.service import World


def expiries_of(world: World, commits: LakeCommits, **parts: Any) -> ExpiryBehavior:
    return ExpiryBehavior(
        tasks=world.tasks,
        commits=commits,
        open_table=lambda identifier: (LakeSource(world.lake, identifier.name), world.objects),
        plans=world.plans,
        search=world.behavior.search,
        hold=world.behavior.hold,
        settings=SMALL,
        monotonic=world.seconds,
        sleep=world.sleep,
        **parts,
    )


class ExpiringWorld(IndexedWorld):
    """The service with purges, an index and expiries."""

    pause = timedelta(days=365 * 60)
    """Between requests: pyiceberg dates snapshots by the machine's clock."""

    def __init__(self) -> None:
        super().__init__()
        # pyiceberg's snapshots are as old as this test's process.
        self.commits = LakeCommits(self.lake, 4_000_000_000_000)
        self.deploy(expiry=expiries_of(self, self.commits, lost_refs=self.index))

    @property
    def expiry(self) -> ExpiryBehavior:
        found = self.beside["expiry"]
        assert isinstance(found, ExpiryBehavior)
        return found

    def expire(self, name: str, **properties: str) -> Task:
        """Have a request for an expiry run until it ends or waits."""
        self.clock.advance(self.pause)
        task_id = self.submit(self.request(TASK_TYPE, name, **{"older-than": "now", **properties})).task_id
        self.drive()
        return self.tasks.reads.get(task_id)

    def planned(self, task: Task) -> set[str]:
        indexes = [load_index(self.plans, segment) for segment in ExpiryDetails.of(task).plan_segments]
        return set(planned_paths(self.plans, indexes, (Phase.DATA, Phase.META)))


class ExpiriesInJob(InlineExpiry):
    """The deletes of a job, in this process."""

    name: EngineChoice = "spark"


def expire_in_job(ctx: ExpiryContext) -> ExpiryResult:
    return ExpiryRun(ctx, ExpiriesInJob()).run()


class SparkExpiries(ExpiringWorld):
    """The service with Spark jobs of expiries."""

    jobs: JobsHere

    def __init__(self, inline_max_files: int = 1, *, has_spark: bool = True) -> None:
        super().__init__()
        self.jobs = JobsHere(lambda: self.expiry, expire_in_job)
        settings = replace(SMALL, inline_max_files=inline_max_files, has_spark=has_spark)
        self.deploy(expiry=replace(self.expiry, settings=settings))
