"""Purge tables from a store that is wrong in every way, then from a sound one, and print what came of it.

    PYTHONPATH=functions:. python -m tests.faults.hostile.table [--engine inline|spark] [--way NAME]

The inline engine purges a small, a large and a resumed table in each way; the Spark engine a small one, all in one
session. The exit status is 1 unless every run happened, no run is PURGED with a file left or deletes an object that is
not the table's, and every purge from the store that is sound again leaves nothing.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from unittest import mock

from tests.faults.hostile.runs import AWS, SIZES, SMALL_SIZE, Purge, Resources, Row, Run, Worlds, inline
from tests.faults.hostile.ways import WAYS

_RUNS = 2  # in each way: one that is wrong, one that is sound


def play(names: Iterable[str], sizes: Sequence[str], purge: Purge) -> list[Row]:
    """Return a row for each way."""
    worlds, rows = Worlds(), []
    for name in names:
        row = Row(name)
        for size in sizes:
            row.add(Run(worlds, size, purge).play(name, WAYS[name]))
        rows.append(row)
    return rows


def play_spark(names: Iterable[str]) -> list[Row]:
    """Return a row for each way, purged with one Spark session."""
    from delegation.operations.purge import spark as spark_engine
    from delegation.operations.purge.context import PurgeContext, PurgeResult
    from delegation.worksets.engines import spark as spark_jobs
    from tests.spark_sessions import spark_session

    with (
        spark_session(environment=AWS, **{"spark.ui.showConsoleProgress": "false"}) as spark,
        mock.patch.object(spark_jobs, "POLL_SECONDS", 0.05),
    ):
        spark.sparkContext.setLogLevel("OFF")

        def purge(ctx: PurgeContext, resources: Resources) -> PurgeResult:
            return spark_engine.purge_with_spark(spark, ctx, resources)

        return play(names, [SMALL_SIZE], purge)


def failures(rows: Iterable[Row], *, runs: int, ways: int) -> list[str]:
    """Return what is wrong with the rows, each of which needs so many runs."""
    listed = list(rows)
    found = [problem for row in listed for problem in row.problems]
    found += [f"{row.way}: {row.runs} of {runs} runs happened" for row in listed if row.runs != runs]
    found += [f"{row.way}: {row.left} left, {row.foreign} foreign" for row in listed if row.left or row.foreign]
    return found if len(listed) == ways else [*found, f"{len(listed)} of {ways} ways happened"]


def lines(title: str, rows: Sequence[Row]) -> list[str]:
    total = Row("all ways")
    for row in rows:
        total.add(row)
    width = max(len(row.way) for row in (*rows, total))
    head = f"{title:<{width}}  runs  PURGED  left  foreign"
    return [
        head,
        *(f"{row.way:<{width}}  {row.runs:4}  {row.purged:6}  {row.left:4}  {row.foreign:7}" for row in (*rows, total)),
    ]


def main(print_line: Callable[[str], object] = lambda line: sys.stdout.write(f"{line}\n")) -> int:
    parser = argparse.ArgumentParser(description="Purge from a store that is wrong in every way.")
    parser.add_argument("--engine", choices=("inline", "spark"), help="one engine only")
    parser.add_argument("--way", choices=WAYS, action="append", help="one way only; may be repeated")
    options = parser.parse_args()
    names = options.way or list(WAYS)
    found: list[str] = []
    with mock.patch.dict(os.environ, AWS):
        if options.engine != "spark":
            rows = play(names, SIZES, inline)
            found += failures(rows, runs=_RUNS * len(SIZES), ways=len(names))
            for line in lines("inline", rows):
                print_line(line)
        if options.engine != "inline":
            rows = play_spark(names)
            found += [f"spark: {one}" for one in failures(rows, runs=_RUNS, ways=len(names))]
            for line in lines("spark", rows):
                print_line(line)
    for one in found:
        print_line(one)
    print_line(f"hostile: {len(names)} ways, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
