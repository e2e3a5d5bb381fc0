"""A purge with the Spark engine whose job is killed, and its outcome; several tests share it."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from tests.integration.acceptance.secret_search import Trace
from tests.integration.acceptance.world import SUBMIT, WIDE, RunningStack, StoredTable, eventually

DRIVER = "org.apache.spark.deploy.SparkSubmit"
TABLES = 5


@dataclass(frozen=True, slots=True)
class KilledJob:
    """The table, the answers to both equal requests, the task at three times, and the remaining objects.

    `attempt` is the one whose job was killed: on a busy machine an earlier one can have been lost before its job began.
    """

    table: StoredTable
    attempt: int
    accepted: tuple[httpx.Response, ...]
    when_repeated: dict[str, Any]
    when_killed: dict[str, Any]
    outcome: dict[str, Any]
    left: frozenset[str]


def kill_a_running_job(world: RunningStack) -> KilledJob:
    """Submit a table for the Spark engine, kill the driver's JVM once it deletes, wait for the outcome.

    A job that ends before this process, on a busy machine, comes to suspend it, is replaced by that of another table.
    """
    for _ in range(TABLES):
        if killed := _killed(world):
            return killed
    raise AssertionError(f"{TABLES} jobs ended before they could be suspended")


def _killed(world: RunningStack) -> KilledJob | None:
    table, key = world.table(WIDE), str(uuid4())
    request = world.request(table)
    first = world.post(SUBMIT, request, key)
    assert first.status_code == 202, first.text
    task_id = first.json()["delegation_task_id"]
    world.job_of(task_id, DRIVER)
    again = world.post(SUBMIT, request, key)
    when_repeated = world.task(task_id)
    # Read from the task table, because the state may last too short for HTTPS requests.
    deleting = eventually(
        lambda: (task := world.tasks.get(task_id)).effects_began_ts and task, otherwise=lambda: world.story(task_id)
    )
    job = f"{task_id}-{deleting.attempt_count}"
    drivers = [
        pid for pid, line in world.processes(job).items() if DRIVER in line and Path(line.split()[0]).name == "java"
    ]
    for pid in drivers:
        # While its job is suspended the task can't leave RUNNING: its end would be noticed within a second.
        os.kill(pid, signal.SIGSTOP)
    commands, when_killed = world.processes(job), world.task(task_id)
    for pid in drivers:
        os.kill(pid, signal.SIGKILL)
    world.seen += [Trace(f"command line of process {pid}", line.encode()) for pid, line in commands.items()]
    outcome = world.outcome(task_id)
    attempt = deleting.attempt_count
    if not drivers or any(each["attempt_count"] != attempt for each in (when_repeated, when_killed)):
        return None
    return KilledJob(table, attempt, (first, again), when_repeated, when_killed, outcome, world.left(table))
