"""The inline engine and the Spark engine by the number of files, against a store that deletes as fast as S3.

    PYTHONPATH=functions:. python tests/bench/bench_engines.py [--entries N …] [--engines inline spark] [--limit N]

Each row is one whole purge, planned and deleted, in a new process: CPU seconds and the peak memory (PSS) of it and of
all its children, the peak of Python's temporary files, and the seconds that the purge took. The inline engine is bound
to one core, as in a Lambda function of 1,769 MB; Spark is local[2], its time without the start of the session. The
store is a server in its own process that answers a delete call after 20 ms, and 503 SlowDown beyond `--limit` keys a
second, by default 3,500 (Amazon S3 user guide, "Best practices design patterns": so many deletes a second per prefix).
"""

import os
import tempfile
from pathlib import Path

from tests.bench.frame import load, options
from tests.bench.loads.big_table import BigTable
from tests.bench.loads.children import run
from tests.bench.servers.s3_server import S3Server
from tests.kit.printing import print_now

ENGINES = {"inline": "inline", "spark": "ours"}
ENTRIES_OF_A_MANIFEST = 5_000


def measure(entries: int, engines: list[str], limit: float) -> None:
    """Print a row for each engine that purges a table of so many data files."""
    with tempfile.TemporaryDirectory() as folder:
        table = BigTable(Path(folder), entries, max(entries // ENTRIES_OF_A_MANIFEST, 1)).write()
        with S3Server(table, limit) as server:
            for engine in engines:
                seen = run(ENGINES[engine], server, table)
                figures = f"{seen['tree_cpu']:.1f} | {seen['tree_mb']:,.0f} | {seen['disk_mb']:.0f}"
                print_now(f"| {entries:,} | {engine} | {figures} | {seen['seconds']:.1f} |")


def main() -> None:
    given = options(
        __doc__, chosen={"engines": sorted(ENGINES)}, entries=[1_000, 10_000, 100_000, 1_000_000], limit=3_500.0
    )
    print_now("| files | engine | CPU s | memory MB | disk MB | seconds |\n|---|---|---|---|---|---|")
    for entries in given.entries:
        measure(entries, given.engines, given.limit)
    print_now(f"load average {load()} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
