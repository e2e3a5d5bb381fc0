"""The Spark engine compared with Iceberg's action on one table, served over HTTP.

    PYTHONPATH=functions:. python tests/bench/bench_spark.py [--entries N] [--rounds N] [--memory 4g] [--only NAME …]

The table has N entries in 200 manifests; its store answers each delete call after 20 ms. Every run is a new process
(and JVM), Spark is local[2] with the same driver memory for all; rounds are interleaved and figures are medians.
Iceberg's `DeleteReachableFilesSparkAction` runs with its defaults and tuned (1,000 keys a call, 16 threads); it writes
no plan, the Spark engine does. Ours has the JVM's options of the service's jobs, the action Spark's own. Then
the engine runs alone on small and large tables, for the driver's Python RSS and the JVM's heap after a collection.
Memory is the peak of all processes of a run (PSS). Jars are loaded by spark.jars.packages.
"""

import tempfile
from pathlib import Path

from tests.bench.actions.report import Rounds, begin, compete, ratio
from tests.bench.frame import Figures, median, options
from tests.bench.loads.apart import PARTS
from tests.bench.loads.big_table import BigTable
from tests.bench.loads.children import run
from tests.bench.servers.s3_server import S3Server
from tests.kit.printing import print_now

NAMES = {
    "ours": "ours, plan written",
    "action": "Iceberg's action, defaults (250 keys, 2 in flight)",
    "action tuned": "Iceberg's action, tuned (1,000 keys, 16 threads)",
}


def report(table: BigTable, found: Rounds) -> None:
    """Print the medians and our ratio to each."""
    print_now(f"{table.entries:,} entries, medians of {len(next(iter(found.values())))}:")
    for name, runs in found.items():
        line = f"  {NAMES[name]:52} {median(runs, 'seconds'):7.1f} s {median(runs, 'tree_mb'):8,.0f} MB"
        print_now(f"{line} {median(runs, 'tree_cpu'):7.0f} s of CPU{ratio(found, name)}")
        if name == "ours":
            print_now(f"    planning {median(runs, 'planning'):.1f} s, {median(runs, 'java_mb'):,.0f} MB of it Java's")
            print_now(f"    of the CPU time: {apart(runs)}")


def apart(runs: list[Figures]) -> str:
    """Return what takes our CPU time; Spark's daemon, which starts the workers, is what is left."""
    found = {"Java": median(runs, "java_cpu"), "the driver": median(runs, "driver")}
    found |= {f"workers' {what}": median(runs, what) for what in PARTS}
    found["the daemon of the workers"] = max(0.0, median(runs, "tree_cpu") - sum(found.values()))
    return ", ".join(f"{what} {seconds:.1f} s" for what, seconds in found.items())


def stays_flat(sizes: list[int], manifests: int, memory: str) -> None:
    """Print the driver's memory after a purge of each size."""
    held: dict[int, Figures] = {}
    for entries in sizes:
        with tempfile.TemporaryDirectory() as folder:
            table = BigTable(Path(folder), entries, manifests).write()
            with S3Server(table) as server:
                held[entries] = run("ours", server, table, "--memory", memory)
        figures = held[entries]
        sizes_mb = f"driver's Python {figures['driver_mb']:.0f} MB, JVM heap {figures['heap_mb']:.1f} MB"
        rest = f"all processes {figures['tree_mb']:,.0f} MB, {figures['seconds']:.1f} s"
        print_now(f"  {entries:9,} entries: {sizes_mb}; {rest}")
    small, large = held[min(sizes)], held[max(sizes)]
    driver, heap = (large[what] / small[what] - 1 for what in ("driver_mb", "heap_mb"))
    print_now(f"  from {min(sizes):,} to {max(sizes):,} entries: driver's Python {driver:+.1%}, JVM heap {heap:+.1%}")


def main() -> None:
    given = options(
        __doc__,
        chosen={"only": list(NAMES)},
        entries=1_000_000,
        manifests=200,
        rounds=3,
        memory="4g",
        sizes=[100_000, 2_000_000],
    )
    begin(given.memory)
    with tempfile.TemporaryDirectory() as folder:
        table = BigTable(Path(folder), given.entries, given.manifests).write()
        names = [name for name in NAMES if name in given.only]
        if names:
            report(table, compete(table, names, given.rounds, "--memory", given.memory))
    if given.sizes and "ours" in given.only:
        stays_flat(given.sizes, given.manifests, given.memory)


if __name__ == "__main__":
    main()
