"""Two tables at once in one Spark session, each with its own lease, gate and job tag."""

import threading
from functools import partial
from typing import Any

import pytest

from delegation.rewrites.context import Performed, Rewrite, RewriteAttempt
from delegation.rewrites.fence import Gate
from delegation.rewrites.spark import SparkRewriter, is_alive
from delegation.rewrites.worker import SharedSession
from delegation.tasks.life.model import Status
from tests.kit.worlds.shared_rewrites import SharedRewrites
from tests.rewrites.world import RewriteWorld

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
AT_MOST = 300.0


class Together:
    """The engine of a session, whose first two calls begin at the same time."""

    def __init__(self, engine: SparkRewriter) -> None:
        self.engine, self.both = engine, threading.Barrier(2)
        self.iceberg_version = engine.iceberg_version

    def perform(self, gate: Gate, rewrite: Rewrite, attempt: RewriteAttempt) -> Performed:
        self.both.wait(AT_MOST)
        return self.engine.perform(gate, rewrite, attempt)


def session_of(world: RewriteWorld, engine: Any) -> SharedSession:
    return SharedSession(engine, partial(is_alive, world.spark))


def test_two_tables_are_rewritten_at_once_and_both_keep_their_rows(world: RewriteWorld) -> None:
    names = ("left", "right")
    tables = [world.filled(f"shared_{name}", version=3) for name in names]
    rows, lineage = [world.rows(table) for table in tables], [world.lineage(table) for table in tables]
    shared = SharedRewrites(world.client)
    asked = [shared.ask(world.identifier(f"shared_{name}")) for name in names]
    session = session_of(world, Together(SparkRewriter(world.spark, world.fence, poll_seconds=0.1)))
    ended = shared.rewrite(session, asked)
    assert [(task.status, task.attempt_count) for task in ended] == [(Status.SUCCESS, 1)] * 2, ended
    assert [task.details["files_added"] for task in ended] == [2, 2]
    assert [world.files(table) for table in tables] == [(2, 0), (2, 0)]
    assert [world.rows(table) for table in tables] == rows
    assert [world.lineage(table) for table in tables] == lineage
    own = [set(task.public()["details"]["snapshot_ids"]) for task in ended]
    assert not own[0] & own[1]
    assert not session.lost.is_set()


def test_a_task_that_is_cancelled_in_spark_leaves_the_other_one_alone(world: RewriteWorld) -> None:
    names = ("kept", "cancelled")
    tables = [world.filled(f"shared_{name}") for name in names]
    rows = [world.rows(table) for table in tables]
    shared = SharedRewrites(world.client)
    kept, cancelled = (shared.ask(world.identifier(f"shared_{name}")) for name in names)
    engine = Together(SparkRewriter(world.spark, world.fence, poll_seconds=0.1))
    perform = engine.perform

    def cancels(gate: Gate, rewrite: Rewrite, attempt: RewriteAttempt) -> Performed:
        if attempt.task_id == cancelled.task_id:
            shared.tasks.operators.cancel(cancelled.task_id)
            threading.Event().wait(1.1)  # until the attempt reads its task again
        return perform(gate, rewrite, attempt)

    engine.perform = cancels  # type: ignore[method-assign]
    ended = shared.rewrite(session_of(world, engine), [kept, cancelled])
    assert [(task.status, task.error_code) for task in ended] == [(Status.SUCCESS, None), (Status.FAILURE, "CANCELLED")]
    assert [world.rows(table) for table in tables] == rows
    assert [world.files(table) for table in tables] == [(2, 0), (8, 0)]
