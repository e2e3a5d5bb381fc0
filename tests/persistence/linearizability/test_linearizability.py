"""Commits of several processes on DynamoDB Local, with kills and lost answers; and that the check misses nothing."""

import contextlib
import random
from types import SimpleNamespace
from typing import Any

import pytest

from infra.local.aws.dynamodb import DynamoDbLocal
from polaris_persistence.commits.entities import EntityHead
from polaris_persistence.commits.log import read_log
from tests.persistence.linearizability.fleet import Outcome, tables_of
from tests.persistence.linearizability.history import Outage, acknowledged, contradictions, names_after, operations
from tests.persistence.linearizability.processes import Process
from tests.persistence.linearizability.worker import Orders, catalog_of, numbers_of, process_of

THREADS = 8
COMMITS = 8
ENDLESS = 100_000
"""What a process that is to be killed can never finish before it is."""


@pytest.mark.dynamodb_local
@pytest.mark.parametrize("group_size", [pytest.param(1, marks=pytest.mark.long), 64], ids=["ungrouped", "grouped"])
def test_commits_are_linearizable(dynamodb_local: DynamoDbLocal, group_size: int) -> None:
    with tables_of(dynamodb_local.url) as tables, contextlib.ExitStack() as ending:
        store = catalog_of(process_of(dynamodb_local.url, *tables, random.Random(0), lossy=False))
        store.create_reference("main")
        workers: list[Process] = []

        def start(commits: int = COMMITS) -> Process:
            orders = Orders(
                url=dynamodb_local.url,
                objects=tables[0],
                references=tables[1],
                number=len(workers) + 1,
                threads=THREADS,
                commits=commits,
                group_size=group_size,
            )
            workers.append(Process("worker", orders))
            ending.callback(workers[-1].end)
            return workers[-1].begin()

        lasting, first, second = start(), start(ENDLESS), start(ENDLESS)
        first.wait_for("done", 5)
        first.kill()
        instead = start()
        second.wait_for("done", 9)
        second.kill()
        for worker in (lasting, instead):
            worker.finished()

        said = [one for worker in workers for one in worker.said]
        head = store.current_reference("main").head
        log = list(read_log(store, head, EntityHead))[::-1]
        assert contradictions(said, log) == []
        numbers = {name: len([one for one, _ in operations(log) if one.endswith(name)]) for name in ("n0", "n1", "n2")}
        assert numbers_of(store, log[-1]) == names_after(numbers)
        assert lasting.count("done") + instead.count("done") > THREADS * COMMITS


def commit(id_: int, seq: int, *names: str, tail: tuple[int, ...] = ()) -> Any:
    value = SimpleNamespace(seq=seq, operations=names, tail=tail)
    return SimpleNamespace(key=SimpleNamespace(id=id_), value=value)


LOG = [commit(11, 1, "1.0.0.n0"), commit(12, 2, "2.0.0.n0", tail=(11,))]
SAID: list[dict[str, Any]] = [
    {"what": "begin", "at": 1.0, "operation": "1.0.0.n0"},
    {"what": "done", "at": 2.0, "operation": "1.0.0.n0", "commit": 11, "result": 1},
    {"what": "begin", "at": 3.0, "operation": "2.0.0.n0"},
    {"what": "read", "at": 3.6, "began": 3.5, "seq": 1, "commit": 11, "numbers": names_after({"n0": 1})},
    {"what": "done", "at": 4.0, "operation": "2.0.0.n0", "commit": 12, "result": 2},
    {"what": "read", "at": 6.0, "began": 5.0, "seq": 2, "commit": 12, "numbers": names_after({"n0": 2})},
]


def test_a_history_without_faults_has_no_contradiction() -> None:
    assert contradictions(SAID, LOG) == []


def changed(number: int, **fields: Any) -> list[dict[str, Any]]:
    return [{**one, **(fields if at == number else {})} for at, one in enumerate(SAID)]


@pytest.mark.parametrize(
    ("said", "log", "found"),
    [
        (SAID, LOG[:1], "is not in the log"),
        (SAID, [*LOG, commit(13, 3, "2.0.0.n0", tail=(12,))], "2.0.0.n0 is in the log twice"),
        (SAID, [*LOG, commit(13, 3, "9.0.0.n0", tail=(12,))], "nobody began it"),
        (SAID, [LOG[0], commit(12, 2, "2.0.0.n0")], "does not name commit 11"),
        (SAID, [LOG[0], commit(12, 3, "2.0.0.n0", tail=(11,))], "the log's numbers"),
        (changed(4, what="failed", error="CommitContended"), LOG, "was answered with CommitContended"),
        (changed(4, result=1), LOG, "was answered 1, and the log has 2"),
        (changed(0, at=9.0), [LOG[0], LOG[1]], "had ended before one that the log has earlier began"),
        (changed(5, numbers={"n0": None}), LOG, "a read of commit 12 showed {'n0': None}"),
        (changed(5, numbers={"n0": 2, "n0/02": 2}), LOG, "a read of commit 12 showed {'n0': 2, 'n0/02': 2}"),
        (
            changed(5, commit=11, seq=1, numbers=names_after({"n0": 1})),
            LOG,
            "a read showed number 1 after 2 was acknowledged",
        ),
        (changed(3, at=2.5, began=2.2, commit=12, seq=2, numbers=names_after({"n0": 2})), LOG, "before it was begun"),
        (changed(5, commit=99), LOG, "commit 99, which is not in the log"),
    ],
)
def test_each_fault_of_a_history_is_found(said: list[dict[str, Any]], log: list[Any], found: str) -> None:
    assert any(found in one for one in contradictions(said, log))


def answered(*outcomes: str) -> list[dict[str, Any]]:
    """Return what process 1 said of commits that began one second after another and took half a second each."""
    said: list[dict[str, Any]] = []
    for number, outcome in enumerate(outcomes):
        operation = f"1.0.{number}.n0"
        said.append({"what": "begin", "at": float(number), "operation": operation})
        if outcome != "killed":
            said.append({"what": outcome, "at": number + 0.5, "operation": operation, "commit": number, "result": 1})
    return said


@pytest.mark.parametrize(
    ("outcomes", "outages", "fails"),
    [
        (["done"] * 95 + ["failed"] * 5, [], False),
        (["done"] * 94 + ["failed"] * 6, [], True),
        (["done"] * 94 + ["unknown"] * 6, [], True),
        (["done"] * 95 + ["killed"] * 50, [], False),
        # The failures from 94 s on are of a process that was suspended then; those of another process count.
        (["done"] * 94 + ["failed"] * 6, [Outage(1, 94.2, 120.0)], False),
        (["done"] * 94 + ["failed"] * 6, [Outage(2, 94.2, 120.0)], True),
        ([], [], True),
    ],
)
def test_too_few_acknowledged_commits_fail_a_run(outcomes: list[str], outages: list[Outage], *, fails: bool) -> None:
    """Issue 32, line 13: 220 of 293 commits had failed, and the run ended well."""
    assert Outcome(said=answered(*outcomes), outages=outages).failed() is fails


def test_a_commit_that_was_never_answered_is_of_a_killed_process() -> None:
    assert acknowledged(answered("done", "killed", "failed")) == (1, 2)
