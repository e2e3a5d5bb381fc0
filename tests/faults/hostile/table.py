"""Purge tables from a store that is wrong in every way, then from a sound one, and print what came of it.

    PYTHONPATH=functions:. python -m tests.faults.hostile.table [--engine inline|spark] [--size NAME] [--way NAME]
        [--operation purge|expiry|removal]

Each engine purges a small, a large and a resumed table in each way, Spark all of them in one session. Expiries and
removals of orphan files run inline, on one size, in all ways but those in which the store confirms deletes that it does
not make: nothing can show them these. The exit status is 1 if a run is PURGED with a file left, deletes an object that
is not the table's or that it needs, or leaves something with the store that is sound again.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from unittest import mock

from tests.faults.hostile.runs import AWS, SIZES, Ended, Purge, Resources, Run, Worlds, inline
from tests.faults.hostile.stories import STORIES, StoryRun
from tests.faults.hostile.ways import LIARS, WAYS
from tests.kit.explorer import Tally, play_all
from tests.kit.printing import print_now

ENGINES = ("inline", "spark")
Case = tuple[str, str]
"""A way, and the size of the table or the operation."""


def told(ended: Ended) -> tuple[str, Sequence[str]]:
    return ("never done", "done once the store was sound", "done at once")[ended.well], ended.problems


def purges(engine: str, cases: Sequence[Case], purge: Purge, print_line: Callable[[str], object] = print_now) -> Tally:
    """Purge in each way and size."""
    worlds = Worlds()
    return play_all(engine, cases, lambda one: told(Run(worlds, one[1], purge).play(one[0], WAYS[one[0]])), print_line)


def spark_purges(cases: Sequence[Case], print_line: Callable[[str], object] = print_now) -> Tally:
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

        return purges("spark", cases, purge, print_line)


def upkeep(cases: Sequence[Case], print_line: Callable[[str], object] = print_now) -> Tally:
    """Expire, and remove orphan files, in each way in which a store can be found to be wrong."""
    found = [one for one in cases if one[0] not in LIARS]
    return play_all("upkeep", found, lambda one: told(StoryRun(one[1]).play(one[0], WAYS[one[0]])), print_line)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Purge from a store that is wrong in every way.")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="one engine only")
    parser.add_argument("--size", choices=SIZES, action="append", help="one size only; may be repeated")
    operations = ("purge", *STORIES)
    parser.add_argument("--operation", choices=operations, action="append", help="one operation only; may be repeated")
    parser.add_argument("--way", choices=WAYS, action="append", help="one way only; may be repeated")
    given = parser.parse_args(arguments)
    engines, asked, names = given.engine or ENGINES, given.operation or operations, given.way or list(WAYS)
    sizes = list(itertools.product(names, given.size or SIZES)) if "purge" in asked else []
    stories = list(itertools.product(names, [one for one in STORIES if one in asked]))
    tallies = []
    with mock.patch.dict(os.environ, AWS):
        if "inline" in engines:
            tallies += [purges("inline", sizes, inline), upkeep(stories)]
        if "spark" in engines and sizes:
            tallies.append(spark_purges(sizes))
    return 1 if any(one.wrong for one in tallies) or not any(one.ends for one in tallies) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
