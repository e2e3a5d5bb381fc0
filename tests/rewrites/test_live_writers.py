"""Writers that commit all the time beside compactions: no append fails, and no more merges than beside Iceberg's
procedure."""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from delegation.rewrites.context import DataFilesRewrite
from delegation.rewrites.terms import CompactionTerms
from tests.rewrites.world import PlainAttempt, RewriteWorld

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
APPENDERS = 8
SECONDS = float(os.environ.get("WRITER_SECONDS", "60"))
REGIONS = 12
ROWS = 72
COLD_AFTER = timedelta(seconds=5)
OPTIONS = {"min-input-files": "2"}
# Appenders conflict with each other, too: without a rewrite Iceberg's four repeats are too few for eight of them.
PATIENT = "'commit.retry.num-retries'='100', 'commit.retry.min-wait-ms'='20', 'commit.retry.max-wait-ms'='500'"


@dataclass
class Counts:
    """What writers did beside so many compactions."""

    commits: int = 0
    failures: int = 0
    compactions: int = 0


def append_beside(world: RewriteWorld, name: str, seconds: float) -> Counts:
    """Append in several threads and compact in this one; check the rows."""
    table = world.filled(name, 3, rows=16)
    world.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({PATIENT})")
    until, counts = time.monotonic() + seconds, Counts()

    def append(number: int) -> list[int]:
        written = []
        while time.monotonic() < until:
            key = 1_000 * (number + 1) + len(written)
            world.sql(f"INSERT INTO {table} VALUES ({key}, '{'eu' if key % 2 else 'us'}', {number})")
            written.append(key)
        return written

    with ThreadPoolExecutor(APPENDERS) as pool:
        appenders = [pool.submit(append, number) for number in range(APPENDERS)]
        while time.monotonic() < until:
            result = world.run(name, PlainAttempt(f"task-{counts.compactions}"), DataFilesRewrite(options=OPTIONS))
            counts.compactions += result.status == "REWRITTEN"
        written = [key for appender in appenders for key in appender.result()]
    assert sorted(row[0] for row in world.rows(table)) == sorted([*range(16), *written])
    counts.commits = len(written)
    return counts


def merge_beside(world: RewriteWorld, name: str, seconds: float, compact: Callable[[int], bool]) -> Counts:
    """Merge into one partition after the other in a thread, in an order by chance, and compact in this one; check the
    rows of what succeeded."""
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    table = world.create(name, "id BIGINT, region STRING, amount INT", **modes, **{"write.distribution-mode": "none"})
    columns = ("id", f"concat('r', id % {REGIONS}) AS region", "0 AS amount")
    world.spark.range(0, ROWS, 1, 3).selectExpr(*columns).writeTo(table).append()
    order, until, counts, done = random.Random(name), time.monotonic() + seconds, Counts(), Counter[int]()
    stopped = threading.Event()

    def merge() -> None:
        while not stopped.is_set():
            key = order.randrange(ROWS)
            try:
                world.sql(
                    f"MERGE INTO {table} t USING (SELECT {key}L AS id, 'r{key % REGIONS}' AS region) s "
                    "ON t.region = s.region AND t.id = s.id WHEN MATCHED THEN UPDATE SET amount = t.amount + 1"
                )
                done[key] += 1
                counts.commits += 1
            except (PySparkException, Py4JJavaError):  # a conflict, as one or the other
                counts.failures += 1

    with ThreadPoolExecutor(1) as pool:
        merger = pool.submit(merge)
        calls = 0
        while time.monotonic() < until:
            counts.compactions += compact(calls)
            calls += 1
        stopped.set()
        merger.result()
    assert {row[0]: row[2] for row in world.rows(table)} == {key: done[key] for key in range(ROWS)}
    return counts


def merges_beside_both(world: RewriteWorld, seconds: float) -> tuple[Counts, Counts]:
    """Return what merges did beside compactions of ours, and beside as many seconds of the procedure."""
    terms = CompactionTerms(min_input_files=2, delete_file_threshold=1, cold_after=COLD_AFTER)

    def ours(number: int) -> bool:
        return world.compact("merged", PlainAttempt(f"task-{number}"), terms) is not None

    def procedure(_number: int) -> bool:
        options = ", ".join(
            f"'{key}', '{value}'"
            for key, value in {**terms.action_options(), "partial-progress.enabled": "true"}.items()
        )
        [row] = world.sql(
            f"CALL lake.system.rewrite_data_files(table => 'sales.merged_plain', options => map({options}))"
        )
        return bool(row[0])

    return (merge_beside(world, "merged", seconds, ours), merge_beside(world, "merged_plain", seconds, procedure))


def test_no_append_fails(world: RewriteWorld) -> None:
    counts = append_beside(world, "appended", SECONDS)
    assert counts.commits > APPENDERS
    assert counts.compactions > 1


def test_merges_fail_no_more_than_beside_the_procedure(world: RewriteWorld) -> None:
    ours, procedure = merges_beside_both(world, SECONDS)
    assert ours.compactions > 1
    # By chance a few more or fewer conflict.
    share, of_procedure = (counts.failures / (counts.commits + counts.failures) for counts in (ours, procedure))
    assert share <= of_procedure + 0.1
