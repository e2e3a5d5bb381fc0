"""Rewrites of tables that pyiceberg wrote, from a request to the decision: an estimate, a job, or nothing to do."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from delegation.rewrites.behavior import RewriteBehavior, RewriteJob
from delegation.rewrites.context import DataFilesRewrite, ManifestsRewrite, RewriteResult
from delegation.rewrites.kinds import Compactions, ManifestsRewrites
from delegation.rewrites.task_type import COMPACTION_TASK_TYPE, MANIFESTS_TASK_TYPE
from delegation.tasks.life.model import Status, Task
from tests.kit.lakes.lake import rows
from tests.kit.worlds.rewriting import RewritingWorld


@pytest.fixture
def world() -> RewritingWorld:
    """The service with a table of eight small files in one partition, each of its own manifest."""
    world = RewritingWorld()
    table = world.lake.create("orders")
    for number in range(8):
        table.append(rows(number))
    # pyiceberg dates snapshots by the machine's clock.
    world.clock.now = datetime.now(UTC) + timedelta(days=1)
    manifests = replace(world.compaction, kind=ManifestsRewrites())
    world.deploy(compaction=replace(world.compaction, kind=Compactions()), manifests=manifests)
    return world


def ended(world: RewritingWorld, operation: str, **properties: str) -> Task:
    task_id = world.submit(world.request(operation, "orders", **properties)).task_id
    world.drive()
    return world.tasks.reads.get(task_id)


def done(job: RewriteJob) -> RewriteResult:
    return RewriteResult(
        status="REWRITTEN",
        identifier=job.ctx.identifier,
        table_uuid=job.ctx.table_uuid,
        snapshot_ids=(7,),
        files_rewritten=8,
        files_added=1,
        bytes_rewritten=800,
        bytes_added=300,
        manifests_before=8,
        manifests_after=1,
    )


def test_a_dry_run_of_a_compaction_has_the_estimate(world: RewritingWorld) -> None:
    task = ended(world, COMPACTION_TASK_TYPE, **{"dry-run": "true"})
    assert task.status is Status.SUCCESS, task.result_summary
    assert "8 files become 1" in (task.result_summary or "")
    shown = task.public()["details"]
    assert (shown["files"], shown["files_after"], shown["groups"], shown["currency"]) == (8, 1, 1, "USD")
    assert shown["bytes_read"] == shown["bytes_held_twice"] > 0
    assert shown["vcpu_hours"] > 0


def test_a_compaction_gives_its_job_what_the_request_states(world: RewritingWorld) -> None:
    jobs: list[RewriteJob] = []
    world.rewrite = lambda job: (jobs.append(job), done(job))[1]
    task = ended(world, COMPACTION_TASK_TYPE, **{"min-input-files": "2", "filter": "id > 3"})
    assert (task.status, task.engine) == (Status.SUCCESS, "spark")
    assert task.result_summary == "rewrote 8 files, 800 bytes, into 1, 300 bytes; applied 0 deletes"
    [rewrite] = jobs[0].plan.rewrites
    assert isinstance(rewrite, DataFilesRewrite)
    assert (rewrite.options["min-input-files"], rewrite.where) == ("2", "id > 3")
    assert task.public()["details"]["estimate"]["files"] == 4, "those with an id above 3"


@pytest.mark.parametrize("operation", [COMPACTION_TASK_TYPE, MANIFESTS_TASK_TYPE])
def test_a_policy_that_was_detached_meanwhile_starts_no_job(world: RewritingWorld, operation: str) -> None:
    for name, behavior in list(world.beside.items()):
        assert isinstance(behavior, RewriteBehavior)
        world.deploy(**{name: replace(behavior, permissions=lambda _work: lambda _table: "the policy a is off")})
    task = ended(world, operation)
    assert (task.status, task.engine, world.jobs.started) == (Status.SUCCESS, "inline", [])
    assert task.result_summary == "stopped, because the policy a is off; nothing was rewritten"
    assert task.details["findings"] == [{"code": "POLICY_WITHDRAWN", "count": 1}]


def test_a_partition_with_a_new_commit_is_left(world: RewritingWorld) -> None:
    task = ended(world, COMPACTION_TASK_TYPE, **{"cold-after": "2d"})
    assert (task.status, world.jobs.started) == (Status.SUCCESS, [])
    assert task.result_summary == "nothing needs to be rewritten (1 skipped: newest commit younger than cold-after)"


def test_a_partition_is_not_planned_again_after_a_commit_of_another_writer(world: RewritingWorld) -> None:
    planned: list[int] = []

    def rewrite(job: RewriteJob) -> RewriteResult:
        began, world.clock.now = world.clock.now, datetime.now(UTC) + timedelta(hours=2)
        planned.append(len(job.planned_again()))
        world.lake.table("orders").append(rows(9))
        world.clock.now = datetime.now(UTC) + timedelta(minutes=30)
        planned.append(len(job.planned_again()))
        world.clock.now = began
        return done(job)

    world.rewrite = rewrite
    assert ended(world, COMPACTION_TASK_TYPE).status is Status.SUCCESS
    assert planned == [1, 0]


def test_manifests_are_rewritten_by_a_task_of_their_own(world: RewritingWorld) -> None:
    jobs: list[RewriteJob] = []
    world.jobs.behavior = lambda: world.beside["manifests"]  # type: ignore[assignment,return-value]
    world.rewrite = lambda job: (jobs.append(job), done(job))[1]
    dry = ended(world, MANIFESTS_TASK_TYPE, **{"dry-run": "true"})
    assert "8 manifests become 1" in (dry.result_summary or "")
    task = ended(world, MANIFESTS_TASK_TYPE)
    assert (task.status, task.result_summary) == (Status.SUCCESS, "rewrote 8 manifests into 1")
    assert jobs[0].plan.rewrites == (ManifestsRewrite(spec_id=0),)
    assert (task.details["manifests_before"], task.details["manifests_after"]) == (8, 1)
