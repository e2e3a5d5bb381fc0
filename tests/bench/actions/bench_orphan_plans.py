"""Comparing listed files with needed ones, in one process: its seconds, peak memory, and disk for sorted runs.

    PYTHONPATH=functions:. python tests/bench/actions/bench_orphan_plans.py [--files N ...]

Every eleventh file is an orphan. Each size is a new process; the plan is written to a folder.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from delegation.operations.orphans.context import OrphanOptions, OrphanSettings
from delegation.operations.orphans.index import Candidate
from delegation.operations.orphans.planning.subtraction import subtracted
from delegation.operations.orphans.spelling import joined_all
from delegation.storage.file_system import FilePlanStore
from delegation.storage.locations import Roots
from delegation.worksets.sorting import Sorter

_LISTED: Final = 10_000
_READ: Final = 1_000


def path(number: int) -> str:
    """Return the path of a file as Spark names them."""
    folder = f"s3://lake/warehouse/sales/orders/data/day={number % 400:03d}"
    return f"{folder}/00000-{number}-0d7e3f7a-5f8c-4f0f-9a5e-7c6f1d2e3b4a-00001.parquet"


def candidates(files: int) -> Iterator[list[Candidate]]:
    """Yield all files as they are listed."""
    for first in range(0, files, _LISTED):
        numbers = range(first, min(files, first + _LISTED))
        yield [Candidate(path(number), 1_234, f'"{number:032x}"', 1_700_000_000) for number in numbers]


class Needed:
    """All files but every eleventh, as what tables need (planning.keep.KeepSet)."""

    left = Roots(())

    def __init__(self, files: int) -> None:
        self._files = Sorter()
        equal = OrphanOptions().equal
        for first in range(0, files, _READ):
            paths = [path(number) for number in range(first, min(files, first + _READ)) if number % 11]
            self._files.extend([(text, 0, 0) for text in joined_all(paths, equal)])

    def texts(self) -> Iterator[list[str]]:
        """See KeepSet.texts."""
        return ([text for text, _, _ in rows] for rows in self._files.batches())


def measure(files: int, folder: Path) -> str:
    """Compare so many files; return what it took."""
    tempfile.tempdir = str(folder / "sorted")
    Path(tempfile.tempdir).mkdir()
    ended, most = threading.Event(), [0]

    def watch() -> None:
        while not ended.wait(0.1):
            with suppress(FileNotFoundError):
                runs = (folder / "sorted").rglob("*")
                most[0] = max(most[0], sum(one.stat().st_size for one in runs if one.is_file()))

    watching = threading.Thread(target=watch)
    watching.start()
    ctx: Any = SimpleNamespace(
        plans=FilePlanStore(folder / "plans"), settings=OrphanSettings(), options=OrphanOptions()
    )
    keep: Any = Needed(files)
    began, cpu = time.monotonic(), time.process_time()
    try:
        found = subtracted(ctx, candidates(files), keep, "plan")
    finally:
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu
        ended.set()
        watching.join()
    orphans = sum(chunk.count for chunk in found.chunks)
    peak, disk = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, most[0] / 1_000_000
    took = f"{seconds:.1f} s, {cpu:.1f} s of CPU, {peak:.0f} MB, disk {disk:.0f} MB"
    return f"{files:,} files, {orphans:,} orphans: {took}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--files", type=int, nargs="+", default=[100_000, 1_000_000])
    options.add_argument("--here", action="store_true", help="measure in this process")
    given = options.parse_args()
    for files in given.files:
        if given.here:
            with tempfile.TemporaryDirectory() as folder:
                sys.stdout.write(measure(files, Path(folder)) + "\n")
        else:
            subprocess.run([sys.executable, __file__, "--here", "--files", str(files)], check=True)


if __name__ == "__main__":
    main()
