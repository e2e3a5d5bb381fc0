"""A compaction on one machine: a request, its estimate, its Spark job, and its receipt.

Spark gets the Iceberg runtime from Maven's repository, or has it from an earlier run.
"""

import json
import signal
import sys

import pytest

from tests.integration.local.trial.pages import Newcomer

ORDERS = "lake.shop.orders"


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory):
    state = tmp_path_factory.mktemp("rewrites") / "state"
    person = Newcomer(state, ["local", "up", "--sweep-seconds", "2"])
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


def rows_of(newcomer):
    return json.loads(newcomer.run("local", "tables", "--json"))["tables"][ORDERS]


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
