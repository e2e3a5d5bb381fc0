"""Commits of 8 threads in each of 3 processes on DynamoDB Local, with killed processes and lost answers.

What the processes said is held against the log: nothing acknowledged is missing or there twice, nothing is there that
nobody asked for, every commit saw all those before it, and the log's order contradicts no clock on the wall.
"""

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from delegation.persistence.commits.log import read_log
from infra.local.aws.dynamodb import DynamoDbLocal
from tests.contract.persistence.backends import create_tables, dynamodb_client
from tests.integration.persistence_worker import store_of
from tests.paths import ROOT
from tests.unit.persistence.builders import Entity, Head

THREADS = 8
COMMITS = 8
ENDLESS = 100_000
"""What a process that is to be killed can never finish before it is."""


class Worker:
    """One process, and what it said so far."""

    def __init__(self, url: str, tables: tuple[str, str], number: int, group_size: int, commits: int) -> None:
        arguments = [url, *tables, str(number), str(THREADS), str(commits), str(group_size)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.persistence_worker", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'functions'}{os.pathsep}{ROOT}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: list[dict[str, Any]] = []
        self._reported = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def kill_after(self, acknowledged: int) -> None:
        """Kill the process once so many of its commits were acknowledged."""
        with self._reported:
            assert self._reported.wait_for(lambda: self.count("done") >= acknowledged or self._ended(), timeout=60)
        self._process.kill()
        self.wait()
        assert self._process.returncode != 0, "it was faster than the kill"

    def wait(self) -> None:
        self._process.wait(timeout=120)
        self._reader.join()
        assert self._process.stdout
        self._process.stdout.close()

    def finished(self) -> None:
        self.wait()
        assert self._process.returncode == 0

    def count(self, what: str) -> int:
        return sum(one["what"] == what for one in self.said)

    def end(self) -> None:
        if self._ended():
            return
        self._process.kill()
        self.wait()

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            with self._reported:
                self.said.append(json.loads(line))
                self._reported.notify_all()
        with self._reported:
            self._reported.notify_all()


@contextlib.contextmanager
def tables_of(url: str) -> Iterator[tuple[str, str]]:
    with contextlib.closing(dynamodb_client(url)) as client:
        tables = create_tables(client)
        yield tables
        for table in tables:
            client.delete_table(TableName=table)


@pytest.mark.dynamodb_local
@pytest.mark.parametrize("group_size", [1, 64], ids=["ungrouped", "grouped"])
def test_commits_are_linearizable(dynamodb_local: DynamoDbLocal, group_size: int) -> None:
    with tables_of(dynamodb_local.url) as tables, contextlib.ExitStack() as ending:
        store = store_of(dynamodb_local.url, *tables, random.Random(0), lossy=False)
        store.create_reference("main")
        workers: list[Worker] = []

        def start(commits: int = COMMITS) -> Worker:
            workers.append(Worker(dynamodb_local.url, tables, len(workers) + 1, group_size, commits))
            ending.callback(workers[-1].end)
            return workers[-1]

        lasting, first, second = start(), start(ENDLESS), start(ENDLESS)
        first.kill_after(5)
        instead = start()
        second.kill_after(9)
        for worker in (lasting, instead):
            worker.finished()

        said = [one for worker in workers for one in worker.said]
        log = list(read_log(store, store.current_reference("main").head, Head))[::-1]
        _no_commit_is_lost_doubled_or_invented(said, log)
        _every_commit_saw_those_before_it(said, log)
        _the_order_agrees_with_time(said, log)
        assert [one.value.seq for one in log] == list(range(1, len(log) + 1))
        _the_head_is_the_sum(store, log)
        assert lasting.count("done") + instead.count("done") > THREADS * COMMITS


def operations(log: list[Any]) -> list[tuple[str, int]]:
    return [(name, one.key.id) for one in log for name in one.value.operations]


def _no_commit_is_lost_doubled_or_invented(said: list[dict[str, Any]], log: list[Any]) -> None:
    logged = operations(log)
    assert max(Counter(name for name, _ in logged).values()) == 1
    begun = {one["operation"] for one in said if one["what"] == "begin"}
    assert {name for name, _ in logged} <= begun
    acknowledged = {(one["operation"], one["commit"]) for one in said if one["what"] == "done"}
    assert acknowledged <= set(logged)
    failed = {one["operation"] for one in said if one["what"] == "failed"}
    assert not failed & {name for name, _ in logged}


def _every_commit_saw_those_before_it(said: list[dict[str, Any]], log: list[Any]) -> None:
    results = {one["operation"]: one["result"] for one in said if one["what"] == "done"}
    before: dict[str, int] = defaultdict(int)
    for name, _ in operations(log):
        counter = name.rsplit(".", 1)[1]
        before[counter] += 1
        assert results.get(name, before[counter]) == before[counter]


def _the_order_agrees_with_time(said: list[dict[str, Any]], log: list[Any]) -> None:
    begun = {one["operation"]: one["at"] for one in said if one["what"] == "begin"}
    done = {one["operation"]: one["at"] for one in said if one["what"] == "done"}
    latest = 0.0
    for name, _ in operations(log):
        assert done.get(name, float("inf")) >= latest, f"{name} had ended before one that the log has earlier began"
        latest = max(latest, begun[name])


def _the_head_is_the_sum(store: Any, log: list[Any]) -> None:
    counted = Counter(name.rsplit(".", 1)[1] for name, _ in operations(log))
    stored = {name: store.fetch(ref, Entity).value.number for name, ref in log[-1].value.entities.items()}
    assert stored == counted
    assert all(older.key.id in newer.value.tail for older, newer in itertools.pairwise(log))
