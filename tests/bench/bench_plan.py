"""The inline engine on a table of a million files: planned entries per second on one core, and a purge's memory.

    PYTHONPATH=functions:. python tests/bench/bench_plan.py [--entries N] [--manifests N] [--rounds N]

Each round is a new process, bound to one core, that reads over HTTP from a server on another core: first a dry run
(metadata → manifests → the plan's chunks and index), then a purge (plan and deletes) with its peak memory. The rate is
by CPU time, which other processes affect little; the rate by the clock is printed as well.
"""

import tempfile
from pathlib import Path

from tests.bench.frame import load, median, options
from tests.bench.loads.big_table import BigTable
from tests.bench.loads.children import run
from tests.bench.servers.s3_server import S3Server
from tests.kit.printing import print_now


def measure(table: BigTable, rounds: int) -> None:
    """Print the medians of plans and purges."""
    with S3Server(table) as server:
        plans, purges = [], []
        for _ in range(rounds):
            plans.append(run("inline", server, table, "--dry-run"))
            purges.append(run("inline", server, table))
    cpu, seconds = (median(plans, name) for name in ("cpu", "seconds"))
    rates = f"{table.entries / cpu:,.0f} entries/s of CPU time, {table.entries / seconds:,.0f} by the clock"
    print_now(f"plan   {table.entries:,} entries: {seconds:.1f} s, {rates}; peak {worst(plans):,.0f} MB")
    cpu, seconds = (median(purges, name) for name in ("cpu", "seconds"))
    base = max(one["before_mb"] for one in purges)
    times = f"{cpu:.1f} s of CPU time, {seconds:.1f} s by the clock"
    print_now(f"purge  {table.entries:,} entries: {times}; peak {worst(purges):,.0f} MB, {base:,.0f} of it imports")


def worst(rounds: list[dict[str, float]]) -> float:
    return max(one["peak_mb"] for one in rounds)


def main() -> None:
    given = options(__doc__, entries=[100_000, 1_000_000], manifests=200, rounds=3)
    print_now(f"inline engine, {given.manifests} manifests, one core; load average {load()}")
    for entries in given.entries:
        with tempfile.TemporaryDirectory() as folder:
            measure(BigTable(Path(folder), entries, given.manifests).write(), given.rounds)


if __name__ == "__main__":
    main()
