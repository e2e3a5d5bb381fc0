"""An expiry of 499 of 500 snapshots and their million files, compared with Iceberg's ExpireSnapshots action.

    PYTHONPATH=functions:. python tests/bench/actions/bench_expiry.py [--entries N] [--snapshots N] [--rounds N]

Each snapshot replaced all files of the one before, so all files but those of the last snapshot go. Both work on one
table, served over HTTP; the store answers each delete call after 20 ms. Every run is a new process (and JVM); Spark
is local[2], ours runs inline on one core. Rounds are interleaved and figures are medians. The action runs with its
defaults and tuned (1,000 keys a call, 16 threads). It writes no plan; ours writes its plan, marks and receipt. Memory
is the peak of all processes of a run (PSS). Both must leave exactly what the last snapshot needs.
"""

import argparse
import os
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.bench.actions.report import NAMES, Rounds, report
from tests.bench.bench_spark import load
from tests.bench.loads.children import run
from tests.bench.loads.snapshots import OverwrittenTable
from tests.bench.servers.s3_server import S3Server
from tests.kit.printing import print_now

SCRIPT = Path(__file__).parents[1] / "contenders" / "expiry.py"


def compete(table: OverwrittenTable, names: list[str], rounds: int, memory: str) -> Rounds:
    """Run each contender once a round; raises SystemExit if one deletes too much or too little."""
    found: Rounds = defaultdict(list)
    options = ("--memory", memory, "--kept-since", str(table.last_ms))
    with S3Server(table) as server:
        for number in range(rounds):
            for name in names:
                figures = run(name, server, table, *options, whole=False, script=SCRIPT)
                found[name].append(figures)
                times = f"{figures['seconds']:.1f} s, {figures['tree_cpu']:.0f} s of CPU"
                print_now(f"  round {number + 1}, {name}: {times}, {figures['tree_mb']:,.0f} MB; load {load()}")
                # The catalogs keep the former metadata.json.
                if figures["left"] != table.kept + 1:
                    raise SystemExit(f"{name} left {figures['left']:,.0f} objects, not {table.kept + 1:,}")
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--entries", type=int, default=1_000_000)
    options.add_argument("--snapshots", type=int, default=500)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--memory", default="4g")
    options.add_argument("--only", nargs="+", choices=sorted(NAMES), default=list(NAMES))
    given = options.parse_args()
    print_now(f"Spark local[2], driver memory {given.memory}, {os.cpu_count()} cores, load average {load()}")
    with tempfile.TemporaryDirectory() as folder:
        table = OverwrittenTable(Path(folder), given.entries, given.snapshots).write()
        gone = table.entries + 2 * table.manifests - table.kept
        names = [name for name in NAMES if name in given.only]
        found = compete(table, names, given.rounds, given.memory)
        report(f"{table.manifests:,} snapshots, {gone:,} files to delete", found)


if __name__ == "__main__":
    main()
