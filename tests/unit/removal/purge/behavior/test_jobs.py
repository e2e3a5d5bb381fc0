"""What other tables take while the Spark job of a purge is queued, plans and deletes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.gateway.drop.behavior import DropBehavior
from delegation.removal.choice import EngineChoice
from delegation.removal.purge.planning import InlineEngine
from delegation.removal.purge.run import Execution
from delegation.tasks.life.model import Status, Task
from delegation.testing.tombstones import pending
from tests.kit.lakes.lake import busy_table, filled
from tests.kit.worlds.indexed import IndexedWorld
from tests.kit.worlds.jobs import JobsHere


class InJob(InlineEngine):
    """The engine of a job, in this process."""

    name: EngineChoice = "spark"


class SparkPurges(IndexedWorld):
    """The service with Spark jobs of purges, the table `t`, and one far away."""

    jobs: JobsHere

    def __init__(self) -> None:
        super().__init__()
        self.jobs = JobsHere(lambda: self.behavior, lambda ctx: Execution(ctx, InJob()).run())
        self.become(replace(self.behavior, settings=replace(self.behavior.settings, inline_max_files=1)))
        busy_table(self.other, "far", location="s3://other/far")


@pytest.fixture
def world() -> SparkPurges:
    return filled(SparkPurges(), "t")


@pytest.mark.parametrize(
    ("operation", "minutes"), [("purge", 0), ("purge", 5), ("purge", 14), ("purge", 55), ("purge", 61), ("drop", 14)]
)
def test_a_table_that_takes_a_file_while_the_job_is_queued_keeps_it(
    world: SparkPurges, operation: str, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tombstone's record apart, which the job of a drop reads and writes."""
    if operation == "drop":
        monkeypatch.setattr(DropBehavior, "_begun", lambda _self, _task: pending())
        monkeypatch.setattr(DropBehavior, "_dropping", lambda _self, engine, _record: engine)
        no_tombstones: Any = None
        world.jobs.behavior = lambda: DropBehavior(world.behavior, no_tombstones)
    taken: list[str] = []

    def take() -> None:
        if not taken:
            world.clock.advance(timedelta(minutes=minutes))
            taken.extend(world.take("far"))

    world.jobs.before = take
    task: Task = world.purge("t")
    assert (task.status, task.engine, len(taken)) == (Status.SUCCESS, "spark", 1), task.result_summary
    assert world.readable("far")
    assert world.lake.below("s3://lake/wh/t/") == set(taken)


def test_a_dry_run_in_a_job_waits_for_no_other_pass(world: SparkPurges) -> None:
    passes: list[int] = []
    world.jobs.before = lambda: passes.append(world.index.pass_of("cat").number)
    task = world.purge("t", **{"dry-run": "true"})
    assert (task.status, task.engine) == (Status.SUCCESS, "spark"), task.result_summary
    assert passes == [world.index.pass_of("cat").number]
