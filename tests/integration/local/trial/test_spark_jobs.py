"""Jobs of an expiry and of a removal of orphan files: Spark runs each from the archive that the stack published."""

import json
import re
import signal
import sys

import pytest

from tests.integration.local.trial.pages import Newcomer

ORDERS = "lake.shop.orders"


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory):
    """A stack that hands everything to Spark, with its tables."""
    state = tmp_path_factory.mktemp("jobs") / "state"
    person = Newcomer(state, ["local", "up", "--sweep-seconds", "2", "--inline-max-files", "0"])
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


def ran_from_the_archive(newcomer, task_id):
    """Check that the task's job unpacked the archive and found the service there alone; return the ended task."""
    task = json.loads(newcomer.run("tasks", "show", task_id, "--json"))
    assert (task["status"], task["engine"]) == ("SUCCESS", "spark")
    job = newcomer.process.state_dir / "logs" / "emr" / task["job_run_id"]
    assert (job / "work" / "package" / "delegation" / "removal").is_dir()
    printed = (job / "stderr").read_text(encoding="utf-8") + (job / "stdout").read_text(encoding="utf-8")
    assert "ModuleNotFoundError" not in printed
    assert "ImportError" not in printed
    return task


def ended(printed):
    return json.loads(printed.splitlines()[-1])["task_id"]


def test_an_expiry(newcomer):
    words = ("expire", ORDERS, "--older-than", "now", "--yes", "--wait", "--json")
    task = ran_from_the_archive(newcomer, ended(newcomer.run(*words)))
    assert task["files_deleted"] > 0


def test_a_removal_of_orphan_files(newcomer):
    newcomer.run("local", "plant-orphans", ORDERS)
    scanned = json.loads(newcomer.run("orphans", "scan", ORDERS, "--wait", "--json").splitlines()[-1])
    [plan] = re.findall(r"orphans approve ([0-9a-f/-]+)", scanned["result_summary"])
    approved = ended(newcomer.run("orphans", "approve", plan, "--yes", "--wait", "--json"))
    assert ran_from_the_archive(newcomer, approved)["files_deleted"] == 5
