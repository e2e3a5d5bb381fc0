"""A removal of orphan files at a location of a million objects, compared with Iceberg's DeleteOrphanFiles action.

    PYTHONPATH=functions:. python tests/bench/actions/bench_orphans.py [--objects N …] [--every N …] [--rounds N]

Beside every tenth data file (and in a second table beside every hundredth) there is a file that no snapshot names. Both
list one location over HTTP; the store answers each delete call and each page of a listing after 20 ms, and refuses a
delete whose ETag is another one. Every run is a new process (and JVM); Spark is local[2], ours runs on one core.
Figures are medians. Ours looks at each file again before it deletes it, and writes listings, plan, marks and receipt;
the action does none of it. Memory is the peak of all processes of a run (PSS). Both must leave exactly the table.
"""

import itertools
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.actions.report import NAMES, begin, compete, report
from tests.bench.frame import Figures, options
from tests.bench.loads.big_table import BigTable


def compared(objects: int, every: int, given: Any) -> None:
    """Compare the contenders at a location of so many objects."""
    with tempfile.TemporaryDirectory() as folder:
        entries = objects * every // (every + 1) // given.manifests * given.manifests
        table = BigTable(Path(folder), entries, given.manifests, every).write()

        def left(figures: Figures) -> str | None:
            if (figures["left"], figures["files"]) == (table.files, table.orphans):
                return None
            return f"{figures['left']:,.0f} objects, not {table.files:,}"

        names = [name for name in NAMES if name in given.only]
        found = compete(table, names, given.rounds, "--memory", given.memory, script="orphans", left=left)
        report(f"{table.files + table.orphans:,} objects, {table.orphans:,} of them orphan files", found)


def main() -> None:
    given = options(
        __doc__,
        chosen={"only": list(NAMES)},
        objects=[1_000_000, 2_000_000],
        every=[10, 100],
        manifests=200,
        rounds=1,
        memory="4g",
    )
    begin(given.memory)
    for objects, every in itertools.product(given.objects, given.every):
        compared(objects, every, given)


if __name__ == "__main__":
    main()
