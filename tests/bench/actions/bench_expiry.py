"""An expiry of 499 of 500 snapshots and their million files, compared with Iceberg's ExpireSnapshots action.

    PYTHONPATH=functions:. python tests/bench/actions/bench_expiry.py [--entries N] [--snapshots N] [--rounds N]

Each snapshot replaced all files of the one before, so all files but those of the last snapshot go. Both work on one
table, served over HTTP; the store answers each delete call after 20 ms. Every run is a new process (and JVM); Spark
is local[2], ours runs inline on one core. Rounds are interleaved and figures are medians. The action runs with its
defaults and tuned (1,000 keys a call, 16 threads). It writes no plan; ours writes its plan, marks and receipt. Memory
is the peak of all processes of a run (PSS). Both must leave exactly what the last snapshot needs.
"""

import tempfile
from pathlib import Path

from tests.bench.actions.report import NAMES, begin, compete, report
from tests.bench.frame import Figures, options
from tests.bench.loads.snapshots import OverwrittenTable


def main() -> None:
    given = options(__doc__, chosen={"only": list(NAMES)}, entries=1_000_000, snapshots=500, rounds=3, memory="4g")
    begin(given.memory)
    with tempfile.TemporaryDirectory() as folder:
        table = OverwrittenTable(Path(folder), given.entries, given.snapshots).write()
        gone = table.entries + 2 * table.manifests - table.kept

        def left(figures: Figures) -> str | None:
            # The catalogs keep the former metadata.json.
            wanted = table.kept + 1
            return None if figures["left"] == wanted else f"{figures['left']:,.0f} objects, not {wanted:,}"

        words = ("--memory", given.memory, "--kept-since", str(table.last_ms))
        names = [name for name in NAMES if name in given.only]
        found = compete(table, names, given.rounds, *words, script="expiry", left=left)
        report(f"{table.manifests:,} snapshots, {gone:,} files to delete", found)


if __name__ == "__main__":
    main()
