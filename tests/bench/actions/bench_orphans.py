"""A removal of orphan files at a location of a million objects, compared with Iceberg's DeleteOrphanFiles action.

    PYTHONPATH=functions:. python tests/bench/actions/bench_orphans.py [--objects N …] [--every N …] [--rounds N]

Beside every tenth data file (and in a second table beside every hundredth) there is a file that no snapshot names. Both
list one location over HTTP; the store answers each delete call and each page of a listing after 20 ms, and refuses a
delete whose ETag is another one. Every run is a new process (and JVM); Spark is local[2], ours runs on one core.
Figures are medians. Ours looks at each file again before it deletes it, and writes listings, plan, marks and receipt;
the action does none of it. Memory is the peak of all processes of a run (PSS). Both must leave exactly the table.
"""

import argparse
import os
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.bench.actions.report import NAMES, Rounds, report
from tests.bench.bench_spark import load
from tests.bench.loads.big_table import BigTable
from tests.bench.loads.children import run
from tests.bench.servers.s3_server import S3Server
from tests.kit.printing import print_now

SCRIPT = Path(__file__).parents[1] / "contenders" / "orphans.py"


def compete(table: BigTable, names: list[str], rounds: int, memory: str) -> Rounds:
    """Run each contender once a round; raises SystemExit if one deletes too much or too little."""
    found: Rounds = defaultdict(list)
    with S3Server(table) as server:
        for number in range(rounds):
            for name in names:
                figures = run(name, server, table, "--memory", memory, whole=False, script=SCRIPT)
                found[name].append(figures)
                times = f"{figures['seconds']:.1f} s, {figures['tree_cpu']:.0f} s of CPU"
                requests = ", ".join(f"{count:,} {method}" for method, count in sorted(server.requests().items()))
                print_now(
                    f"  round {number + 1}, {name}: {times}, {figures['tree_mb']:,.0f} MB; {requests}; load {load()}"
                )
                if figures["left"] != table.files or figures["files"] != table.orphans:
                    raise SystemExit(f"{name} left {figures['left']:,.0f} objects, not {table.files:,}")
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--objects", type=int, nargs="+", default=[1_000_000, 2_000_000])
    options.add_argument("--every", type=int, nargs="+", default=[10, 100])
    options.add_argument("--manifests", type=int, default=200)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--memory", default="4g")
    options.add_argument("--only", nargs="+", choices=sorted(NAMES), default=list(NAMES))
    given = options.parse_args()
    print_now(f"Spark local[2], driver memory {given.memory}, {os.cpu_count()} cores, load average {load()}")
    for objects, every in [(objects, every) for objects in given.objects for every in given.every]:
        with tempfile.TemporaryDirectory() as folder:
            entries = objects * every // (every + 1) // given.manifests * given.manifests
            table = BigTable(Path(folder), entries, given.manifests, every).write()
            names = [name for name in NAMES if name in given.only]
            found = compete(table, names, given.rounds, given.memory)
            report(f"{table.files + table.orphans:,} objects, {table.orphans:,} of them orphan files", found)


if __name__ == "__main__":
    main()
