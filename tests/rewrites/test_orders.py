"""Upserts and a compaction whose commits arrive together and are applied in every order: no row comes back, none is
lost, and row ids stay."""

import itertools
import os
import random
from collections.abc import Callable, Sequence

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from delegation.rewrites.context import DataFilesRewrite, RewriteResult
from tests.rewrites.held import COMPACTION, Turns, held_commits
from tests.rewrites.world import PlainAttempt, RewriteWorld
from tests.rewrites.written_tables import delete_equal

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
ROWS = 24
MOST_TRIES = 6
UPSERT, EQUALITY, DELETE, APPEND = "M", "E", "D", "A"
PAIRS = [order for kind in (UPSERT, EQUALITY) for order in itertools.permutations((f"{kind}1", COMPACTION))]
TRIPLES = list(itertools.permutations((f"{UPSERT}1", f"{EQUALITY}2", COMPACTION)))
AROUND = [(COMPACTION, f"{kind}1", COMPACTION) for kind in (UPSERT, EQUALITY)]
ORDERS = [(version, order) for version in (2, 3) for order in (*PAIRS, *TRIPLES, *AROUND)]
RANDOM = int(os.environ.get("ORDERS", "12"))
"""A random order takes 10 to 25 s; ORDERS=100 plays a hundred."""


def random_order(seed: int) -> tuple[int, tuple[str, ...]]:
    """Return a format version, and up to four writers and up to three commits of a compaction in a random order."""
    chosen = random.Random(seed)
    kinds = [chosen.choice((UPSERT, UPSERT, EQUALITY, EQUALITY, DELETE, APPEND)) for _ in range(chosen.randint(1, 4))]
    order = [f"{kind}{number}" for number, kind in enumerate(kinds, start=1)] + [COMPACTION] * chosen.randint(1, 3)
    chosen.shuffle(order)
    return chosen.choice((2, 3)), tuple(order)


def writer(world: RewriteWorld, table: str, label: str) -> Callable[[], None]:
    """Return what a writer does to the row of its number, again after a conflict."""
    kind, key = label[0], int(label[1:])
    statements = {
        UPSERT: f"MERGE INTO {table} t USING (SELECT {key} AS id) s ON t.id = s.id "
        f"WHEN MATCHED THEN UPDATE SET amount = {1000 + key}",
        DELETE: f"DELETE FROM {table} WHERE id = {key}",
        APPEND: f"INSERT INTO {table} VALUES ({1000 + key}, 'eu', {key})",
    }

    def write() -> None:
        for tries in range(1, MOST_TRIES + 1):
            try:
                if kind == EQUALITY:
                    delete_equal(world, table, key)
                else:
                    world.sql(statements[kind])
            except (PySparkException, Py4JJavaError):
                if tries == MOST_TRIES:
                    raise
            else:
                return

    return write


def expected(rows: Sequence[tuple[int, str, int]], order: Sequence[str]) -> list[tuple[int, str, int]]:
    by_id = {row[0]: row for row in rows}
    for label in set(order) - {COMPACTION}:
        kind, key = label[0], int(label[1:])
        if kind == UPSERT:
            by_id[key] = (key, by_id[key][1], 1000 + key)
        elif kind == APPEND:
            by_id[1000 + key] = (1000 + key, "eu", key)
        else:
            del by_id[key]
    return sorted(by_id.values(), key=repr)


def play(world: RewriteWorld, name: str, version: int, order: Sequence[str]) -> RewriteResult:
    """Let the commits pass in an order, and check the rows and their ids."""
    table = world.filled(name, version, rows=ROWS, files=3)
    rows, row_ids = world.rows(table), world.lineage(table) if version == 3 else {}
    commits = order.count(COMPACTION)
    options = {"min-input-files": "2", "delete-file-threshold": "1", "partial-progress.max-commits": str(commits)}
    results: list[RewriteResult] = []

    def compact() -> None:
        results.append(world.run(name, PlainAttempt(), DataFilesRewrite(options=options)))

    works = {label: writer(world, table, label) for label in sorted(set(order) - {COMPACTION})}
    turns = Turns(order)
    with held_commits(turns):
        turns.play({**works, COMPACTION: compact})
    wanted = expected(rows, order)
    assert world.rows(table) == wanted
    # Rewritten once more, deletes that were not applied in time would be lost.
    world.run(name, PlainAttempt("task-2"), DataFilesRewrite(options={**options, "rewrite-all": "true"}))
    assert world.rows(table) == wanted
    if version == 3:
        kept = world.lineage(table)
        changed = {int(label[1:]) for label in works}
        assert {key: kept[key] for key in row_ids if key not in changed} == {
            key: ids for key, ids in row_ids.items() if key not in changed
        }
        assert all(kept[key][0] == row_ids[key][0] for key in changed if key in kept and key in row_ids)
    world.sql(f"DROP TABLE {table}")
    return results[0]


@pytest.mark.parametrize(
    ("version", "order"),
    [
        pytest.param(version, order, marks=() if order == (COMPACTION, "E1") and version == 3 else pytest.mark.long)
        for version, order in ORDERS
    ],
)
def test_every_order_of_two_and_three_commits(world: RewriteWorld, version: int, order: Sequence[str]) -> None:
    result = play(world, f"order{version}{'_'.join(order)}", version, order)
    assert result.status == "REWRITTEN"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(RANDOM))
def test_random_orders(world: RewriteWorld, seed: int) -> None:
    play(world, f"random{seed}", *random_order(seed))
