"""The Spark engine compared with Iceberg's action, pyiceberg and boto3 on one table, served over HTTP.

    PYTHONPATH=functions:. python tests/bench/bench_spark.py [--entries N] [--rounds N] [--memory 4g] [--only NAME …]

The table has N entries in 200 manifests; its store answers each delete call after 20 ms. Every run is a new process
(and JVM), Spark is local[2] with the same driver memory for all; rounds are interleaved and figures are medians.
Iceberg's `DeleteReachableFilesSparkAction` runs with its defaults and tuned (1,000 keys a call, 16 threads); it writes
no plan, the Spark engine does. Ours has the JVM's options of the service's jobs, the action Spark's own. `purge_table`
of pyiceberg deletes file by file, so it gets a small table and its time per file is multiplied. Then the engine runs
alone on small and large tables, for the driver's Python RSS and the JVM's heap after a collection. Memory is the peak
of all processes of a run (PSS). Jars are loaded by spark.jars.packages.
"""

import argparse
import os
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.bench.loads.apart import PARTS
from tests.bench.loads.big_table import BigTable
from tests.bench.loads.children import run
from tests.bench.servers.s3_server import S3Server
from tests.kit.printing import print_now

RIVALS = ("action", "action tuned", "boto3")
NAMES = {
    "ours": "ours, plan written",
    "action": "Iceberg's action, defaults (250 keys, 2 in flight)",
    "action tuned": "Iceberg's action, tuned (1,000 keys, 16 threads)",
    "boto3": "fastavro and boto3, 1,000 keys, one thread",
    "pyiceberg": "pyiceberg purge_table",
}
Rounds = dict[str, list[dict[str, float]]]


def compete(table: BigTable, names: list[str], rounds: int, memory: str) -> Rounds:
    """Run each contender once a round."""
    found: Rounds = defaultdict(list)
    with S3Server(table) as server:
        for number in range(rounds):
            for name in names:
                figures = run(name, server, table, "--memory", memory)
                found[name].append(figures)
                times = f"{figures['seconds']:.1f} s, {figures['tree_cpu']:.0f} s of CPU"
                print_now(f"  round {number + 1}, {name}: {times}, {figures['tree_mb']:,.0f} MB; load {load()}")
    return found


def report(table: BigTable, found: Rounds) -> None:
    """Print the medians and our ratio to each."""
    print_now(f"{table.entries:,} entries, medians of {len(next(iter(found.values())))}:")
    for name, runs in found.items():
        line = f"  {NAMES[name]:52} {median(runs, 'seconds'):7.1f} s {median(runs, 'tree_mb'):8,.0f} MB"
        line += f" {median(runs, 'tree_cpu'):7.0f} s of CPU"
        if name == "ours":
            line += f"   planning {median(runs, 'planning'):.1f} s, {median(runs, 'java_mb'):,.0f} MB of it Java's"
            print_now(line)
            line = f"    of the CPU time: {apart(runs)}"
        elif "ours" in found:
            seconds, memory = (median(found["ours"], what) / median(runs, what) for what in ("seconds", "tree_mb"))
            line += (
                f"   ours takes {seconds:.2f} of its time ({1 / seconds:.1f} times as fast), {memory:.2f} of its memory"
            )
        print_now(line)


def apart(runs: list[dict[str, float]]) -> str:
    """Return what takes our CPU time; Spark's daemon, which starts the workers, is what is left."""
    found = {"Java": median(runs, "java_cpu"), "the driver": median(runs, "driver")}
    found |= {f"workers' {what}": median(runs, what) for what in PARTS}
    found["the daemon of the workers"] = max(0.0, median(runs, "tree_cpu") - sum(found.values()))
    return ", ".join(f"{what} {seconds:.1f} s" for what, seconds in found.items())


def one_by_one(entries: int, files: int, rounds: int) -> None:
    """Print pyiceberg's time for a table of `entries`, and its time multiplied to `files`."""
    with tempfile.TemporaryDirectory() as folder:
        table = BigTable(Path(folder), entries, 10).write()
        with S3Server(table) as server:
            seconds = statistics.median(run("pyiceberg", server, table)["seconds"] for _ in range(rounds))
    per_file = seconds / table.files
    print_now(
        f"  {NAMES['pyiceberg']:52} {seconds:7.1f} s for {table.files:,} files, {per_file * files:,.0f} s for {files:,}"
    )


def stays_flat(sizes: list[int], manifests: int, memory: str) -> None:
    """Print the driver's memory after a purge of each size."""
    held: dict[int, dict[str, float]] = {}
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


def median(runs: list[dict[str, float]], what: str) -> float:
    return statistics.median(one[what] for one in runs)


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--entries", type=int, default=1_000_000)
    options.add_argument("--manifests", type=int, default=200)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--memory", default="4g")
    options.add_argument("--sizes", type=int, nargs="*", default=[100_000, 2_000_000])
    options.add_argument("--few", type=int, default=500, help="entries of pyiceberg's table")
    options.add_argument("--only", nargs="+", choices=sorted(NAMES), default=list(NAMES))
    given = options.parse_args()
    print_now(f"Spark local[2], driver memory {given.memory}, {os.cpu_count()} cores, load average {load()}")
    with tempfile.TemporaryDirectory() as folder:
        table = BigTable(Path(folder), given.entries, given.manifests).write()
        names = [name for name in ("ours", *RIVALS) if name in given.only]
        if names:
            report(table, compete(table, names, given.rounds, given.memory))
    if "pyiceberg" in given.only:
        one_by_one(given.few, table.files, given.rounds)
    if given.sizes and "ours" in given.only:
        stays_flat(given.sizes, given.manifests, given.memory)


if __name__ == "__main__":
    main()
