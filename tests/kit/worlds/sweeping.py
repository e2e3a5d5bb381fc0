"""Removals of orphan files as tasks, with a reference index over two namespaces and tables that pyiceberg writes.

The store's objects that no test dated were written in 1970.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from delegation.removal.choice import EngineChoice
from delegation.removal.chunks import Phase
from delegation.removal.index import load_index, planned_paths
from delegation.removal.orphans.behavior import OrphansBehavior
from delegation.removal.orphans.context import OrphanContext, OrphanResult
from delegation.removal.orphans.details import OrphanDetails
from delegation.removal.orphans.place import Place
from delegation.removal.orphans.planning import InlineOrphans
from delegation.removal.orphans.requests import OrphanLimits, approve
from delegation.removal.orphans.run import OrphanRun
from delegation.removal.orphans.task_type import TASK_TYPE
from delegation.storage.memory import Faults
from delegation.tasks.life.model import Caller, Task
from delegation.wire.tables import PlanApproval
from tests.kit.lakes.lake import LakeSource, busy_table
from tests.kit.stories.orphans import SMALL
from tests.kit.worlds.indexed import IndexedWorld
from tests.kit.worlds.jobs import JobsHere
from tests.kit.worlds.service import World

AT_ONCE = {"delegation.orphan-files.first-run": "delete", "delegation.orphan-files.max-share": "1"}
"""What is found is deleted without a person."""


def removals_of(
    world: World, properties: Mapping[str, str], faults: Faults | None = None, **parts: Any
) -> OrphansBehavior:
    """Return the removals of orphan files of a world's tables."""
    return OrphansBehavior(
        tasks=world.tasks,
        open_table=lambda identifier: (LakeSource(world.lake, identifier.name, faults or Faults()), world.objects),
        plans=world.plans,
        search=world.behavior.search,
        hold=world.behavior.hold,
        limits=OrphanLimits.from_properties(properties),
        settings=SMALL,
        monotonic=world.seconds,
        sleep=world.sleep,
        **parts,
    )


class SweepingWorld(IndexedWorld):
    """The service with purges, an index and removals of orphan files."""

    def __init__(self, properties: Mapping[str, str] = AT_ONCE) -> None:
        super().__init__()
        self.faults = Faults()
        self.places: list[Place] = []

        def places(_catalogs: object, before: Any) -> list[Place]:
            before()
            return list(self.places)

        self.deploy(properties, orphans=removals_of(self, properties, self.faults, places=places))

    @property
    def orphans(self) -> OrphansBehavior:
        found = self.beside["orphans"]
        assert isinstance(found, OrphansBehavior)
        return found

    def plant(self, *names: str, days: float | None = None) -> set[str]:
        """Put objects below the location of the table `t`, written in 1970 or some days ago."""
        for name in names:
            self.lake.objects["lake", f"wh/t/{name}"] = b"orphan"
            self.objects.modified.pop(("lake", f"wh/t/{name}"), None)
            if days is not None:
                self.objects.modified["lake", f"wh/t/{name}"] = int(self.clock.now.timestamp() - days * 86_400)
        return {f"s3://lake/wh/t/{name}" for name in names}

    def removal(self, name: str = "t", **properties: str) -> dict[str, Any]:
        return self.request(TASK_TYPE, name, **{one.replace("_", "-"): value for one, value in properties.items()})

    def ask(self, name: str = "t", **properties: str) -> Task:
        """Have a request run until it ends or waits; requests come an hour apart."""
        self.clock.advance(timedelta(hours=1))
        task_id = self.submit(self.removal(name, **properties)).task_id
        self.drive()
        return self.tasks.reads.get(task_id)

    def approve(self, plan: str, *, by: str = "operator", including: tuple[str, ...] = ()) -> Task:
        """Record an operator's approval of a plan."""
        approvers, caller = self.orphans.limits.approvers, Caller(client_id=by)
        wanted = PlanApproval(plan=plan, including=including)
        task_id = plan.partition("/")[0]
        return approve(self.tasks.writes, lambda: self.plans, approvers, task_id, wanted, by=caller, is_operator=True)

    def planned(self, task: Task) -> set[str]:
        indexes = [load_index(self.plans, segment) for segment in OrphanDetails.of(task).plan_segments]
        return set(planned_paths(self.plans, indexes, (Phase.DATA,)))

    def waiting(self, task: Task) -> str:
        """Return the id of the plan that waits for approval."""
        plan = OrphanDetails.of(task).waiting_plan
        assert plan is not None, task.result_summary
        return plan.id


class RemovalsInJob(InlineOrphans):
    """The deletes of a job, in this process."""

    name: EngineChoice = "spark"


def remove_in_job(ctx: OrphanContext) -> OrphanResult:
    return OrphanRun(ctx, RemovalsInJob()).run()


class SparkRemovals(SweepingWorld):
    """The service with Spark jobs of removals, and the table `t`."""

    jobs: JobsHere

    def __init__(
        self,
        inline_max_files: int = 1,
        *,
        has_spark: bool = True,
        inline_max_listed: int = 1_000,
        properties: Mapping[str, str] = AT_ONCE,
    ) -> None:
        super().__init__(properties)
        self.jobs = JobsHere(lambda: self.orphans, remove_in_job)
        settings = replace(
            SMALL, inline_max_files=inline_max_files, inline_max_listed=inline_max_listed, has_spark=has_spark
        )
        self.deploy(orphans=replace(self.orphans, settings=settings))
        busy_table(self.lake, "t")

    def only_task(self) -> Task:
        [found] = [one for one in self.tasks.reads.store.heads().tasks if one.task_type == TASK_TYPE]
        return found
