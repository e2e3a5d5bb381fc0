"""An attempt at a rewrite: what it decides in this process, how it hands over to Spark, and what its end records."""

import json
from datetime import timedelta
from typing import Any

import pytest

from delegation.errors import GuardRefused, RunCancelled
from delegation.removal.behaviors import KILLED_TWICE, prepared_engine
from delegation.removal.choice import RemovalSettings
from delegation.removal.errors import EngineFailed
from delegation.rewrites.behavior import RewriteJob
from delegation.rewrites.commits import ATTEMPT, TASK_ID
from delegation.rewrites.context import PutOff, RewriteResult
from delegation.rewrites.errors import RewriteWithdrawn
from delegation.rewrites.task_type import COMPACTION_PLAN_TASK_TYPE, COMPACTION_TASK_TYPE
from delegation.tasks.life.model import KilledAttempts, Status
from delegation.tasks.life.policy import Lease
from delegation.wiring.types import TYPES
from tests.kit.lakes.lake import filled, rows
from tests.kit.worlds.rewriting import NOTHING, SOMETHING, RewritingWorld


@pytest.fixture
def world() -> RewritingWorld:
    return filled(RewritingWorld(), "orders")


def rewritten(job: RewriteJob, **figures: Any) -> RewriteResult:
    return RewriteResult(
        status="REWRITTEN",
        identifier=job.ctx.identifier,
        table_uuid=job.ctx.table_uuid,
        snapshot_ids=(7, 9_223_372_036_854_775_807),
        files_rewritten=20,
        files_added=2,
        bytes_rewritten=2_000,
        bytes_added=1_900,
        deletes_folded=3,
        groups_done=2,
        iceberg_version="1.12.0",
        receipt=f"{job.ctx.attempt.task_id}/receipt.json",
        **figures,
    )


def test_a_dry_run_states_its_estimate_and_starts_no_job(world: RewritingWorld) -> None:
    task = world.compact(**{"dry-run": "true"})
    assert (task.task_type, task.status, task.engine) == (COMPACTION_PLAN_TASK_TYPE, Status.SUCCESS, "inline")
    assert task.result_summary == SOMETHING.summary
    assert task.public()["details"] == {"files": 20, "files_after": 2}
    assert world.jobs.started == []


def test_nothing_to_rewrite_wakes_no_session(world: RewritingWorld) -> None:
    world.kind.plan_now = NOTHING
    task = world.compact()
    assert (task.status, task.result_summary, task.engine) == (Status.SUCCESS, NOTHING.summary, "inline")
    assert world.jobs.started == []


def test_a_job_rewrites_and_its_task_ends_with_the_figures(world: RewritingWorld) -> None:
    world.rewrite = lambda job: rewritten(job, put_off=(PutOff(groups=1, reason="changed", is_conflict=True),))
    task = world.compact()
    assert (task.status, task.engine, task.attempt_count) == (Status.SUCCESS, "spark", 2)
    assert "1 group put off" in str(task.result_summary)
    shown = task.public()
    assert (shown["files_rewritten"], shown["groups_put_off"]) == (20, 1)
    figures = {
        "files_rewritten": 20,
        "files_added": 2,
        "bytes_rewritten": 2_000,
        "bytes_added": 1_900,
        "deletes_folded": 3,
        "manifests_before": 0,
        "manifests_after": 0,
        "groups_done": 2,
        "groups_put_off": 1,
    }
    assert shown["details"].items() >= figures.items()
    assert shown["details"]["snapshot_ids"] == ["7", "9223372036854775807"]
    assert shown["details"]["put_off"] == [{"groups": 1, "reason": "changed", "is_conflict": True}]
    assert shown["details"]["estimate"] == {"files": 20, "files_after": 2}
    assert TYPES.of(task).receipt_key(task) == f"{task.task_id}/receipt.json"
    assert task.unexcused_attempts == 1


def test_an_attempt_begins_inline_whose_record_cannot_be_read(world: RewritingWorld) -> None:
    task = world.compact()
    settings = RemovalSettings(has_spark=True)
    assert prepared_engine(task.with_details({"next_engine": "spark"}), settings) == "spark"
    assert prepared_engine(task.with_details({"next_engine": 5}), settings) == "inline"


def test_the_job_decides_again_by_the_table_as_it_is_then(world: RewritingWorld) -> None:
    def compacted_meanwhile() -> None:
        world.kind.plan_now = NOTHING

    world.jobs.before = compacted_meanwhile
    world.rewrite = lambda _job: pytest.fail("there was nothing to rewrite")
    task = world.compact()
    assert (task.status, task.result_summary, task.engine) == (Status.SUCCESS, NOTHING.summary, "spark")


def test_a_run_that_follows_another_has_none_of_its_figures(world: RewritingWorld) -> None:
    world.rewrite = rewritten
    first = world.compact()
    world.kind.plan_now = NOTHING
    second = world.compact()
    assert second.task_id == first.task_id
    assert (second.result_summary, second.engine) == (NOTHING.summary, "inline")
    assert "files_rewritten" not in second.details
    assert "receipt" not in second.details


def test_after_a_failure_in_spark_another_attempt_decides_inline(world: RewritingWorld) -> None:
    def fails(_job: RewriteJob) -> RewriteResult:
        world.rewrite = rewritten
        raise EngineFailed("the JVM ended")

    world.rewrite = fails
    task = world.compact()
    assert world.kind.first_attempts == [1, 1, 1, 1]
    assert (task.status, task.engine) == (Status.SUCCESS, "spark")
    assert [one.engine for one in world.history(task.task_id) if one.status is Status.RUNNING] == [
        "inline",
        "spark",
        "inline",
        "spark",
    ]


def test_commits_of_a_job_that_died_after_the_last_one_are_recorded(world: RewritingWorld) -> None:
    def commits_and_dies(job: RewriteJob) -> RewriteResult:
        marks = {TASK_ID: job.ctx.attempt.task_id, ATTEMPT: str(job.ctx.attempt.attempt)}
        world.lake.table("orders").append(rows(9), snapshot_properties=marks)
        world.kind.plan_now = NOTHING
        raise EngineFailed("the JVM ended")

    world.rewrite = commits_and_dies
    task = world.compact()
    assert (task.status, task.engine, task.details["files_added"]) == (Status.SUCCESS, "spark", 1)
    receipt = json.loads(world.plans.get(task.details["receipt"]))
    assert receipt["snapshots"] == task.public()["details"]["snapshot_ids"]
    assert receipt["attempt"] == 3
    again = world.compact()
    assert (again.result_summary, "files_added" in again.details) == (NOTHING.summary, False)


def test_a_policy_that_is_detached_after_a_commit_ends_the_task_with_the_figures(world: RewritingWorld) -> None:
    def withdrawn(job: RewriteJob) -> RewriteResult:
        job.ctx.ended_early(rewritten(job))
        raise RewriteWithdrawn("the policy a is off")

    world.rewrite = withdrawn
    task = world.compact()
    assert (task.status, task.engine) == (Status.SUCCESS, "spark")
    assert task.result_summary == "stopped, because the policy a is off; 20 files had been rewritten before"
    assert task.details["findings"] == [{"code": "POLICY_WITHDRAWN", "count": 1}]
    assert (task.details["files_rewritten"], task.public()["details"]["snapshot_ids"][0]) == (20, "7")
    assert TYPES.of(task).receipt_key(task) == f"{task.task_id}/receipt.json"
    world.rewrite = rewritten
    assert "findings" not in world.compact().details


@pytest.mark.parametrize("error", [RunCancelled("t"), GuardRefused("another table has the name now")])
def test_an_attempt_that_ends_after_a_commit_records_what_it_committed(
    world: RewritingWorld, error: Exception | RunCancelled
) -> None:
    def ends(job: RewriteJob) -> RewriteResult:
        job.ctx.ended_early(rewritten(job))
        raise error

    world.rewrite = ends
    task = world.compact()
    assert task.status is Status.FAILURE
    shown = task.public()
    assert (shown["files_rewritten"], shown["details"]["bytes_rewritten"]) == (20, 2_000)
    assert shown["details"]["snapshot_ids"] == ["7", "9223372036854775807"]


def test_a_dry_run_that_was_killed_twice_stays_inline(world: RewritingWorld) -> None:
    task_id = world.submit(world.request(COMPACTION_TASK_TYPE, "orders", **{"dry-run": "true"})).task_id
    killed = KilledAttempts(count=KILLED_TWICE)
    task = world.tasks.writes.change(task_id, lambda current, _now: current.model_copy(update={"killed": killed}))
    assert prepared_engine(task, RemovalSettings(has_spark=True)) == "spark"
    world.drive()
    ended = world.tasks.reads.get(task_id)
    assert (ended.status, ended.engine, world.jobs.started) == (Status.SUCCESS, "inline", [])


def test_a_deployment_without_spark_refuses_what_it_cannot_do(world: RewritingWorld) -> None:
    world.without_spark()
    task = world.compact()
    assert (task.status, task.error_code) == (Status.FAILURE, "NO_SPARK")
    assert "emr-subnet-ids" in (task.result_summary or "")
    assert world.compact(**{"dry-run": "true"}).status is Status.SUCCESS


def test_a_process_without_spark_leaves_the_work_to_another_one(
    world: RewritingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.rewrite = rewritten
    world.jobs.available = False
    tried: list[str] = []
    run = world.jobs.run

    def run_later(*arguments: Any) -> Any:
        world.jobs.available = bool(tried)
        tried.append("run")
        return run(*arguments)

    monkeypatch.setattr(world.jobs, "run", run_later)
    task = world.compact()
    assert (task.status, task.engine) == (Status.SUCCESS, "spark")
    assert len(tried) == 2
    assert "POSTPONED" in {one.error_code for one in world.history(task.task_id)}


def test_each_attempt_without_spark_waits_longer_and_states_what_to_start(world: RewritingWorld) -> None:
    world.jobs.available = False
    task = world.accepted(world.request(COMPACTION_TASK_TYPE, "orders"))
    waits = []
    for _ in range(8):
        held = world.tasks.leases.acquire(task.task_id, "worker", lambda now: Lease.lasting(timedelta(hours=1), now))
        after = world.compaction.run(held, hand_over_at=None)
        assert after.next_scheduled_run_ts is not None
        waits.append((after.next_scheduled_run_ts - world.clock()) // timedelta(minutes=1))
        world.clock.advance(after.next_scheduled_run_ts - world.clock())
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60]  # the first one hands over
    assert (after.error_code, after.unexcused_attempts) == ("POSTPONED", 0)
    assert "Start `delegation worker --engine spark`" in (after.result_summary or "")


def test_a_table_that_is_purged_is_not_rewritten(world: RewritingWorld) -> None:
    world.accepted(world.identity("orders"))
    world.queue.sent.clear()
    task = world.compact()
    assert (task.status, task.error_code) == (Status.FAILURE, "TABLE_IS_PURGED")


def test_a_cancelled_task_starts_no_job(world: RewritingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = world.kind.plan

    def cancelled(ctx: Any, work: Any) -> Any:
        world.tasks.operators.cancel(ctx.attempt.task_id)
        world.sleep(2)
        return plan(ctx, work)

    monkeypatch.setattr(world.kind, "plan", cancelled)
    task = world.compact()
    assert (task.status, task.error_code) == (Status.FAILURE, "CANCELLED")
    assert world.jobs.started == []
