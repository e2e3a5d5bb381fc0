"""Compactions on one machine: a request, its estimate, its Spark job or the shared one, and its receipt.

Spark gets the Iceberg runtime from Maven's repository, or has it from an earlier run.
"""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.local.trial.pages import Newcomer

ORDERS, EVENTS = "lake.shop.orders", "lake.shop.events"


@pytest.fixture
def newcomer(request, tmp_path_factory):
    state = tmp_path_factory.mktemp("rewrites") / "state"
    person = Newcomer(state, ["local", "up", "--sweep-seconds", "2", *getattr(request, "param", ())])
    try:
        person.run("local", "tables")
        yield person
    finally:
        person.process.end(signal.SIGTERM)


pytestmark = [
    pytest.mark.long,
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="reads processes from /proc"),
]


def shown(newcomer, task_id):
    return json.loads(newcomer.run("tasks", "show", task_id, "--json"))


def ended(newcomer, *words):
    """Return the task of a request that is waited for."""
    task_id = json.loads(newcomer.run(*words, "--wait", "--json").splitlines()[-1])["task_id"]
    return shown(newcomer, task_id)


def task_after(newcomer, task_id):
    """Return a task after its end, which follows within minutes."""
    newcomer.run("tasks", "watch", task_id, seconds=500)
    return shown(newcomer, task_id)


def rows_of(newcomer, table=ORDERS):
    return json.loads(newcomer.run("local", "tables", "--json"))["tables"][table]


def test_a_compaction_keeps_the_rows_and_ends_with_a_receipt(newcomer):
    before = rows_of(newcomer)
    words = ("compact", ORDERS, "--cold-after", "0", "--min-input-files", "2")
    estimate = ended(newcomer, *words, "--dry-run")
    assert (estimate["status"], estimate["engine"]) == ("SUCCESS", "inline")
    assert estimate["details"]["files"] > estimate["details"]["files_after"] > 0
    assert rows_of(newcomer) == before
    task = ended(newcomer, *words)
    assert (task["status"], task["engine"]) == ("SUCCESS", "spark"), task["result_summary"]
    details = task["details"]
    assert details["files_rewritten"] == estimate["details"]["files"]
    assert details["files_added"] == estimate["details"]["files_after"]
    assert details["iceberg_version"] == "1.12.0"
    receipt = json.loads(newcomer.run("tasks", "receipt", task["task_id"], "--json"))
    assert receipt["snapshots"] == details["snapshot_ids"]
    after = rows_of(newcomer)
    assert (after["rows"], after["checksum"]) == (before["rows"], before["checksum"])
    assert ended(newcomer, *words)["result_summary"].startswith("nothing needs to be rewritten")


shared = pytest.mark.parametrize(
    "newcomer", [("--property", "delegation.rewrite-worker.tasks-at-once=2")], indirect=True
)
TABLES = (ORDERS, EVENTS)


def asked_for_both(newcomer):
    """Return the tasks of a compaction of each table, which are not waited for."""
    words = [("compact", table, "--cold-after", "0", "--min-input-files", "2", "--json") for table in TABLES]
    return [json.loads(newcomer.run(*each))["delegation_task_id"] for each in words]


def the_worker(newcomer):
    (listed,) = json.loads(newcomer.run("tasks", "list", "--type", "REWRITE_WORKER", "--json"))["tasks"]
    return listed


def sums(newcomer):
    return [(rows["rows"], rows["checksum"]) for rows in (rows_of(newcomer, table) for table in TABLES)]


@shared
def test_one_job_compacts_two_tables(newcomer):
    before = sums(newcomer)
    asked = asked_for_both(newcomer)
    first, second = (task_after(newcomer, task_id) for task_id in asked)
    assert [(task["status"], task["engine"]) for task in (first, second)] == [("SUCCESS", "spark")] * 2
    assert all(task["details"]["files_rewritten"] > task["details"]["files_added"] > 0 for task in (first, second))
    assert sums(newcomer) == before
    assert not {task["job_run_id"] for task in (first, second)} - {None}
    worker = task_after(newcomer, the_worker(newcomer)["task_id"])
    assert (worker["status"], worker["attempt_count"]) == ("SUCCESS", 1)
    assert worker["result_summary"] == "the worker ended: it is idle"


@shared
def test_a_job_that_dies_costs_each_of_its_tables_one_attempt(newcomer):
    before = sums(newcomer)
    asked = asked_for_both(newcomer)
    until(lambda: all((shown(newcomer, task_id)["lease_owner"] or "").startswith("rewrites:1/") for task_id in asked))
    for pid in processes_of(the_worker(newcomer)["task_id"]):
        os.kill(pid, signal.SIGKILL)
    ended_tasks = [task_after(newcomer, task_id) for task_id in asked]
    assert [(task["status"], task["engine"]) for task in ended_tasks] == [("SUCCESS", "spark")] * 2
    for task_id in asked:
        versions = json.loads(newcomer.run("tasks", "history", task_id, "--json"))["versions"]
        codes = [each["error_code"] for each in versions if each["status"] == "RETRY_SCHEDULED"]
        assert codes.count("LOST") == 1
    assert sums(newcomer) == before
    assert the_worker(newcomer)["attempt_count"] == 2


def until(is_done):
    for _ in range(240):
        if is_done():
            return
        time.sleep(0.5)
    pytest.fail("the job leased no task")


def processes_of(task_id):
    """Return the ids of the processes that have the task's id among their arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if task_id.encode() in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)
