"""What other tables take while the Spark job of a purge is queued, plans and deletes."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.gateway.drop.behavior import DropBehavior
from delegation.removal.choice import EngineChoice
from delegation.removal.purge.context import PurgeContext, PurgeResult
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
        self.jobs = JobsHere(lambda: self.behavior, self._purged)
        self.become(replace(self.behavior, settings=replace(self.behavior.settings, inline_max_files=1)))
        self.in_job: Callable[[PurgeContext], object] = lambda _ctx: None
        busy_table(self.other, "far", location="s3://other/far")

    def _purged(self, ctx: PurgeContext) -> PurgeResult:
        self.in_job(ctx)
        return Execution(ctx, InJob()).run()

    def take(self, minutes: int) -> str:
        """Let so many minutes pass and the far table take a data file of `t`; return its path."""
        self.clock.advance(timedelta(minutes=minutes))
        taken = min(uri for uri in self.lake.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))
        self.other.table("far").add_files([taken], check_duplicate_files=False)
        return taken


@pytest.fixture
def world() -> SparkPurges:
    return filled(SparkPurges(), "t")


def once(world: SparkPurges, minutes: int, taken: list[str]) -> Callable[[], None]:
    return lambda: None if taken else taken.append(world.take(minutes))


@pytest.mark.parametrize("minutes", [0, 5, 14, 55, 61])
def test_a_table_that_takes_a_file_while_the_job_is_queued_keeps_it(world: SparkPurges, minutes: int) -> None:
    taken: list[str] = []
    world.jobs.before = once(world, minutes, taken)
    task: Task = world.purge("t")
    assert (task.status, task.engine, len(taken)) == (Status.SUCCESS, "spark", 1), task.result_summary
    assert world.readable("far")
    assert {uri for uri in world.files() if uri.startswith("s3://lake/wh/t/")} == set(taken)


def test_a_table_that_takes_a_file_while_the_job_of_a_drop_is_queued_keeps_it(
    world: SparkPurges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tombstone's record apart, which the job of a drop reads and writes."""
    monkeypatch.setattr(DropBehavior, "_begun", lambda _self, _task: pending())
    monkeypatch.setattr(DropBehavior, "_dropping", lambda _self, engine, _record: engine)
    no_tombstones: Any = None
    world.jobs.behavior = lambda: DropBehavior(world.behavior, no_tombstones)
    taken: list[str] = []
    world.jobs.before = once(world, 14, taken)
    task: Task = world.purge("t")
    assert (task.status, task.engine, len(taken)) == (Status.SUCCESS, "spark", 1), task.result_summary
    assert world.readable("far")
    assert {uri for uri in world.files() if uri.startswith("s3://lake/wh/t/")} == set(taken)


def test_a_dry_run_in_a_job_waits_for_no_other_pass(world: SparkPurges) -> None:
    passes: list[int] = []
    world.jobs.before = lambda: passes.append(world.index.pass_of("cat").number)
    task = world.purge("t", **{"dry-run": "true"})
    assert (task.status, task.engine) == (Status.SUCCESS, "spark"), task.result_summary
    assert passes == [world.index.pass_of("cat").number]
