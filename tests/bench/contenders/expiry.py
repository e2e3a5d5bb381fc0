"""One expiry of all snapshots but the last in a new process, by this service or by Iceberg's action; prints figures.

    PYTHONPATH=functions:. python tests/bench/contenders/expiry.py NAME URL METADATA_LOCATION --kept-since MS

The time is from when the process (and its Spark session) has started until the call that expires returns. The catalog
of ours is an object in the process, that of the action Iceberg's JdbcCatalog on SQLite: each commits once.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.contenders.purge import PACKAGES, TUNED, ContenderTable, held, memory_of, s3_properties, spark_settings
from tests.bench.frame import Figures, contend, options

CATALOG = "bench"
_SQLITE = "org.xerial:sqlite-jdbc:3.49.1.0"


@dataclass(frozen=True)
class Ours:
    """What an expiry of ours needs; `planned` has when its plan was published."""

    context: Any
    resources: Any
    planned: list[float]


def _ours(given: ContenderTable) -> Ours:
    from delegation.identifiers import TableIdentifier
    from delegation.polaris.model import LoadedTable
    from delegation.removal.attempt import MemoryAttempt, PlanSegment
    from delegation.removal.expiry.context import ExpiryContext, ExpirySettings
    from delegation.removal.expiry.retention import Retention
    from delegation.removal.purge.direct import DirectResources, MetadataFile
    from delegation.storage.credentials import S3Settings
    from delegation.storage.locations import parse
    from polaris_persistence.iceberg.updates.tables import updated_table

    resources = DirectResources("s3://plans/bench", S3Settings(endpoint=given.url, region="us-east-1", path_style=True))
    identifier = TableIdentifier(CATALOG, ("sales",), "orders")
    store, plans = resources.store(identifier), resources.plans()

    class Catalog:
        """Its one table; a commit writes metadata.json as a catalog does."""

        def __init__(self) -> None:
            self.pointer = given.metadata_location

        def load(self) -> LoadedTable:
            return MetadataFile(self.pointer, store).load()

        def commit_table(
            self,
            identifier: TableIdentifier,
            requirements: Sequence[Mapping[str, Any]],
            updates: Sequence[Mapping[str, Any]],
        ) -> LoadedTable:
            import boto3

            now_ms = int(time.time() * 1000)
            changed = updated_table(
                self.load().metadata, requirements, updates, now_ms=now_ms, previous_file=self.pointer
            )
            self.pointer = self.pointer.replace("/00001-", "/00002-")
            where = parse(self.pointer)
            client = boto3.client("s3", endpoint_url=given.url)
            client.put_object(Bucket=where.bucket, Key=where.key, Body=json.dumps(changed).encode())
            return self.load()

    planned: list[float] = []

    class Attempt(MemoryAttempt):
        """Notes when the plan is published."""

        def publish(self, segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
            planned.append(time.monotonic())
            return super().publish(segment, files_planned=files_planned)

    catalog = Catalog()
    context = ExpiryContext(
        attempt=Attempt("bench"),
        identifier=identifier,
        table_uuid=str(catalog.load().metadata["table-uuid"]),
        tables=catalog,
        commits=catalog,
        store=store,
        plans=plans,
        retention=Retention(older_than_ms=given.kept_since, retain_last=1),
        settings=ExpirySettings(vended=False),
    )
    return Ours(context, resources, planned)


def _measured(run: Ours, expire: Callable[[], Any]) -> Figures:
    before = memory_of("VmRSS")
    started, cpu = time.monotonic(), time.process_time()
    result = expire()
    return {
        "files": result.files_deleted,
        "snapshots": len(result.snapshot_ids),
        "seconds": time.monotonic() - started,
        "planning": run.planned[0] - started,
        "cpu": time.process_time() - cpu,
        "before_mb": before,
        "peak_mb": memory_of("VmHWM"),
    }


def ours(given: ContenderTable) -> Figures:
    """Expire with the inline engine, bound to one core; the plan is written to the same store."""
    from delegation.removal.expiry.run import expire_snapshots

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    run = _ours(given)
    return _measured(run, lambda: expire_snapshots(run.context))


def ours_on_spark(given: ContenderTable) -> Figures:
    """Expire with the Spark engine; `cpu` and `peak_mb` are of the driver's Python alone."""
    from pyspark.sql import SparkSession

    from delegation.removal.expiry.spark import expire_with_spark

    builder = SparkSession.builder
    for name, value in spark_settings(given.memory).items():
        builder = builder.config(name, value)
    context = builder.getOrCreate().sparkContext
    run = _ours(given)
    return _measured(run, lambda: expire_with_spark(context, run.context, run.resources)) | held(context)


@contextmanager
def registered(given: ContenderTable, properties: Mapping[str, str]) -> Iterator[tuple[Any, Any]]:
    """Yield a Spark session, and Iceberg's Table registered in its catalog."""
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as folder:
        catalog = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:file:{Path(folder, 'catalog.db')}",
            "warehouse": given.metadata_location.rpartition("/")[0],
            "cache-enabled": "false",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            **s3_properties(given.url),
            **properties,
        }
        settings = spark_settings(given.memory) | {
            "spark.jars.packages": ",".join([*(f"org.apache.iceberg:{one}" for one in PACKAGES), _SQLITE]),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
            **{f"spark.sql.catalog.{CATALOG}.{name}": value for name, value in catalog.items()},
        }
        builder = SparkSession.builder
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sql(f"CREATE NAMESPACE {CATALOG}.sales")
        call = f"table => 'sales.orders', metadata_file => '{given.metadata_location}'"
        session.sql(f"CALL {CATALOG}.system.register_table({call})")
        java: Any = session._jvm
        name = f"{CATALOG}.sales.orders"
        yield session, java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, name)


def action(given: ContenderTable, properties: Mapping[str, str]) -> Figures:
    """Expire with Iceberg's action on Spark."""
    with registered(given, properties) as (session, table):
        actions = session._jvm.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession)
        started = time.monotonic()
        result = actions.expireSnapshots(table).expireOlderThan(given.kept_since).retainLast(1).execute()
        seconds = time.monotonic() - started
        counts = (result.deletedDataFilesCount(), result.deletedManifestsCount(), result.deletedManifestListsCount())
        return {"files": sum(counts), "seconds": seconds} | held(session.sparkContext)


CONTENDERS: dict[str, Callable[[ContenderTable], Figures]] = {
    "ours": ours,
    "ours on Spark": ours_on_spark,
    "action": lambda given: action(given, {}),
    "action tuned": lambda given: action(given, TUNED),
}

if __name__ == "__main__":
    contend(CONTENDERS, options(__doc__, "name", "url", "metadata_location", memory="4g", kept_since=0))
