"""Every operation of upkeep hands what is too much for a function over to one Spark job, and by the same rules."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from delegation.references.errors import ReferencesNotKnown
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.model import Status
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from tests.contract.upkeep.worlds import Expiry, Removal, Upkeep

Make = Callable[..., Upkeep]


@pytest.fixture(params=[Expiry, Removal], ids=["expiry", "removal"])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


@pytest.fixture
def world(make: Make) -> Upkeep:
    return make()


def test_a_plan_above_the_limit_is_made_inline_and_deleted_by_a_job(world: Upkeep) -> None:
    before, gone = world.files(), list[set[str]]()
    world.jobs.before = lambda: gone.append(before - world.files())

    task = world.perform()

    assert (task.status, task.engine) == (Status.SUCCESS, "spark"), task.result_summary
    [(name, arguments)] = world.jobs.started
    assert name == f"{task.task_id}-{task.attempt_count}"
    assert arguments == ["--task-id", task.task_id, "--attempt", str(task.attempt_count)]
    assert world.jobs.folders == [(task.task_id, f"results/{task.task_id}", world.folder)]
    assert gone == [set()]
    details = world.details.of(task)
    assert details.files_deleted == len(before - world.files()) > 1
    assert world.doomed <= before - world.files() == world.planned(task)
    assert details.next_engine is None
    assert world.kept() <= world.files()
    receipt = world.receipt(task)
    found = (receipt["status"], receipt["engine"], receipt["files_deleted"])
    assert found == (world.done, "spark", details.files_deleted)


@pytest.mark.parametrize("limit", ["the files planned", "one less", "no Spark"])
def test_a_plan_up_to_the_limit_needs_no_job(make: Make, limit: str) -> None:
    dry = make()
    planned = dry.details.of(dry.perform(**{"dry-run": "true"})).files_planned
    assert planned
    most = {"the files planned": planned, "one less": planned - 1, "no Spark": 0}[limit]
    world = make(most, has_spark=limit != "no Spark")
    task = world.perform()
    assert task.status is Status.SUCCESS
    assert (len(world.jobs.started), task.engine) == ((1, "spark") if limit == "one less" else (0, "inline"))


def test_a_dry_run_says_that_spark_would_delete_and_its_plan_is_approved_for_a_job(make: Make, world: Upkeep) -> None:
    before = world.files()
    dry = world.perform(**{"dry-run": "true"})
    assert (dry.task_type, dry.engine, world.jobs.started) == (world.plan_task_type, "inline", [])
    assert "with Spark" in str(dry.result_summary)
    assert world.files() == before
    [segment] = world.details.of(dry).plan_segments
    task = world.perform(plan=segment.id)
    assert (task.status, task.engine) == (Status.SUCCESS, "spark")
    assert segment.id.partition("/")[0] in world.jobs.folders[0]
    assert before - world.files()
    assert "Spark" not in str(make(1_000).perform(**{"dry-run": "true"}).result_summary)


def test_a_process_without_spark_deletes_inline_what_was_handed_over(world: Upkeep) -> None:
    world.jobs.available = False
    before = world.files()
    task = world.perform()
    assert (task.status, task.engine, task.attempt_count) == (Status.SUCCESS, "inline", world.attempts_inline)
    assert before - world.files() == world.planned(task)


class Awaited:
    """An index whose passes another process makes: `known` is called first when an attempt needs one."""

    def __init__(self, check: Any, known: Callable[[], None]) -> None:
        self._check = check
        self._known = known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._check, name)

    def ensure_known(self) -> None:
        self._known()
        self._check.ensure_known()


def awaiting(world: Upkeep, known: Callable[[], None], **changes: Any) -> None:
    search = world.upkeep.search

    def searched(*which: Any) -> tuple[Any, Any]:
        neighbours, check = search(*which)
        return neighbours, Awaited(check, known)

    world.become_with(search=searched, **changes)


def test_no_job_is_started_before_the_references_are_known(world: Upkeep) -> None:
    """Another process makes the pass, so that a job could only wait for it."""
    looks = list[bool]()

    def known() -> None:
        if world.jobs.started:
            return
        looks.append(len(looks) == 2)
        if not looks[-1]:
            raise ReferencesNotKnown("cat", 1, 2)

    awaiting(world, known)
    task = world.perform()
    assert (task.status, task.engine, looks) == (Status.SUCCESS, "spark", [False, False, True])
    assert len(world.jobs.started) == 1


def test_where_every_job_begins_late_the_first_one_deletes(world: Upkeep) -> None:
    """Each is queued for 40 minutes, and when it begins another process has the pass over the catalog."""
    looked, slept = list[int](), list[float]()
    world.jobs.before = lambda: world.clock.advance(timedelta(minutes=40))

    def known() -> None:
        jobs = len(world.jobs.started)
        if jobs:
            looked.append(jobs)
        if jobs and looked.count(jobs) < 4:
            raise ReferencesNotKnown("cat", looked.count(jobs), 9)

    awaiting(world, known, sleep=slept.append)
    task = world.perform()
    for _ in range(3):
        world.later(2)
    task = world.tasks.reads.get(task.task_id)
    assert (task.status, task.engine) == (Status.SUCCESS, "spark"), task.result_summary
    assert len(world.jobs.started) == 1
    assert slept.count(5) == 3


def test_a_job_of_a_former_attempt_does_nothing(world: Upkeep) -> None:
    ran, before = list[Any](), world.files()

    def lose() -> None:
        [(name, _)] = world.jobs.started
        task_id, _, attempt = name.rpartition("-")
        error = AttemptError("JOB_FAILED", "killed", ErrorClass.PERMANENT)
        holder = world.tasks.reads.get(task_id)
        world.tasks.holding(holder).leases.end_attempt(task_id, int(attempt), error)
        with pytest.raises(LeaseLost):
            world.upkeep.run_job(ran.append, task_id, int(attempt))  # type: ignore[arg-type]
        raise LookupError

    world.jobs.before = lose
    with pytest.raises(LookupError):
        world.perform()
    assert ran == []
    assert before <= world.files()
