"""A driver or an executor is killed at a random moment of a rewrite. The next attempt ends the work, and the removal of
orphan files finds and removes what the killed one left."""

import os
import random
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from delegation.removal.attempt import MemoryAttempt
from delegation.removal.orphans import place
from delegation.removal.orphans.context import OrphanContext, OrphanOptions, OrphanResult, OrphanSettings
from delegation.removal.orphans.run import remove_orphan_files
from delegation.rewrites.commits import own_commits
from delegation.storage.memory import MemoryPlanStore
from delegation.timestamps import utc_now
from delegation.wiring.table_access import vended_table
from tests.kit.stories.orphans import AT_ONCE
from tests.orphans.sweep import LiveReferences
from tests.paths import ROOT
from tests.rewrites.driver import BEGUN, REWRITE
from tests.rewrites.world import PlainAttempt, RewriteWorld

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
DRIVER, EXECUTOR = "local[2]", "local-cluster[2,1,1024]"
LONGEST = 6.0
"""Seconds until the kill: about as long as the rewrite takes."""
_EXECUTOR_CLASS = b"CoarseGrainedExecutorBackend"


def remove_orphans(world: RewriteWorld, name: str) -> OrphanResult:
    """Remove the orphan files of a table, of which all count as old."""
    client, identifier = world.client(), world.identifier(name)
    tables, store = vended_table(client, identifier, clock=utc_now)
    ctx = OrphanContext(
        attempt=MemoryAttempt("orphans"),
        identifier=identifier,
        table_uuid=client.load_table(identifier, vend=False).table_uuid,
        tables=tables,
        store=store,
        plans=MemoryPlanStore(),
        neighbours=lambda _roots: (),
        references=LiveReferences(),
        places=lambda: (),
        claims=lambda: (),
        options=OrphanOptions(older_than=timedelta(0), limits=AT_ONCE),
        settings=OrphanSettings(vended=False),
    )
    # The store dates files by its own clock.
    with mock.patch.object(place, "LEAST_AGE", timedelta(0)):
        return remove_orphan_files(ctx)


def executors_of(group: int) -> list[int]:
    """Return the executors of a process group, each a JVM of its own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if _EXECUTOR_CLASS in (entry / "cmdline").read_bytes() and os.getpgid(int(entry.name)) == group:
                    found.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def rewrite_and_kill(world: RewriteWorld, name: str, master: str, seconds: float) -> str:
    """Rewrite in another process, kill it or one of its executors; return what it printed at its end."""
    command = [sys.executable, "-m", "tests.rewrites.driver", world.stack.catalog.url, name, "1", master]
    path = f"{ROOT / 'functions'}{os.pathsep}{ROOT}"
    driver = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert driver.stdout is not None
    assert f"{BEGUN}\n" in iter(driver.stdout.readline, ""), "the driver ended before it began"
    time.sleep(seconds)
    if master == EXECUTOR:
        for executor in executors_of(driver.pid)[:1]:
            os.kill(executor, signal.SIGKILL)
        printed = driver.stdout.read()
    else:
        os.killpg(driver.pid, signal.SIGKILL)
        printed = driver.stdout.read()
    driver.wait(600)
    driver.stdout.close()
    return printed.strip()


def kill(world: RewriteWorld, name: str, master: str, seconds: float) -> dict[str, Any]:
    """Kill, end the work, remove the orphans, and check; return what happened."""
    table = world.filled(name, 3)
    rows, before, row_ids = world.rows(table), world.every_snapshot(table), world.lineage(table)
    stored = world.stored()
    printed = rewrite_and_kill(world, name, master, seconds)
    of_killed = world.stored() - stored
    committed = len(own_commits(world.metadata(name), "task-1"))
    assert world.rows(table) == rows
    result = world.run(name, PlainAttempt(attempt=2), REWRITE)
    own = own_commits(world.metadata(name), "task-1")
    assert (result.files_rewritten, result.files_added) == (8, 2), "each file once, by one of the attempts"
    assert [commit.snapshot_id for commit in own] == list(result.snapshot_ids)
    kept = world.stored()
    removed = remove_orphans(world, name)
    gone = kept - world.stored()
    assert gone <= of_killed, "an orphan of another attempt than the killed one"
    assert removed.files_deleted == len(gone)
    assert remove_orphans(world, name).status == "NOTHING"
    now = world.every_snapshot(table)
    assert {number: now[number] for number in before} == before
    assert len(now) == len(before) + len(own), "a commit was made twice"
    assert world.rows(table) == rows
    assert world.lineage(table) == row_ids
    return {"printed": printed, "committed by the killed": committed, "orphans": len(gone)}


@pytest.mark.parametrize("seed", range(4))
def test_a_driver_is_killed(world: RewriteWorld, seed: int) -> None:
    kill(world, f"driver{seed}", DRIVER, random.Random(seed).uniform(0, LONGEST))


@pytest.mark.parametrize("seed", range(1))
def test_an_executor_is_killed(world: RewriteWorld, seed: int) -> None:
    happened = kill(world, f"executor{seed}", EXECUTOR, random.Random(seed).uniform(0, LONGEST))
    assert "REWRITTEN" in happened["printed"], "Spark repeats the tasks of a lost executor"
