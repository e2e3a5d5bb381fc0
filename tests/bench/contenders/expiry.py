"""One expiry of all snapshots but the last in a new process, by this service or by Iceberg's action; prints figures.

    PYTHONPATH=functions:. python tests/bench/contenders/expiry.py NAME URL METADATA_LOCATION --kept-since MS

The time is from when the process (and its Spark session) has started until the call that expires returns. The catalog
of ours is an object in the process, that of the action Iceberg's JdbcCatalog on SQLite: each commits once.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.contenders.purge import PACKAGES, TUNED, Figures, held, memory_of, s3_properties, spark_settings

CATALOG = "bench"
_SQLITE = "org.xerial:sqlite-jdbc:3.49.1.0"


@dataclass(frozen=True)
class Given:
    url: str
    metadata_location: str
    memory: str
    kept_since: int


def ours(given: Given) -> Figures:
    """Expire with the inline engine, bound to one core; the plan is written to the same store."""
    from delegation.identifiers import TableIdentifier
    from delegation.operations.expiry.context import ExpiryContext, ExpirySettings
    from delegation.operations.expiry.phases import expire_snapshots
    from delegation.operations.expiry.retention import Retention
    from delegation.operations.purge.direct import DirectResources, MetadataFile
    from delegation.persistence.iceberg.updates.tables import updated_table
    from delegation.polaris.model import LoadedTable
    from delegation.storage.credentials import S3Settings
    from delegation.storage.locations import parse
    from delegation.worksets.attempt import MemoryAttempt

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
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

    catalog = Catalog()
    context = ExpiryContext(
        attempt=MemoryAttempt("bench"),
        identifier=identifier,
        table_uuid=str(catalog.load().metadata["table-uuid"]),
        tables=catalog,
        commits=catalog,
        store=store,
        plans=plans,
        retention=Retention(older_than_ms=given.kept_since, retain_last=1),
        settings=ExpirySettings(vended=False),
    )
    before = memory_of("VmRSS")
    started, cpu = time.monotonic(), time.process_time()
    result = expire_snapshots(context)
    return {
        "files": result.files_deleted,
        "snapshots": len(result.snapshot_ids),
        "seconds": time.monotonic() - started,
        "cpu": time.process_time() - cpu,
        "before_mb": before,
        "peak_mb": memory_of("VmHWM"),
    }


def action(given: Given, properties: Mapping[str, str]) -> Figures:
    """Expire with Iceberg's action on Spark."""
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
        name = f"{CATALOG}.sales.orders"
        session.sql(f"CREATE NAMESPACE {CATALOG}.sales")
        call = f"table => 'sales.orders', metadata_file => '{given.metadata_location}'"
        session.sql(f"CALL {CATALOG}.system.register_table({call})")
        java = session._jvm
        table = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, name)
        actions = java.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession)
        started = time.monotonic()
        expiry = actions.expireSnapshots(table).expireOlderThan(given.kept_since).retainLast(1)
        result = expiry.execute()
        seconds = time.monotonic() - started
        counts = (result.deletedDataFilesCount(), result.deletedManifestsCount(), result.deletedManifestListsCount())
        return {"files": sum(counts), "seconds": seconds} | held(session.sparkContext)


CONTENDERS: dict[str, Callable[[Given], Figures]] = {
    "ours": ours,
    "action": lambda given: action(given, {}),
    "action tuned": lambda given: action(given, TUNED),
}

if __name__ == "__main__":
    options = argparse.ArgumentParser(description="One expiry of a table's snapshots.")
    options.add_argument("name", choices=sorted(CONTENDERS))
    options.add_argument("url")
    options.add_argument("metadata_location")
    options.add_argument("--memory", default="4g")
    options.add_argument("--kept-since", type=int, required=True)
    parsed = options.parse_args()
    found = CONTENDERS[parsed.name](Given(parsed.url, parsed.metadata_location, parsed.memory, parsed.kept_since))
    sys.stdout.write(json.dumps(found) + "\n")
