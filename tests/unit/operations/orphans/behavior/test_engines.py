"""Which engine deletes orphan files, and how one attempt hands them over to a Spark job."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.errors import RunHandedOver, RunPaused
from delegation.operations.orphans.behavior.details import OrphanDetails
from delegation.operations.orphans.behavior.kinds import KIND, PLAN_KIND
from delegation.operations.orphans.context import OrphanContext, OrphanResult, OrphanSettings
from delegation.operations.orphans.engines.deletes import InlineOrphans
from delegation.operations.orphans.phases import OrphanRun
from delegation.operations.orphans.place import Place
from delegation.operations.purge.settings import PurgeSettings
from delegation.orchestration.step_input import Step
from delegation.polaris.errors import PolarisForbidden
from delegation.polaris.model import LoadedTable
from delegation.tasks.life.model import Status, Task
from delegation.wiring.types import TYPES
from delegation.worksets.engines.choice import EngineChoice
from tests.unit.operations.expiry.behavior.test_engines import NotedJobs
from tests.unit.operations.orphans.behavior.world import AT_ONCE, SweepingWorld
from tests.unit.operations.orphans.world import SMALL
from tests.unit.operations.purge.lake import busy_table, rows


class InJob(InlineOrphans):
    """The deletes of a job, in this process."""

    name: EngineChoice = "spark"


class SparkWorld(SweepingWorld):
    """The service with Spark jobs, which run in this process; `before_job` is called while the job waits to start.

    Without `has_jobs` the process that is to start the job runs the attempt inline, as a worker without Spark does.
    """

    has_jobs = True
    jobs: NotedJobs

    def __init__(
        self,
        inline_max_files: int = 1,
        *,
        has_spark: bool = True,
        inline_max_listed: int = 1_000,
        properties: Any = AT_ONCE,
    ) -> None:
        self.jobs = NotedJobs()
        super().__init__(properties)
        self.before_job: Callable[[], object] = lambda: None
        self.in_a_job = False
        self.written_by_jobs: set[str] = set()
        assert self.orphans is not None
        most = {"inline_max_files": inline_max_files, "inline_max_listed": inline_max_listed}
        settings = replace(SMALL, **most, has_spark=has_spark)
        self.orphans = replace(self.orphans, settings=settings)
        self.become(self.behavior, properties)
        busy_table(self.lake, "t")

    def become(self, behavior: Any, properties: Any = AT_ONCE) -> None:
        super().become(behavior, properties)
        self.steps._jobs = self.jobs

    def run_spark(self, step: Step) -> dict[str, Any]:
        assert self.orphans is not None
        if not self.has_jobs:
            self.orphans.run(self.tasks.reads.get(step.task_id), hand_over_at=None)
            return step.to("complete")
        answer = self.steps.start_job(step)
        assert answer["next"] == "heartbeat"
        self.before_job()
        known, self.in_a_job = dict(self.plans.objects), True
        try:
            self.orphans.run_job(self.in_job, step.task_id, step.attempt)
        finally:
            self.in_a_job = False
        self.written_by_jobs |= {key for key, data in self.plans.objects.items() if known.get(key) is not data}
        self.jobs.become(step.job, "SUCCESS")
        return step.to("complete")

    def only_task(self) -> Task:
        """Return the removal."""
        [found] = [one for one in self.tasks.reads.heads().tasks if one.task_type == KIND]
        return found

    def in_job(self, ctx: OrphanContext) -> OrphanResult:
        return OrphanRun(ctx, InJob()).run()


@pytest.fixture
def world() -> SparkWorld:
    return SparkWorld()


def test_no_limit_of_the_operator_means_that_of_purges() -> None:
    assert OrphanSettings().inline_max_files == PurgeSettings().inline_max_files


def test_the_types_name_the_folder_of_first_plans() -> None:
    assert {one.name: one.folders for one in TYPES.values() if "orphans" in one.folders} == {
        KIND: ("orphans",),
        PLAN_KIND: ("orphans",),
    }


def test_a_job_writes_only_to_the_folders_that_its_policy_names(world: SparkWorld) -> None:
    """The plan is lost before the job begins, so that it lists and plans as well."""
    world.plant("data/a.parquet", "data/b.parquet")

    def lose() -> None:
        if len(world.jobs.started) == 1:
            for key in [key for key in world.plans.objects if key.endswith("index.json") or key.startswith("orphans/")]:
                del world.plans.objects[key]

    world.before_job = lose
    task = world.ask()
    for _ in range(3):
        world.later(1)
    task = world.tasks.reads.get(task.task_id)
    assert task.status is Status.SUCCESS, task.result_summary
    assert world.written_by_jobs
    folders = {folder for some in world.jobs.folders for folder in some}
    assert all(key.startswith(tuple(f"{folder}/" for folder in folders)) for key in world.written_by_jobs)


def test_a_plan_that_waits_for_a_person_starts_no_job() -> None:
    world = SparkWorld(properties={})
    planted = world.plant("data/a.parquet", "c")
    waits = world.ask()
    assert (OrphanDetails.of(waits).waits, world.jobs.started) == ("first-run", [])
    approved = world.ask(plan=world.waiting(waits))
    assert (approved.status, approved.engine, len(world.jobs.started)) == (Status.SUCCESS, "spark", 1)
    assert not planted & world.uris()


def test_a_file_that_is_added_while_the_job_starts_stays(world: SparkWorld) -> None:
    copy = take_over(world)
    others = world.plant("data/gone.parquet", "c")
    world.before_job = lambda: world.lake.table("t").add_files([copy], check_duplicate_files=False)
    task = world.ask()
    assert (task.status, len(world.jobs.started)) == (Status.SUCCESS, 1), task.result_summary
    assert copy in world.uris()
    assert not others & world.uris()


def test_a_table_that_takes_a_file_while_a_job_is_queued_for_long_keeps_it(world: SparkWorld) -> None:
    busy_table(world.other, "far", location="s3://other/far")
    copy = take_over(world)
    others = world.plant("data/gone.parquet", "c")
    taken: list[str] = []

    def wait_and_take() -> None:
        if not taken:
            world.clock.advance(timedelta(minutes=16))
            world.other.table("far").add_files([copy], check_duplicate_files=False)
            taken.append(copy)

    world.before_job = wait_and_take
    task = world.ask()
    assert task.status is Status.SUCCESS, task.result_summary
    assert (taken, world.jobs.started != []) == ([copy], True)
    assert copy in world.uris()
    assert not others & world.uris()


def take_over(world: SparkWorld) -> str:
    """Plant a file that a table can read, and return its path."""
    [source, *_] = [one for one in world.lake.below("s3://lake/wh/t/data/") if "/part=" in one]
    copy = world.plant("data/taken.parquet").pop()
    world.lake.objects["lake", "wh/t/data/taken.parquet"] = world.lake.objects[
        "lake", source.removeprefix("s3://lake/")
    ]
    return copy


@pytest.mark.parametrize("listed", [1, 1_000], ids=["compared by the job", "deleted by the job"])
def test_no_job_is_started_while_another_table_cannot_be_read(listed: int) -> None:
    world = SparkWorld(inline_max_listed=listed)
    planted = world.plant("data/a.parquet", "c")
    world.other.create("unread", location="s3://other/unread").append(rows(1))
    world.listing.not_vended.add("unread")
    world.listing.broken["unread"] = PolarisForbidden("no", status=403)
    task = world.ask()
    for _ in range(3):
        world.later(1)
    assert planted <= world.uris()
    assert world.jobs.started == []
    world.listing.broken.clear()
    world.listing.not_vended.clear()
    for _ in range(4):
        world.later(2)
    task = world.tasks.reads.get(task.task_id)
    assert (task.status, task.engine) == (Status.SUCCESS, "spark"), task.result_summary


def test_a_failed_job_is_followed_by_an_attempt_that_finishes_the_same_plan(world: SparkWorld) -> None:
    planted = world.plant(*(f"data/{number}.parquet" for number in range(8)))

    def refuse(_bucket: str, key: str, _nth: int) -> str | None:
        return "InternalError" if len(world.jobs.started) == 1 and key.endswith("/7.parquet") else None

    world.objects._refuse = refuse
    task = world.ask()
    for _ in range(3):
        world.later(1)
    task = world.tasks.reads.get(task.task_id)
    assert (task.status, task.engine) == (Status.SUCCESS, "spark" if len(world.jobs.started) == 2 else "inline")
    assert task.attempt_count > 2
    assert not planted & world.uris()
    details = OrphanDetails.of(task)
    assert (details.files_deleted, details.files_failed) == (details.files_planned, 0)


def test_a_policy_that_is_withdrawn_while_the_job_starts_stops_it(world: SparkWorld) -> None:
    assert world.orphans is not None
    planted, reasons = world.plant("data/a.parquet", "c"), list[str]()

    def permissions(_orphans: object) -> Callable[[LoadedTable], str | None]:
        return lambda _table: reasons[0] if reasons else None

    world.orphans = replace(world.orphans, permissions=permissions)
    world.become(world.behavior, AT_ONCE)
    world.before_job = lambda: reasons.append("the policy is withdrawn")
    task = world.ask()
    assert (task.status, task.engine) == (Status.SUCCESS, "spark")
    assert task.result_summary == "stopped, because the policy is withdrawn; nothing was deleted"
    assert planted <= world.uris()


@pytest.mark.parametrize("limit", [1, 1_000])
def test_a_plan_that_is_not_made_in_the_time_of_two_attempts_is_made_by_a_job(limit: int) -> None:
    world = SparkWorld(limit)
    assert world.orphans is not None
    planted, stages = world.plant("data/a.parquet", "c"), list[bool]()

    def places(_catalogs: object, before: Callable[[], None]) -> Iterable[Place]:
        before()
        task = world.only_task()
        if not OrphanDetails.of(task).files_planned:
            stages.append(world.in_a_job)
            if not world.in_a_job:
                raise RunHandedOver(task.task_id)
        return ()

    world.orphans = replace(world.orphans, places=places)
    world.become(world.behavior, AT_ONCE)
    task = world.ask()
    for _ in range(4):
        world.later(1)
    task = world.tasks.reads.get(task.task_id)
    assert task.status is Status.SUCCESS, task.result_summary
    assert stages == [False, False, True]
    assert not planted & world.uris()
    assert world.needed() <= world.uris()


def test_a_paused_attempt_is_not_taken_for_one_without_time(world: SparkWorld) -> None:
    assert world.orphans is not None
    world.plant("data/a.parquet", "c")
    times: list[int] = []

    def places(_catalogs: object, before: Callable[[], None]) -> Iterable[Place]:
        before()
        times.append(1)
        if len(times) < 4:
            raise RunPaused(world.only_task().task_id, "paused by me")
        return ()

    world.orphans = replace(world.orphans, places=places)
    world.become(world.behavior, AT_ONCE)
    task = world.ask()
    for _ in range(4):
        world.later(1)
    task = world.tasks.reads.get(task.task_id)
    assert (task.status, OrphanDetails.of(task).unplanned) == (Status.SUCCESS, 0), task.result_summary


@pytest.mark.parametrize(
    "limit", [{"most_read_ahead_bytes": 1}, {"longest_planning_seconds": 0.0}], ids=["memory", "time"]
)
@pytest.mark.parametrize("has_spark", [True, False])
def test_what_a_function_cannot_compare_is_compared_and_deleted_by_jobs(
    limit: dict[str, Any], *, has_spark: bool
) -> None:
    """The files to delete are few: an attempt that the platform ends for its memory would be repeated as it was."""
    world = SparkWorld(1_000, has_spark=has_spark)
    assert world.orphans is not None
    world.orphans = replace(world.orphans, settings=replace(world.orphans.settings, **limit))
    world.become(world.behavior, AT_ONCE)
    planted = world.plant("data/a.parquet", "c")
    task = world.ask()
    for _ in range(4):
        world.later(1)
    task = world.tasks.reads.get(task.task_id)
    assert (task.status, task.engine) == (Status.SUCCESS, "spark" if has_spark else "inline"), task.result_summary
    assert len(world.jobs.started) == int(has_spark)
    assert not planted & world.uris()
    assert world.needed() <= world.uris()


@pytest.mark.parametrize("has_spark", [True, False])
def test_where_more_is_listed_than_a_function_can_sort_a_job_plans_and_deletes(*, has_spark: bool) -> None:
    """The files to delete are few: what they are compared with is what takes the disk."""
    world = SparkWorld(1_000, inline_max_listed=3, has_spark=has_spark)
    assert world.orphans is not None
    planted, planned = world.plant("data/a.parquet"), list[bool]()

    def places(_catalogs: object, before: Callable[[], None]) -> Iterable[Place]:
        before()
        planned.append(world.in_a_job)
        return ()

    world.orphans = replace(world.orphans, places=places)
    world.become(world.behavior, AT_ONCE)
    dry = world.ask(dry_run="true")
    assert (dry.status, dry.engine) == (Status.SUCCESS, "spark" if has_spark else "inline"), dry.result_summary
    assert ("with Spark" in str(dry.result_summary)) == has_spark
    assert planted <= world.uris()
    task = world.ask()
    assert (task.status, task.engine) == (Status.SUCCESS, "spark" if has_spark else "inline"), task.result_summary
    assert planned == [has_spark] * 3
    assert not planted & world.uris()
    assert world.needed() <= world.uris()
