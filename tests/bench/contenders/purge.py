"""One purge of the table in a new process, by our engines or by another contender; prints its figures as JSON.

    PYTHONPATH=functions:. python tests/bench/contenders/purge.py NAME URL METADATA_LOCATION [--memory 4g] [--dry-run]

The time is from when the process (and its Spark session) has started until the call that purges returns.
"""

import gc
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.frame import Figures, contend, options

PACKAGES = ("iceberg-spark-runtime-4.1_2.13:1.11.0", "iceberg-aws-bundle:1.11.0")


@dataclass(frozen=True)
class ContenderTable:
    """What the command line of a contender has; `kept_since` is that of an expiry."""

    url: str
    metadata_location: str
    memory: str
    dry_run: bool = False
    kept_since: int = 0


def inline(given: ContenderTable) -> Figures:
    """Purge with the inline engine, bound to one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    run = _ours(given)
    before = memory_of("VmRSS")
    started, cpu = time.monotonic(), time.process_time()
    result = run()
    return {
        "files": result.files_planned if given.dry_run else result.files_deleted,
        "seconds": time.monotonic() - started,
        "cpu": time.process_time() - cpu,
        "before_mb": before,
        "peak_mb": memory_of("VmHWM"),
    }


def ours(given: ContenderTable) -> Figures:
    """Purge with the Spark engine, then measure the memory of the driver and its JVM."""
    spark = _context(given)
    from delegation.removal.attempt import MemoryAttempt
    from delegation.removal.purge.spark import purge_with_spark
    from tests.bench.loads.apart import Measured, spent

    deleting_since: list[float] = []

    class Attempt(MemoryAttempt):
        def begin_deleting(self) -> None:
            deleting_since.append(time.monotonic())
            super().begin_deleting()

    run = _ours(given)
    context = run.context()
    attempt = Attempt(context.attempt.task_id)
    object.__setattr__(context, "attempt", attempt)
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        result = purge_with_spark(spark, context, Measured(run.resources, folder))
        ended = time.monotonic()
        workers = spent(folder)
    figures = {
        "files": result.files_planned if given.dry_run else result.files_deleted,
        "seconds": ended - started,
        "planning": (deleting_since or [ended])[0] - started,
    }
    return figures | workers | {"driver": time.process_time()} | held(spark)


def held(spark: Any) -> Figures:
    """Return the driver's Python RSS and the JVM's heap after a collection, in megabytes."""
    gc.collect()
    heap = []
    for _ in range(3):
        spark._jvm.java.lang.System.gc()
        time.sleep(0.3)
        heap.append(spark._jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed())
    return {"driver_mb": memory_of("VmRSS"), "heap_mb": min(heap) / 2**20}


def memory_of(name: str) -> float:
    """Return a memory figure of this process in megabytes; getrusage's peak may be its parent's."""
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index(f"{name}:") + 1]) / 1024


def action(given: ContenderTable, properties: dict[str, str]) -> Figures:
    """Purge with Iceberg's action, which makes no plan."""
    session = _session(given, ",".join(f"org.apache.iceberg:{one}" for one in PACKAGES))
    java = session._jvm
    options = java.java.util.HashMap()
    for name, value in (s3_properties(given.url) | properties).items():
        options.put(name, value)
    files = java.org.apache.iceberg.CatalogUtil.loadFileIO("org.apache.iceberg.aws.s3.S3FileIO", options, None)
    actions = java.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession)
    started = time.monotonic()
    result = actions.deleteReachableFiles(given.metadata_location).io(files).execute()
    seconds = time.monotonic() - started
    counts = (result.deletedDataFilesCount(), result.deletedManifestsCount(), result.deletedManifestListsCount())
    return {"files": sum(counts) + result.deletedOtherFilesCount(), "seconds": seconds} | held(session.sparkContext)


def s3_properties(url: str) -> dict[str, str]:
    """Return what Iceberg's S3FileIO needs for the store."""
    return {
        "s3.endpoint": url,
        "s3.path-style-access": "true",
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "client.region": os.environ["AWS_DEFAULT_REGION"],
    }


def _ours(given: ContenderTable) -> Any:
    from delegation.removal.purge.direct import DirectPurge, DirectResources, DirectRun
    from delegation.removal.purge.requests import PurgeOptions
    from delegation.storage.credentials import S3Settings

    settings = S3Settings(endpoint=given.url, region="us-east-1", path_style=True)
    purge = DirectPurge(given.metadata_location, options=PurgeOptions(dry_run=given.dry_run))
    return DirectRun(purge, DirectResources("s3://plans/bench", settings))


def spark_settings(memory: str) -> dict[str, str]:
    """Return the settings of every Spark, local[2]."""
    fixed = {"spark.ui.enabled": "false", "spark.speculation": "false", "spark.log.level": "ERROR"}
    return {"spark.master": "local[2]", "spark.driver.memory": memory, "spark.driver.host": "127.0.0.1"} | fixed


def _context(given: ContenderTable) -> Any:
    """Start Spark as a job of the service does, with those of its settings that concern one machine."""
    from pyspark import SparkConf, SparkContext

    from infra.environment.resources import JAVA_OPTIONS

    settings = spark_settings(given.memory) | {"spark.app.name": "purge", "spark.driver.extraJavaOptions": JAVA_OPTIONS}
    return SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))


def _session(given: ContenderTable, packages: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.jars.packages", packages)
    for name, value in spark_settings(given.memory).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


TUNED = {"s3.delete.batch-size": "1000", "s3.delete.num-threads": "16"}
CONTENDERS: dict[str, Callable[[ContenderTable], Figures]] = {
    "inline": inline,
    "ours": ours,
    "action": lambda given: action(given, {}),
    "action tuned": lambda given: action(given, TUNED),
}

if __name__ == "__main__":
    contend(CONTENDERS, options(__doc__, "name", "url", "metadata_location", memory="4g", dry_run=False))
