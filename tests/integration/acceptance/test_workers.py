"""A `delegation worker` next to a stack purges real tables: small ones inline, large ones as Spark jobs."""

import contextlib
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from delegation.identifiers import TableIdentifier
from delegation.removal.purge.requests import TablePurge
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Create
from delegation.wire.requests import TableState
from infra.local.demo.tables import NAMESPACE
from tests.integration.acceptance.world import LIFE, SMALL, WIDE, eventually

pytestmark = [pytest.mark.stack, pytest.mark.spark]
COMMAND = "from delegation.cli.main import build; build([])()"


@pytest.fixture
def worker(world, killed_job, tmp_path):
    """A worker with the variables of the functions that it replaces, including those of jobs."""
    both = {**world.variables("start_job"), **world.variables("api")}
    given = {name: value for name, value in both.items() if name != "AWS_LAMBDA_FUNCTION_NAME"}  # it is no function
    log = tmp_path / "worker.log"
    with log.open("ab") as output:
        command = [sys.executable, "-c", COMMAND, "worker", "--poll", "50ms"]
        process = subprocess.Popen(command, env=given, stdout=output, stderr=output)
    eventually(lambda: '"started"' in log.read_text())
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, log.read_text()


@contextlib.contextmanager
def sweeper_stopped(world):
    """Stop the sweeper, so that the worker acquires due tasks and not the state machine."""
    sweepers = world.processes("AWS_LAMBDA_FUNCTION_NAME=sweeper", "lambdas.worker")
    for pid in sweepers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in sweepers:
            os.kill(pid, signal.SIGCONT)


def due(world, table):
    """Return the task of the table's purge, due now and without a dispatch."""
    metadata = table.loaded["metadata"]
    purge = TablePurge(
        realm=world.stack.realm,
        identifier=TableIdentifier(world.stack.warehouse, (NAMESPACE,), table.name),
        table=TableState(
            table_uuid=metadata["table-uuid"],
            metadata_location=table.loaded["metadata-location"],
            location=metadata["location"],
            format_version=metadata["format-version"],
        ),
        properties={},
    )
    now = datetime.now(UTC)
    times = {"received_timestamp": now, "created_ts": now, "last_status_change_ts": now, "due_at": now}
    return Task(
        task_id=purge.task_id,
        task_type=purge.task_type,
        task_payload=purge.to_payload(),
        next_scheduled_run_ts=now,
        nonce=purge.task_id,
        **times,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("recipe", "engine"),
    [pytest.param(SMALL, "inline", id="small"), pytest.param(WIDE, "spark", id="large", marks=pytest.mark.long)],
)
def test_a_worker_chooses_the_engine_as_the_state_machine_does(world, worker, recipe, engine):
    table = world.table(recipe)
    with sweeper_stopped(world):
        task_id = world.tasks.apply(Create(due(world, table))).task_id
        acquired = eventually(lambda: world.tasks.get_version(task_id, 2))
    assert acquired.lease.owner.startswith("worker:")
    outcome = world.outcome(task_id)
    assert (outcome["status"], outcome["engine"], outcome["attempt_count"]) == ("SUCCESS", engine, 1)
    assert outcome["dispatch_count"] == 0
    assert [view.status for view in world.history(task_id)] == LIFE
    assert world.left(table) == frozenset()
    assert world.execution(task_id, 1) is None
    if engine == "spark":
        assert world.tasks.get(task_id).job_run_id
