"""Which engine deletes orphan files, and how one attempt hands them over to a Spark job."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.errors import RunHandedOver, RunPaused
from delegation.polaris.answers import PolarisForbidden
from delegation.polaris.model import LoadedTable
from delegation.removal.orphans.details import OrphanDetails
from delegation.removal.orphans.place import Place
from delegation.removal.orphans.task_type import PLAN_TASK_TYPE, TASK_TYPE
from delegation.tasks.life.model import Status
from delegation.wiring.types import TYPES
from tests.kit.lakes.lake import busy_table, rows
from tests.kit.worlds.sweeping import SparkRemovals


@pytest.fixture
def world() -> SparkRemovals:
    return SparkRemovals()


def test_the_types_name_the_folder_of_first_plans() -> None:
    assert {one.name: one.folders for one in TYPES.values() if "orphans" in one.folders} == {
        TASK_TYPE: ("orphans",),
        PLAN_TASK_TYPE: ("orphans",),
    }


def test_a_job_writes_only_to_the_folders_that_its_policy_names(world: SparkRemovals) -> None:
    """The plan is lost before the job begins, so that it lists and plans as well."""
    world.plant("data/a.parquet", "data/b.parquet")

    def lose() -> None:
        if len(world.jobs.started) == 1:
            for key in [key for key in world.plans.objects if key.endswith("index.json") or key.startswith("orphans/")]:
                del world.plans.objects[key]

    world.jobs.before = lose
    task = world.ask()
    world.later(1, times=3)
    task = world.tasks.reads.get(task.task_id)
    assert task.status is Status.SUCCESS, task.result_summary
    assert world.jobs.written
    folders = {folder for some in world.jobs.folders for folder in some}
    assert all(key.startswith(tuple(f"{folder}/" for folder in folders)) for key in world.jobs.written)


def test_a_plan_that_waits_for_a_person_starts_no_job() -> None:
    world = SparkRemovals(properties={})
    planted = world.plant("data/a.parquet", "c")
    waits = world.ask()
    assert (OrphanDetails.of(waits).waits, world.jobs.started) == ("first-run", [])
    world.approve(world.waiting(waits))
    approved = world.ask(plan=world.waiting(waits))
    assert (approved.status, approved.engine, len(world.jobs.started)) == (Status.SUCCESS, "spark", 1)
    assert not planted & world.files()


@pytest.mark.parametrize("minutes", [0, 5, 14, 16])
def test_a_table_that_takes_a_file_while_a_job_is_queued_keeps_it(world: SparkRemovals, minutes: int) -> None:
    busy_table(world.other, "far", location="s3://other/far")
    copy = take_over(world)
    others = world.plant("data/gone.parquet", "c")
    taken: list[str] = []

    def wait_and_take() -> None:
        if not taken:
            world.clock.advance(timedelta(minutes=minutes))
            world.other.table("far").add_files([copy], check_duplicate_files=False)
            taken.append(copy)

    world.jobs.before = wait_and_take
    task = world.ask()
    assert task.status is Status.SUCCESS, task.result_summary
    assert (taken, world.jobs.started != []) == ([copy], True)
    assert copy in world.files()
    assert not others & world.files()


def take_over(world: SparkRemovals) -> str:
    """Plant a file that a table can read, and return its path."""
    [source, *_] = [one for one in world.lake.below("s3://lake/wh/t/data/") if "/part=" in one]
    copy = world.plant("data/taken.parquet").pop()
    world.lake.objects["lake", "wh/t/data/taken.parquet"] = world.lake.objects[
        "lake", source.removeprefix("s3://lake/")
    ]
    return copy


@pytest.mark.parametrize("listed", [1, 1_000], ids=["compared by the job", "deleted by the job"])
def test_no_job_is_started_while_another_table_cannot_be_read(listed: int) -> None:
    world = SparkRemovals(inline_max_listed=listed)
    planted = world.plant("data/a.parquet", "c")
    world.other.create("unread", location="s3://other/unread").append(rows(1))
    world.listing.not_vended.add("unread")
    world.listing.broken["unread"] = PolarisForbidden("no", status=403)
    task = world.ask()
    world.later(1, times=3)
    assert planted <= world.files()
    assert world.jobs.started == []
    world.listing.broken.clear()
    world.listing.not_vended.clear()
    world.later(2, times=4)
    task = world.tasks.reads.get(task.task_id)
    assert (task.status, task.engine) == (Status.SUCCESS, "spark"), task.result_summary


def test_a_failed_job_is_followed_by_an_attempt_that_finishes_the_same_plan(world: SparkRemovals) -> None:
    planted = world.plant(*(f"data/{number}.parquet" for number in range(8)))

    def refuse(_bucket: str, key: str, _nth: int) -> str | None:
        return "InternalError" if len(world.jobs.started) == 1 and key.endswith("/7.parquet") else None

    world.objects._refuse = refuse
    task = world.ask()
    world.later(1, times=3)
    task = world.tasks.reads.get(task.task_id)
    assert (task.status, task.engine) == (Status.SUCCESS, "spark" if len(world.jobs.started) == 2 else "inline")
    assert task.attempt_count > 2
    assert not planted & world.files()
    details = OrphanDetails.of(task)
    assert (details.files_deleted, details.files_failed) == (details.files_planned, 0)


def test_a_policy_that_is_withdrawn_while_the_job_starts_stops_it(world: SparkRemovals) -> None:
    planted, reasons = world.plant("data/a.parquet", "c"), list[str]()

    def permissions(_orphans: object) -> Callable[[LoadedTable], str | None]:
        return lambda _table: reasons[0] if reasons else None

    world.deploy(orphans=replace(world.orphans, permissions=permissions))
    world.jobs.before = lambda: reasons.append("the policy is withdrawn")
    task = world.ask()
    assert (task.status, task.engine) == (Status.SUCCESS, "spark")
    assert task.result_summary == "stopped, because the policy is withdrawn; nothing was deleted"
    assert planted <= world.files()


@pytest.mark.parametrize("limit", [1, 1_000])
def test_a_plan_that_is_not_made_in_the_time_of_two_attempts_is_made_by_a_job(limit: int) -> None:
    world = SparkRemovals(limit)
    planted, stages = world.plant("data/a.parquet", "c"), list[bool]()

    def places(_catalogs: object, before: Callable[[], None]) -> Iterable[Place]:
        before()
        task = world.only_task()
        details = OrphanDetails.of(task)
        if details.plan_segments and not details.files_planned:  # listed, which a look at the privileges is before
            stages.append(world.jobs.running)
            if not world.jobs.running:
                raise RunHandedOver(task.task_id)
        return ()

    world.deploy(orphans=replace(world.orphans, places=places))
    task = world.ask()
    world.later(1, times=4)
    task = world.tasks.reads.get(task.task_id)
    assert task.status is Status.SUCCESS, task.result_summary
    assert stages == [False, False, True]
    assert not planted & world.files()
    assert world.lake.needed("t", named=True) <= world.files()


def test_a_paused_attempt_is_not_taken_for_one_without_time(world: SparkRemovals) -> None:
    world.plant("data/a.parquet", "c")
    times: list[int] = []

    def places(_catalogs: object, before: Callable[[], None]) -> Iterable[Place]:
        before()
        times.append(1)
        if len(times) < 4:
            raise RunPaused(world.only_task().task_id, "paused by me")
        return ()

    world.deploy(orphans=replace(world.orphans, places=places))
    task = world.ask()
    world.later(1, times=4)
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
    world = SparkRemovals(1_000, has_spark=has_spark)
    world.deploy(orphans=replace(world.orphans, settings=replace(world.orphans.settings, **limit)))
    planted = world.plant("data/a.parquet", "c")
    task = world.ask()
    world.later(1, times=4)
    task = world.tasks.reads.get(task.task_id)
    assert (task.status, task.engine) == (Status.SUCCESS, "spark" if has_spark else "inline"), task.result_summary
    assert len(world.jobs.started) == int(has_spark)
    assert not planted & world.files()
    assert world.lake.needed("t", named=True) <= world.files()


@pytest.mark.parametrize("has_spark", [True, False])
def test_where_more_is_listed_than_a_function_can_sort_a_job_plans_and_deletes(*, has_spark: bool) -> None:
    """The files to delete are few: what they are compared with is what takes the disk."""
    world = SparkRemovals(1_000, inline_max_listed=3, has_spark=has_spark)
    planted, planned = world.plant("data/a.parquet"), list[bool]()

    def places(_catalogs: object, before: Callable[[], None]) -> Iterable[Place]:
        before()
        planned.append(world.jobs.running)
        return ()

    world.deploy(orphans=replace(world.orphans, places=places))
    dry = world.ask(dry_run="true")
    assert (dry.status, dry.engine) == (Status.SUCCESS, "spark" if has_spark else "inline"), dry.result_summary
    assert ("with Spark" in str(dry.result_summary)) == has_spark
    assert planted <= world.files()
    task = world.ask()
    assert (task.status, task.engine) == (Status.SUCCESS, "spark" if has_spark else "inline"), task.result_summary
    # A look at the privileges before each listing, one for each plan, and one before the deletes.
    assert planned == [False, has_spark, False, has_spark, has_spark]
    assert not planted & world.files()
    assert world.lake.needed("t", named=True) <= world.files()
