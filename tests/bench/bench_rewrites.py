"""The shared worker compared with a job per table, and with one session that loops Iceberg's procedure.

    PYTHONPATH=functions:. python tests/bench/bench_rewrites.py [--tables N] [--jobs N] [--rounds N] [--rows N]

N small tables have four files each. Each contender has tables of its own, equal to the others', and is a new process
with a Spark session on local[2]; CPU time is that of the process and all its descendants, Spark's start included. A few
jobs are run, and their mean is multiplied with the number of tables. Then one large table is rewritten in each round
by the shared worker and by the procedure; times are from when the session has started. Catalog and store are
stand-ins in this process, whose CPU time does not count, and tasks are in memory.
"""

import os
import statistics
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.bench.contenders.rewrites import AT_ONCE, MASTER
from tests.bench.frame import Figures, load, options
from tests.bench.loads.children import measured
from tests.integration.local.catalog_world import BUCKET, REGION, Stack, connect
from tests.kit.printing import print_now

SCRIPT = Path(__file__).parent / "contenders" / "rewrites.py"
FILES = 4
_CORES = 2
"""Of the session, which are held as long as it lasts."""


class Lake:
    """Tables of a stack, each of as many files as were appended."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.owner = connect(stack, "owner")

    def write(self, namespace: str, name: str, files: int, rows: int) -> str:
        """Write a table with so many rows in each file; return its name."""
        self.owner.create_namespace_if_not_exists(namespace)
        random = np.random.default_rng(seed=rows)
        batch = pa.table(
            {
                "id": random.integers(0, 2**62, rows),
                "amount": random.integers(0, 10_000, rows),
                "text": pa.array(random.integers(0, 10**9, rows)).cast(pa.string()),
            }
        )
        table = self.owner.create_table((namespace, name), batch.schema)
        with table.transaction() as commit:
            for _ in range(files):
                commit.append(batch)
        return f"{namespace}.{name}"


def contend(lake: Lake, name: str, *tables: str) -> Figures:
    figures = measured(name, sys.executable, str(SCRIPT), name, lake.stack.catalog.url, "--tables", *tables)
    took = f"{figures['session']:.1f} s until Spark has started, then {figures['seconds']:.1f} s"
    print_now(f"  {name}, {len(tables)} tables: {took}; {figures['tree_cpu']:.1f} s of CPU; load {load()}")
    return figures


def small_tables(lake: Lake, count: int, jobs: int) -> None:
    """Print the CPU times for many small tables, and the ratios."""
    named = {
        name: [lake.write(f"{name}s", f"t{number}", FILES, 1_000) for number in range(tables)]
        for name, tables in (("shared", count), ("loop", count), ("job", jobs))
    }
    print_now(f"{count} small tables of {FILES} files, {AT_ONCE} at a time in the shared worker:")
    shared = contend(lake, "shared", *named["shared"])
    loop = contend(lake, "loop", *named["loop"])
    each = [contend(lake, "job", table) for table in named["job"]]
    cpu = {
        "shared worker": shared["tree_cpu"],
        "procedure in a loop": loop["tree_cpu"],
        "job per table": count * statistics.mean(figures["tree_cpu"] for figures in each),
    }
    wall = {
        "shared worker": shared["session"] + shared["seconds"],
        "procedure in a loop": loop["session"] + loop["seconds"],
        "job per table": count * statistics.mean(figures["session"] + figures["seconds"] for figures in each),
    }
    for name, seconds in cpu.items():
        multiplied = f", from {jobs} jobs" if name == "job per table" else ""
        held = _CORES * wall[name]
        print_now(f"  {name:20} {seconds:8,.0f} s of CPU, {held:8,.0f} vCPU seconds held{multiplied}")
    for name in ("job per table", "procedure in a loop"):
        ratios = cpu["shared worker"] / cpu[name], wall["shared worker"] / wall[name]
        print_now(
            f"  the shared worker takes {ratios[0]:.3f} of the CPU time and {ratios[1]:.3f} of the time of: {name}"
        )


def large_table(lake: Lake, rows: int, files: int, rounds: int) -> None:
    """Print the times for one large table, and their ratio."""
    times: dict[str, list[float]] = {"shared": [], "loop": []}
    cpu: dict[str, list[float]] = {"shared": [], "loop": []}
    print_now(f"one table of {files} files with {rows:,} rows each, {rounds} rounds:")
    for number in range(rounds):
        for name in sorted(times, reverse=number % 2 == 0):
            figures = contend(lake, name, lake.write(f"{name}s", f"large{number}", files, rows))
            times[name].append(figures["seconds"])
            cpu[name].append(figures["tree_cpu"])
    for what, found in (("time", times), ("CPU time", cpu)):
        ours, theirs = statistics.median(found["shared"]), statistics.median(found["loop"])
        print_now(
            f"  {what}: shared worker {ours:.1f} s, procedure {theirs:.1f} s (medians): {ours / theirs:.3f} of it; "
            f"fastest {min(found['shared']) / min(found['loop']):.3f}"
        )


def main() -> None:
    given = options(__doc__, tables=200, jobs=3, rounds=3, rows=500_000, files=12)
    print_now(f"Spark {MASTER}, {os.cpu_count()} cores, load average {load()}")
    stack = Stack()
    try:
        stack.admin.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        lake = Lake(stack)
        if given.tables:
            small_tables(lake, given.tables, given.jobs)
        if given.rounds:
            large_table(lake, given.rows, given.files, given.rounds)
    finally:
        stack.stop()


if __name__ == "__main__":
    main()
