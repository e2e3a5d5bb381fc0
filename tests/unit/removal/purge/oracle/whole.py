"""Purge every table that Spark and Iceberg wrote, in each way, and compare it with what Iceberg reaches.

    PYTHONPATH=functions:. python -m tests.unit.removal.purge.oracle.whole [--way catalog|direct|spark]

Totals are printed as they go. The exit status is 1 unless every purge is exact: no file too many, none too few.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from delegation.removal.purge.run import purge_table
from polaris_common.errors import DelegationError
from tests.kit.printing import print_now
from tests.kit.running import Running
from tests.unit.removal.purge.oracle.oracle import Purge, check_exact, tables

PurgeOne = Callable[[Purge], object]


@dataclass
class OracleTotals:
    """What came of the purges so far."""

    tables: int = 0
    files: int = 0
    wrong: list[str] = field(default_factory=list)

    def line(self, name: str) -> str:
        return f"{name}: {self.tables} tables, {self.files} files deleted, {len(self.wrong)} not exact"


def play(way: str, named: Sequence[tuple[str, str]], purge_one: PurgeOne, running: Running) -> OracleTotals:
    """Purge tables in one way, each among all others."""
    totals = OracleTotals()
    for scenario, table in named:
        purge = Purge(scenario, table)
        try:
            purge_one(purge)
            check_exact(purge)
        except (DelegationError, AssertionError) as error:
            totals.wrong.append(f"{way}, {scenario}, {table}: {error}")
        totals.tables += 1
        totals.files += len(purge.deleted())
        running.note(totals.line(f"{way}, so far"))
    running.end()
    return totals


@contextmanager
def with_spark() -> Iterator[PurgeOne]:
    """Purge with executors, all in one session."""
    from delegation.removal.purge.spark import purge_with_spark
    from tests.faults.crashes.switch import StoreServer
    from tests.spark_sessions import spark_session

    with spark_session(**{"spark.ui.showConsoleProgress": "false"}) as spark, StoreServer() as server:

        def purge(one: Purge) -> object:
            ctx = one.by_catalog()
            return purge_with_spark(spark.sparkContext, ctx, server.resources(ctx))

        yield purge


def main() -> int:
    parser = argparse.ArgumentParser(description="Purge every fixture table and compare with Iceberg.")
    parser.add_argument("--way", choices=("catalog", "direct", "spark"), action="append", help="one way; repeatable")
    ways = parser.parse_args().way or ["catalog", "direct", "spark"]
    found: list[OracleTotals] = []
    if "catalog" in ways:
        found.append(play("catalog", tables(live=True), lambda one: purge_table(one.by_catalog()), Running()))
    if "direct" in ways:
        found.append(play("direct", tables(), lambda one: one.directly()(), Running()))
    if "spark" in ways:
        with with_spark() as purge_one:
            found.append(play("spark", tables(live=True), purge_one, Running()))
    wrong = [text for one in found for text in one.wrong]
    for text in wrong:
        print_now(text)
    counted = sum(one.tables for one in found), sum(one.files for one in found)
    print_now(f"oracle: {counted[0]} tables, {counted[1]} files deleted, {len(wrong)} not exact")
    return 1 if wrong or not counted[0] else 0


if __name__ == "__main__":
    sys.exit(main())
