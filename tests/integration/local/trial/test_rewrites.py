"""Compactions on one machine: a request, its estimate, its Spark job or the shared one, and its receipt.

Spark gets the Iceberg runtime from Maven's repository, or has it from an earlier run.
"""

import json
import signal
import sys

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


def ended(newcomer, *words):
    """Return the task of a request that is waited for."""
    task_id = json.loads(newcomer.run(*words, "--wait", "--json").splitlines()[-1])["task_id"]
    return json.loads(newcomer.run("tasks", "show", task_id, "--json"))


def task_after(newcomer, task_id):
    """Return a task after its end, which follows within minutes."""
    newcomer.run("tasks", "watch", task_id, seconds=500)
    return json.loads(newcomer.run("tasks", "show", task_id, "--json"))


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
    assert ended(newcomer, *words)["result_summary"].startswith("nothing is to be rewritten")


@pytest.mark.parametrize("newcomer", [("--property", "delegation.rewrite-worker.tasks-at-once=2")], indirect=True)
def test_one_job_compacts_two_tables(newcomer):
    tables = (ORDERS, EVENTS)
    before = [rows_of(newcomer, table) for table in tables]
    words = [("compact", table, "--cold-after", "0", "--min-input-files", "2", "--json") for table in tables]
    asked = [json.loads(newcomer.run(*each))["delegation_task_id"] for each in words]
    first, second = (task_after(newcomer, task_id) for task_id in asked)
    assert [(task["status"], task["engine"]) for task in (first, second)] == [("SUCCESS", "spark")] * 2
    assert all(task["details"]["files_rewritten"] > task["details"]["files_added"] > 0 for task in (first, second))
    after = [rows_of(newcomer, table) for table in tables]
    assert [(rows["rows"], rows["checksum"]) for rows in after] == [(rows["rows"], rows["checksum"]) for rows in before]
    assert not {task["job_run_id"] for task in (first, second)} - {None}
    (listed,) = json.loads(newcomer.run("tasks", "list", "--type", "REWRITE_WORKER", "--json"))["tasks"]
    worker = task_after(newcomer, listed["task_id"])
    assert (worker["status"], worker["attempt_count"]) == ("SUCCESS", 1)
    assert worker["result_summary"] == "the worker ended: it is idle"
