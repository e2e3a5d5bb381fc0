"""Comparing listed files with needed ones, in one process or with Spark: seconds, memory and disk of the driver.

    PYTHONPATH=functions:. python tests/bench/actions/bench_orphan_plans.py [--files N ...] [--engines inline spark]

Every eleventh file is an orphan; what is needed is the plan of another task. Each size is a new process; plans are
written to a folder. Spark has two executors of one core, which are processes of their own (`local-cluster`).
"""

import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from delegation.iceberg.paths import RANK, FileType
from delegation.identifiers import TableIdentifier
from delegation.removal.attempt import MemoryAttempt
from delegation.removal.chunks import ChunkWriter, Phase
from delegation.removal.index import PlanIndex
from delegation.removal.orphans.context import OrphanOptions, OrphanSettings
from delegation.removal.orphans.index import Candidate, CandidateWriter
from delegation.removal.orphans.needed_rows import NeededSet, SortedNeeded, StoredParts
from delegation.removal.orphans.place import MismatchMode
from delegation.removal.orphans.subtraction import Orphans, Rules
from delegation.removal.spark_executors import no_checkpoint
from delegation.storage.base import ObjectStore, PlanStore
from delegation.storage.file_system import FilePlanStore
from tests.bench.frame import options
from tests.spark_sessions import spark_session

_LISTED: Final = 10_000
_RULES: Final = Rules(MismatchMode.ERROR)


@dataclass(frozen=True)
class FolderResources:
    """ExecutorResources that have plans in a folder, and no table."""

    folder: str

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        raise NotImplementedError(str(identifier))

    def plans(self) -> PlanStore:
        return FilePlanStore(Path(self.folder))

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        del task_id, attempt
        return no_checkpoint


def path(number: int) -> str:
    """Return the path of a file as Spark names them."""
    folder = f"s3://lake/warehouse/sales/orders/data/day={number // 25_000:04d}"
    return f"{folder}/00000-{number:09d}-0d7e3f7a-5f8c-4f0f-9a5e-7c6f1d2e3b4a-00001.parquet"


def listing(plans: PlanStore, files: int) -> StoredParts:
    """Store all files as they are listed."""
    writer = CandidateWriter(plans, "listing", "", chunk_paths=_LISTED)
    for first in range(0, files, _LISTED):
        numbers = range(first, min(files, first + _LISTED))
        writer.extend(Candidate(path(number), 1_234, f'"{number:032x}"', 1_700_000_000) for number in numbers)
    writer.flush()
    return [("listing", writer.chunks)]


def needed_plan(plans: PlanStore, files: int) -> PlanIndex:
    """Store all files but every eleventh as the plan of another task."""
    writer = ChunkWriter(plans, "other", Phase.DATA, chunk_paths=_LISTED)
    for first in range(0, files, _LISTED):
        numbers = range(first, min(files, first + _LISTED))
        writer.extend([(path(number), RANK[FileType.DATA], 1) for number in numbers if number % 11])
    writer.flush()
    found: Any = SimpleNamespace(plan_id="other", chunks=tuple(writer.chunks))
    return PlanIndex.model_construct(**vars(found))


@contextmanager
def driver_of(engine: str, ctx: Any, folder: Path) -> Iterator[tuple[NeededSet, Callable[[], float]]]:
    """Yield what compares, and what returns the peak MB of the driver's JVM."""
    if engine == "inline":
        yield SortedNeeded(ctx), lambda: 0.0
        return
    from delegation.removal.orphans.spark import SpreadNeeded
    from delegation.removal.spark import SparkJobs

    with spark_session("local-cluster[2,1,1024]") as session:
        context = session.sparkContext
        context.setLogLevel("OFF")
        context.parallelize(range(2), 2).map(str).collect()  # executors are started before the clock is
        jvm = context._gateway.proc.pid

        def peak() -> float:
            status = Path(f"/proc/{jvm}/status").read_text(encoding="utf-8")
            return int(status.split("VmHWM:")[1].split()[0]) / 1024

        yield SpreadNeeded(ctx, SparkJobs(context, FolderResources(str(folder)))), peak


def measure(files: int, engine: str, folder: Path) -> str:
    """Compare so many files; return what it took."""
    plans = FilePlanStore(folder / "plans")
    parts, other = listing(plans, files), needed_plan(plans, files)
    ended, most = threading.Event(), [0]
    sorted_here = folder / "sorted"
    sorted_here.mkdir()

    def watch() -> None:
        while not ended.wait(0.1):
            with suppress(FileNotFoundError):
                most[0] = max(most[0], sum(one.stat().st_size for one in sorted_here.rglob("*") if one.is_file()))

    ctx: Any = SimpleNamespace(
        plans=plans,
        store=None,
        identifier=TableIdentifier("lake", ("sales",), "orders"),
        attempt=MemoryAttempt("task"),
        settings=OrphanSettings(),
        options=OrphanOptions(),
    )
    with driver_of(engine, ctx, folder / "plans") as (needed, jvm):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        # Of this process alone: executors have their own.
        tempfile.tempdir = str(sorted_here)
        watching = threading.Thread(target=watch)
        watching.start()
        jvm_before, began, cpu = jvm(), time.monotonic(), time.process_time()
        try:
            found = compared(needed, other, parts)
        finally:
            seconds, cpu = time.monotonic() - began, time.process_time() - cpu
            ended.set()
            watching.join()
        needed.close()
        orphans, jvm_peak = sum(chunk.count for chunk in found.chunks), jvm()
    peak, disk = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, most[0] / 1_000_000
    took = f"{seconds:.1f} s, {cpu:.1f} s of the driver's CPU, {peak:.0f} MB (before {before:.0f}), disk {disk:.0f} MB"
    more = f", JVM {jvm_peak:.0f} MB (before {jvm_before:.0f})" if engine == "spark" else ""
    return f"{files:,} files, {orphans:,} orphans, {engine}: {took}{more}"


def compared(needed: NeededSet, other: PlanIndex, parts: StoredParts) -> Orphans:
    needed.add_plan(other)
    return needed.subtracted(parts, "plan", _RULES)


def main() -> None:
    given = options(__doc__, chosen={"engines": ["inline", "spark"]}, files=[100_000, 1_000_000], here=False)
    for files in given.files:
        for engine in given.engines:
            if given.here:
                with tempfile.TemporaryDirectory() as folder:
                    sys.stdout.write(measure(files, engine, Path(folder)) + "\n")
            else:
                one = ["--here", "--files", str(files), "--engines", engine]
                subprocess.run([sys.executable, __file__, *one], check=True)


if __name__ == "__main__":
    main()
