"""CPU time of a cold process that reads a table's manifests, with and without learned expressions.

    PYTHONPATH=functions:. python tests/bench/bench_cold_reader.py [--repeats N]

Each figure is the median over fresh processes, in turn with and without, of the CPU time that reading takes; imports
and the making of manifests are not in it.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.frame import options
from tests.bench.loads.manifests import manifest
from tests.kit.printing import print_now

TABLES = (
    (1, 5),
    (1, 50),
    (1, 1000),
    (3, 1000),
    (5, 1000),
    (10, 50),
    (10, 1000),
    (50, 50),
    (50, 1000),
    (1000, 20),
    (1000, 200),
)
"""Manifests, and entries of each."""
DISTINCT = 50
CHILD = """
import json, sys, time
from pathlib import Path
from delegation.iceberg.avro import manifests, shapes
if sys.argv[1] == "without":
    shapes.COLD_RECORDS = 1 << 62
files = [path.read_bytes() for path in sorted(Path(sys.argv[2]).iterdir())]
begun = time.process_time()
entries = 0
for number in range(int(sys.argv[3])):
    for rows in manifests.read_paths(files[number % len(files)], "m"):
        entries += len(rows)
print(json.dumps([entries, time.process_time() - begun]))
"""


def measured(how: str, folder: str, manifests: int) -> float:
    run = [sys.executable, "-c", CHILD, how, folder, str(manifests)]
    entries, seconds = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    assert entries
    return float(seconds)


def main() -> None:
    repeats = options(__doc__, repeats=5).repeats
    print_now("manifests entries/manifest   with ms  without ms  with/without")
    for manifests, entries in TABLES:
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(min(manifests, DISTINCT)):
                (Path(folder) / f"{seed:03d}").write_bytes(manifest(seed, entries, 20, "deflate"))
            rounds = [
                (measured("with", folder, manifests), measured("without", folder, manifests)) for _ in range(repeats)
            ]
        learned, plain = (1000 * statistics.median(each) for each in zip(*rounds, strict=True))
        print_now(f"{manifests:9} {entries:16} {learned:9.1f} {plain:11.1f} {learned / plain:13.2f}")


if __name__ == "__main__":
    main()
