"""Which engine deletes the files of an expiry, and how one attempt hands them over to a Spark job."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from delegation.removal.behaviors import engine_of, spark_above
from delegation.removal.choice import HandedToSpark
from delegation.removal.expiry.context import ExpirySettings
from delegation.removal.expiry.run import ExpiryRun
from delegation.removal.expiry.task_type import TASK_TYPE, ExpiryDetails
from delegation.storage.memory import Killed
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.transitions import HANDED_OVER
from delegation.wiring.types import TYPES
from tests.kit.lakes.lake import busy_table, rows
from tests.kit.tasks.builders import submitted
from tests.kit.worlds.expiring import ExpiriesInJob, SparkExpiries
from tests.unit.removal.expiry.test_orders import COMPARE_REFS, Story
from tests.unit.removal.purge.behavior.test_unreadable_tables import continued

SETTINGS = ExpirySettings(inline_max_files=100)


@pytest.fixture
def world() -> SparkExpiries:
    return with_table(SparkExpiries())


def with_table(world: SparkExpiries) -> SparkExpiries:
    busy_table(world.lake, "t")
    world.lake.table("t").overwrite(rows(9))
    return world


def task_with(attempt: int = 1, error: str | None = None, **details: Any) -> Task:
    return submitted(task_type=TASK_TYPE, attempt_count=attempt, error_code=error, details=details)


PLANNED = {"plan_segments": [{"id": "task/1/n", "sha256": "0"}]}


@pytest.mark.parametrize(
    ("task", "engine", "above"),
    [
        (task_with(), "inline", 100),
        (task_with(2, "HTTP_503"), "inline", 100),
        (task_with(2, HANDED_OVER, **PLANNED), "inline", 100),
        (task_with(2, HANDED_OVER, **PLANNED, next_engine="spark"), "spark", None),
        (task_with(3, HANDED_OVER, **PLANNED, next_engine="spark"), "spark", None),
        (task_with(2, HANDED_OVER), "inline", 100),
        (task_with(3, HANDED_OVER), "spark", None),
        (task_with(3, "REFERENCES_NOT_KNOWN"), "inline", 100),
        (task_with(3, HANDED_OVER, **PLANNED), "inline", 0),
    ],
    ids=[
        "the first attempt",
        "after an error",
        "out of time once",
        "handed over",
        "handed over by a later attempt",
        "no plan once",
        "no plan twice",
        "waited for references",
        "out of time twice",
    ],
)
def test_the_engine_is_chosen_by_the_attempts_before(task: Task, engine: str, above: int | None) -> None:
    assert (engine_of(task, SETTINGS), spark_above(task, SETTINGS)) == (engine, above)
    alone = replace(SETTINGS, has_spark=False)
    assert (engine_of(task, alone), spark_above(task, alone)) == ("inline", None)


@pytest.mark.parametrize(("files", "engine"), [(0, "inline"), (100, "inline"), (101, "spark")])
def test_the_limit_itself_is_inline(files: int, engine: str) -> None:
    assert SETTINGS.engine_for(files) == engine
    assert replace(SETTINGS, has_spark=False).engine_for(files) == "inline"


def test_no_limit_of_the_operator_means_that_of_purges() -> None:
    from delegation.removal.purge.requests import PurgeSettings

    for name in ("inline_max_files", "longest_planning_seconds", "most_read_ahead_bytes", "read_seconds"):
        assert getattr(ExpirySettings(), name) == getattr(PurgeSettings(), name)


def test_a_plan_above_the_limit_is_committed_inline_before_its_job_begins(world: SparkExpiries) -> None:
    ids = {one.snapshot_id for one in world.lake.table("t").snapshots()}
    seen: list[int] = []
    world.jobs.before = lambda: seen.append(world.commits.made)
    task = world.expire("t")
    assert (task.status, seen, world.commits.made) == (Status.SUCCESS, [1], 1), task.result_summary
    assert ExpiryDetails.of(task).snapshots_expired == len(ids) - len(world.lake.table("t").snapshots())


TOO_LARGE = [{"most_read_ahead_bytes": 1}, {"longest_planning_seconds": 0.0}]


@pytest.mark.parametrize("limit", TOO_LARGE, ids=["memory", "time"])
@pytest.mark.parametrize("has_spark", [True, False])
def test_what_a_function_cannot_plan_is_planned_compared_and_deleted_by_jobs(
    limit: dict[str, Any], *, has_spark: bool
) -> None:
    """The files to delete are few: an attempt that the platform ends for its memory would be repeated as it was."""
    world = with_table(SparkExpiries(1_000, has_spark=has_spark))
    world.deploy(expiry=replace(world.expiry, settings=replace(world.expiry.settings, **limit)))
    seen: list[tuple[int, bool]] = []
    world.jobs.before = lambda: seen.append((world.commits.made, bool(before - world.files())))
    before = world.files()
    dry = world.expire("t", **{"dry-run": "true"})
    assert dry.status is Status.SUCCESS, dry.result_summary
    assert (dry.engine, "with Spark" in str(dry.result_summary)) == (
        ("spark", True) if has_spark else ("inline", False)
    )
    assert before == world.files()

    task = world.expire("t")
    world.later(1, times=4)
    task = world.tasks.reads.get(task.task_id)

    assert (task.status, task.engine) == (Status.SUCCESS, "spark" if has_spark else "inline"), task.result_summary
    assert seen == ([(0, False), (0, False)] if has_spark else [])
    assert (world.commits.made, bool(before - world.files())) == (1, True)
    assert world.lake.needed("t") <= world.files()


def test_the_plan_of_a_job_that_waits_for_the_references_is_deleted_by_a_job_however_small_it_is() -> None:
    story = Story()
    ctx = replace(story.world.context(story.table), spark_above=1_000)
    story.world.catalogs[-1].before[COMPARE_REFS] = lambda: kill("load")
    with pytest.raises(Killed):
        ExpiryRun(replace(ctx, spark_above=None), ExpiriesInJob()).run()
    before = story.lake.uris()

    with pytest.raises(HandedToSpark):
        ExpiryRun(replace(story.world.context(story.table), spark_above=1_000)).run()

    assert (before - story.lake.uris(), story.world.commits()) == (set(), 1)
    assert ExpiryRun(story.world.context(story.table), ExpiriesInJob()).run().status == "EXPIRED"
    assert before - story.lake.uris()


def kill(call: str) -> None:
    raise Killed(call)


def test_a_file_that_is_added_again_while_the_job_starts_stays(world: SparkExpiries) -> None:
    again: list[str] = []

    def add() -> None:
        [(name, _)] = world.jobs.started
        planned = world.planned(world.tasks.reads.get(name.rpartition("-")[0]))
        again.append(min(one for one in planned if one.endswith(".parquet")))
        world.lake.table("t").add_files(again)

    world.jobs.before = add
    task = world.expire("t")

    assert again
    assert (task.status, len(world.jobs.started)) == (Status.SUCCESS, 1)
    assert set(again) <= world.files()
    assert "STILL_REACHABLE" in [finding.code for finding in ExpiryDetails.of(task).findings]
    assert world.lake.needed("t") <= world.files()


@pytest.mark.parametrize("minutes", [0, 5, 14, 16])
def test_a_clone_that_is_registered_while_a_job_is_queued_keeps_its_files(world: SparkExpiries, minutes: int) -> None:
    former, held = world.lake.pointers["t"], set[str]()

    def wait_and_clone() -> None:
        if not held:
            world.clock.advance(timedelta(minutes=minutes))
            world.other.pointers["clone"] = former
            held.update(world.other.needed("clone"))

    world.jobs.before = wait_and_clone
    task = world.expire("t")
    assert task.status is Status.SUCCESS, task.result_summary
    assert held
    assert held <= world.files()


def retried_while_unreadable(world: SparkExpiries) -> Task:
    """Return the expiry of a table after three attempts that another one held back, none of which started a job."""
    task, held = world.expire("t"), set[int]()
    for _ in range(12):
        world.later(1)
        task = world.tasks.reads.get(task.task_id)
        held |= {task.attempt_count} if task.error_code == "NEIGHBOUR_UNREADABLE" else set()
    assert len(held) >= 3
    assert world.jobs.started == []
    return task


def test_no_job_is_started_while_the_manifest_list_of_another_table_is_damaged(world: SparkExpiries) -> None:
    path = list_inside(world)
    whole = world.lake.objects[path]
    world.lake.objects[path] = b"damaged"
    before = world.files()

    task = retried_while_unreadable(world)
    assert before - world.files() == set()

    world.lake.objects[path] = whole
    world.later(1, times=4)
    task = world.tasks.reads.get(task.task_id)
    assert (task.status, task.engine) == (Status.SUCCESS, "spark"), task.result_summary
    assert world.other.needed("inside") <= world.files()
    assert before - world.files()


def test_a_clone_that_is_registered_while_reads_of_another_table_fail_keeps_its_files(world: SparkExpiries) -> None:
    """A manifest list is absent for twenty minutes, after the pass over the references that the expiry asked for."""
    former, path, whole = world.lake.pointers["t"], list_inside(world), dict(world.lake.objects)
    absent, held = list[datetime](), set[str]()

    def change() -> None:
        if not absent and world.commits.made and world.listing.asked["listings"] > 2:
            world.lake.objects.pop(path)
            absent.append(world.clock())
        elif absent and not held and world.clock() > absent[0]:
            world.other.pointers["clone"] = former
            held.update(world.other.needed("clone") & world.files())
        elif absent and world.clock() >= absent[0] + timedelta(minutes=20):
            world.lake.objects[path] = whole[path]

    world.listing.each_load = change
    task = world.expire("t")
    assert task.error_code == "NEIGHBOUR_UNREADABLE"
    world.clock.advance(timedelta(hours=2))
    task = continued(world, task)
    assert (task.status, task.engine) == (Status.SUCCESS, "spark"), task.result_summary
    assert held
    assert held <= world.files()


def list_inside(world: SparkExpiries) -> tuple[str, str]:
    """Create a table inside the location of `t`, and return where its manifest list is."""
    inside = world.other.create("inside", location=f"{world.lake.table('t').location()}/inside")
    inside.append(rows(1))
    snapshot = world.other.table("inside").current_snapshot()
    assert snapshot is not None
    bucket, _, key = snapshot.manifest_list.removeprefix("s3://").partition("/")
    return bucket, key


def test_the_types_of_expiries_name_the_folder_of_lost_refs() -> None:
    assert {one.name: one.folders for one in TYPES.values() if "lost-refs" in one.folders} == {
        TASK_TYPE: ("lost-refs",)
    }
