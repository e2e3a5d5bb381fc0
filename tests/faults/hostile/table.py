"""Purge tables from a store that is wrong in every way, then from a sound one, and print what came of it.

    PYTHONPATH=functions:. python -m tests.faults.hostile.table [--engine inline|spark] [--size NAME] [--way NAME]
        [--operation purge|expiry|removal]

Each engine purges a small, a large and a resumed table in each way, Spark all of them in one session. Expiries and
removals of orphan files run inline, on one size, in all ways but those in which the store confirms deletes that it does
not make: nothing can show them these. One table has a row for each way, and totals for each engine and size. The exit
status is 1 unless every run happened, no run is PURGED with a file left or deletes an object that is not the table's or
that it needs, and every run with the store that is sound again leaves nothing.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from unittest import mock

from tests.faults.hostile.runs import AWS, SIZES, Purge, Resources, Row, Run, Worlds, inline
from tests.faults.hostile.stories import STORIES, StoryRun
from tests.faults.hostile.ways import LIARS, WAYS
from tests.kit.printing import print_now

ENGINES = ("inline", "spark")
_RUNS = 2  # for each way, engine and size: one that is wrong, one that is sound


@dataclass(frozen=True)
class Cell:
    """What came of the purges by one engine of a table of one size, in one way."""

    engine: str
    size: str
    row: Row


def play(names: Sequence[str], sizes: Sequence[str], engine: str, purge: Purge) -> list[Cell]:
    """Purge in each way and size; the totals are printed after each way."""
    worlds, cells = Worlds(), []
    for number, name in enumerate(names, 1):
        cells += [Cell(engine, size, Run(worlds, size, purge).play(name, WAYS[name])) for size in sizes]
        print_now(so_far(cells, f"{engine}: {number} of {len(names)} ways, last {name}"))
    return cells


def play_stories(names: Sequence[str], operations: Sequence[str]) -> list[Cell]:
    """Expire, and remove orphan files, in each way in which a store can be found to be wrong."""
    cells: list[Cell] = []
    for number, name in enumerate(names, 1):
        cells += [Cell("inline", one, StoryRun(one).play(name, WAYS[name])) for one in operations if name not in LIARS]
        print_now(so_far(cells, f"{', '.join(operations)}: {number} of {len(names)} ways, last {name}"))
    return cells


def so_far(cells: Iterable[Cell], where: str) -> str:
    """Return the totals of the runs that were made."""
    everything = Row("")
    for one in cells:
        everything.add(one.row)
    return (
        f"{where}: {everything.runs} runs, {everything.purged} PURGED, {everything.left} left, "
        f"{everything.foreign} foreign deleted, {len(everything.problems)} problems"
    )


def play_spark(names: Sequence[str], sizes: Sequence[str]) -> list[Cell]:
    """Purge in each way and size with one Spark session."""
    from delegation.removal import spark as spark_jobs
    from delegation.removal.purge import spark as spark_engine
    from delegation.removal.purge.context import PurgeContext, PurgeResult
    from tests.spark_sessions import spark_session

    with (
        spark_session(environment=AWS, **{"spark.ui.showConsoleProgress": "false"}) as spark,
        mock.patch.object(spark_jobs, "POLL_SECONDS", 0.05),
    ):
        spark.sparkContext.setLogLevel("OFF")

        def purge(ctx: PurgeContext, resources: Resources) -> PurgeResult:
            return spark_engine.purge_with_spark(spark.sparkContext, ctx, resources)

        return play(names, sizes, "spark", purge)


def failures(cells: Iterable[Cell], *, names: Sequence[str], engines: Sequence[str], sizes: Sequence[str]) -> list[str]:
    """Return what is wrong, first the runs of these ways, engines and sizes that did not happen."""
    listed = list(cells)
    runs = Counter[tuple[str, str, str]]()
    for one in listed:
        runs[one.row.way, one.engine, one.size] += one.row.runs
    wanted = [(way, engine, size) for way in names for engine in engines for size in sizes]
    found = [f"{', '.join(one)}: {runs[one]} of {_RUNS} runs happened" for one in wanted if runs[one] != _RUNS]
    found += [f"{', '.join(one)}: was not asked for" for one in runs if one not in set(wanted)]
    for one in listed:
        found += [f"{one.engine}: {problem}" for problem in one.row.problems]
        if one.row.left or one.row.foreign:
            found.append(
                f"{one.row.way}, {one.engine}, {one.size}: {one.row.left} left, {one.row.foreign} foreign deleted"
            )
    return found


def lines(cells: Sequence[Cell]) -> list[str]:
    """Return one table: a row for each way, then totals for each engine and size, and of all."""
    by_way, totals, everything = {}, {}, Row("all")
    for one in cells:
        by_way.setdefault(one.row.way, Row(one.row.way)).add(one.row)
        totals.setdefault((one.engine, one.size), Row(f"all ways, {one.engine}, {one.size}")).add(one.row)
        everything.add(one.row)
    rows = [*by_way.values(), *totals.values(), everything]
    width = max(len(row.way) for row in rows)
    head = f"{'way':<{width}}  runs  PURGED  left  foreign"
    return [head, *(f"{row.way:<{width}}  {row.runs:4}  {row.purged:6}  {row.left:4}  {row.foreign:7}" for row in rows)]


def main(print_line: Callable[[str], object] = lambda line: sys.stdout.write(f"{line}\n")) -> int:
    parser = argparse.ArgumentParser(description="Purge from a store that is wrong in every way.")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="one engine only")
    parser.add_argument("--size", choices=SIZES, action="append", help="one size only; may be repeated")
    operations = ("purge", *STORIES)
    parser.add_argument("--operation", choices=operations, action="append", help="one operation only; may be repeated")
    parser.add_argument("--way", choices=WAYS, action="append", help="one way only; may be repeated")
    options = parser.parse_args()
    names, sizes, engines = options.way or list(WAYS), options.size or SIZES, options.engine or ENGINES
    asked = options.operation or operations
    stories = [one for one in STORIES if one in asked] if "inline" in engines else []
    sizes, cells = sizes if "purge" in asked else (), list[Cell]()
    with mock.patch.dict(os.environ, AWS):
        if "inline" in engines and sizes:
            cells += play(names, sizes, "inline", inline)
        if "spark" in engines and sizes:
            cells += play_spark(names, sizes)
        of_stories = play_stories(names, stories) if stories else []
    found = failures(cells, names=names, engines=engines, sizes=sizes)
    found += failures(of_stories, names=[one for one in names if one not in LIARS], engines=("inline",), sizes=stories)
    cells += of_stories
    for line in (*lines(cells), *found):
        print_line(line)
    runs = sum(one.row.runs for one in cells)
    print_line(
        f"hostile: {len(names)} ways, {len(sizes)} sizes, {len(engines)} engines: {runs} runs, {len(found)} problems"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
