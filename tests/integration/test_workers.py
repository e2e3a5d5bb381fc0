"""`delegation worker` processes on one DynamoDB Local are killed, stopped, paused and blocked.

The first test is a small `make drill`; DRILL_TASKS and DRILL_SECONDS set its size.
"""

import os
import re
import signal
import subprocess
import sys

import pytest

from delegation.tasks.life.model import Status
from delegation.tasks.submit import Tasks
from infra.local.processes.programs import import_path
from tests.drill import observed
from tests.drill.observed import END, PIECE, START, STEP, Piece
from tests.drill.site import PROPERTIES, Store
from tests.integration.acceptance.world import eventually
from tests.paths import ROOT

EXIT_FENCED = 3

pytestmark = [
    pytest.mark.dynamodb_local,
    pytest.mark.skipif(sys.platform != "linux", reason="reads processes from /proc"),
]


class WorkersOnTable:
    """A task table, and the workers on it."""

    def __init__(self, store: Store) -> None:
        self.store = store.create_tables()
        self.tasks = store.tasks()
        self.gate = store.folder / "gate"
        self._workers = []

    def worker(self, name, **variables):
        worker = self.store.worker(name, **variables)
        self._workers.append(worker)
        return worker

    def submit(self, name, **piece):
        return Tasks(self.tasks).submit(PIECE, Piece(name=name, **piece)).task_id

    def lines(self, task_id, attempt=None):
        found = [line for line in observed.read(self.store.log) if line.task_id == task_id]
        return [line for line in found if attempt in {None, line.attempt}]

    def began(self, task_id, attempt):
        return eventually(lambda: [line for line in self.lines(task_id, attempt) if line.what == STEP])

    def succeeded(self, task_id):
        def head():
            task = self.tasks.reads.get(task_id)
            return task if task.status is Status.SUCCESS else None

        return eventually(head)

    def errors(self, task_id):
        return [
            row.error_code for row in self.tasks.reads.store.history(task_id) if row.status is Status.RETRY_SCHEDULED
        ]

    def end(self):
        for worker in self._workers:
            worker.kill()


@pytest.fixture
def site(dynamodb_local, tmp_path):
    properties = {**PROPERTIES, "delegation.task.lease.lost-timeout-duration": "4s"}
    site = WorkersOnTable(Store(dynamodb_local.url, tmp_path, properties))
    yield site
    site.end()


# `make drill` kills them for as long as its SECONDS say.
@pytest.mark.long
@pytest.mark.parametrize("store", ["table", "persistence"])
def test_each_task_succeeds_once_while_workers_and_the_state_machine_are_killed_at_random(
    dynamodb_local, tmp_path, store
):
    tasks, seconds = os.environ.get("DRILL_TASKS", "10"), os.environ.get("DRILL_SECONDS", "3")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.drill", "--tasks", tasks, "--seconds", seconds),
            *("--dynamodb", dynamodb_local.url, "--folder", str(tmp_path), "--store", store),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": import_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    totals = done.stdout.splitlines()[-1]
    assert f"{tasks} tasks, {tasks} outcomes, {tasks} with exactly one SUCCESS" in totals
    assert "0 begun twice; 0 violations" in totals
    assert re.search(r"[1-9]\d* kills", totals), totals


def test_a_worker_hands_its_task_over_on_sigterm_and_ends_with_status_0(site):
    task_id = site.submit("long", until=site.gate)
    first = site.worker("first")
    site.began(task_id, 1)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    handed = site.tasks.reads.get(task_id)
    assert (handed.status, handed.error_code) == (Status.RETRY_SCHEDULED, "HANDED_OVER")
    assert handed.attempts_excused == 1
    second = site.worker("second")
    site.began(task_id, 2)
    site.gate.touch()
    assert site.succeeded(task_id).attempt_count == 2
    assert {line.attempt for line in site.lines(task_id) if line.what == END} == {2}
    second.signal(signal.SIGINT)
    assert second.wait() == 0


@pytest.mark.long
def test_a_worker_paused_beyond_its_lease_does_no_more_work(site):
    task_id = site.submit("long", until=site.gate)
    first = site.worker("first")
    site.began(task_id, 1)
    first.signal(signal.SIGSTOP)
    site.worker("second")
    site.began(task_id, 2)
    seen = len(site.lines(task_id, 1))
    first.signal(signal.SIGTERM)
    first.signal(signal.SIGCONT)
    # Depends on whether the work or the process first finds that the lease has ended.
    assert first.wait() in {0, EXIT_FENCED}
    site.gate.touch()
    assert site.succeeded(task_id).attempt_count == 2
    # At most the step that it was about to do when it was paused.
    assert len(site.lines(task_id, 1)) - seen <= 1
    assert {line.attempt for line in site.lines(task_id) if line.what == END} == {2}
    assert site.errors(task_id) == ["LOST"]


@pytest.mark.long
def test_a_worker_whose_work_does_not_stop_ends_its_process_before_the_next_attempt_begins(site):
    task_id = site.submit("blind", until=site.gate, blind=True)
    first = site.worker("first")
    site.began(task_id, 1)
    second = site.worker("second")
    assert first.wait() == EXIT_FENCED
    site.began(task_id, 2)
    site.gate.touch()
    assert site.succeeded(task_id).attempt_count == 2
    order = [line.attempt for line in site.lines(task_id)]
    assert order == sorted(order)
    assert [line.attempt for line in site.lines(task_id) if line.what == START] == [1, 2]
    assert "ending this process" in {each["message"] for each in first.log_entries()}
    second.kill()
