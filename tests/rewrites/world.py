"""Real Spark with Iceberg over the stand-in of Polaris: writers, and rewrites of their tables through the fence.

Writers are the principal `owner` with a catalog of their own in Spark; rewrites are the service's principal.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.polaris.transport import Transport
from delegation.rewrites.commits import CommitRules
from delegation.rewrites.context import Performed, Rewrite, RewriteContext, RewriteResult
from delegation.rewrites.decide import decide_compaction
from delegation.rewrites.fence import Fence, Gate
from delegation.rewrites.run import run_rewrites
from delegation.rewrites.spark import SparkRewriter
from delegation.rewrites.terms import CompactionTerms
from delegation.storage.memory import MemoryPlanStore
from delegation.timestamps import utc_now
from delegation.wiring.table_access import vended_table
from tests.integration.local.catalog_world import BUCKET, REALM, REGION, SCOPE, Stack, objects, polaris
from tests.kit.clocks import SleptSeconds
from tests.spark_sessions import spark_session

ICEBERG = "1.12.0"
NAMESPACE = "sales"


def packages(version: str = ICEBERG) -> str:
    names = ("iceberg-spark-runtime-4.1_2.13", "iceberg-aws-bundle")
    return ",".join(f"org.apache.iceberg:{name}:{version}" for name in names)


def spark_settings(stack: Stack, version: str = ICEBERG) -> dict[str, str]:
    catalog = {
        "type": "rest",
        "uri": stack.catalog.url,
        "warehouse": "lake",
        "credential": "owner-id:owner-secret",
        "scope": SCOPE,
        "oauth2-server-uri": f"{stack.catalog.url}/v1/oauth/tokens",
        "header.Polaris-Realm": REALM,
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": REGION,
        "cache-enabled": "false",
        "rest-metrics-reporting-enabled": "false",
    }
    return {
        "spark.jars.packages": packages(version),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        **{f"spark.sql.catalog.lake.{name}": value for name, value in catalog.items()},
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.session.timeZone": "UTC",
    }


@dataclass
class PlainAttempt:
    """A RewriteAttempt without a task; `on_checkpoint` may raise."""

    task_id: str = "task-1"
    attempt: int = 1
    on_checkpoint: Callable[[], None] = lambda: None
    reported: list[dict[str, Any]] = field(default_factory=list)

    def checkpoint(self, *, moved: bool = True) -> None:
        self.on_checkpoint()

    def report(self, **fields: Any) -> None:
        self.reported.append(fields)


@dataclass
class RewriteWorld:
    """A stack, a session and a fence."""

    stack: Stack
    spark: Any
    fence: Fence

    def sql(self, *statements: str) -> list[Any]:
        rows: list[Any] = []
        for statement in statements:
            rows = self.spark.sql(statement).collect()
        return rows

    def create(self, name: str, columns: str = "id BIGINT, region STRING, amount INT", **properties: str) -> str:
        """Create a table, partitioned by `region` unless the columns say otherwise; return its name in Spark."""
        given = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
        partitioned = " PARTITIONED BY (region)" if "region" in columns else ""
        text = f"CREATE TABLE lake.{NAMESPACE}.{name} ({columns}) USING iceberg{partitioned}"
        self.sql(
            f"CREATE NAMESPACE IF NOT EXISTS lake.{NAMESPACE}", text + (f" TBLPROPERTIES ({given})" if given else "")
        )
        return f"lake.{NAMESPACE}.{name}"

    def client(self, wire: httpx.BaseTransport | None = None) -> PolarisClient:
        """Return the service's client, whose requests go through `wire`."""
        client = polaris(self.stack)
        if wire is not None:
            client.requests._transport = Transport(httpx.Client(transport=wire), sleep=lambda _seconds: None)
        return client

    def identifier(self, name: str) -> TableIdentifier:
        return TableIdentifier("lake", (NAMESPACE,), name)

    def gate(
        self, name: str, attempt: PlainAttempt, *, branch: str = "main", wire: httpx.BaseTransport | None = None
    ) -> Gate:
        client = self.client(wire)
        identifier = self.identifier(name)
        table_uuid = client.load_table(identifier, vend=False).table_uuid
        rules = CommitRules(table_uuid, branch, attempt.task_id, attempt.attempt)
        return Gate(identifier, rules, client.requests, attempt.checkpoint)

    def rewrite(
        self,
        name: str,
        rewrite: Rewrite,
        attempt: PlainAttempt | None = None,
        *,
        wire: httpx.BaseTransport | None = None,
    ) -> Performed:
        attempt = attempt or PlainAttempt()
        gate = self.gate(name, attempt, branch=rewrite.branch, wire=wire)
        return SparkRewriter(self.spark, self.fence, poll_seconds=0.1).perform(gate, rewrite, attempt)

    def filled(self, name: str, version: int = 2, rows: int = 40, files: int = 4) -> str:
        """Create a table with so many files in each of its two partitions; return its name in Spark."""
        modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
        table = self.create(
            name,
            **{"format-version": str(version), "write.distribution-mode": "none"},
            **(modes if version > 1 else {}),
        )
        found = self.spark.range(0, rows, 1, files)
        columns = ("id", "if(id % 2 = 0, 'eu', 'us') AS region", "CAST(id AS INT) AS amount")
        found.selectExpr(*columns).writeTo(table).append()
        return table

    def context(
        self, name: str, attempt: PlainAttempt, wire: httpx.BaseTransport | None = None, **fields: Any
    ) -> RewriteContext:
        """Return what an attempt at rewriting a table needs; its waits take no time."""
        client, identifier, slept = self.client(wire), self.identifier(name), SleptSeconds()
        tables, store = vended_table(client, identifier, clock=utc_now)
        given: dict[str, Any] = {
            "attempt": attempt,
            "identifier": identifier,
            "table_uuid": self.client().load_table(identifier, vend=False).table_uuid,
            "tables": tables,
            "requests": client.requests,
            "store": store,
            "plans": MemoryPlanStore(),
            "now": slept.read,
            "sleep": slept.sleep,
        }
        return RewriteContext(**{**given, **fields})

    def compact(self, name: str, attempt: PlainAttempt, terms: CompactionTerms) -> RewriteResult | None:
        """Choose partitions and rewrite them, as a task does; return None if there is nothing to rewrite."""
        ctx = self.context(name, attempt, now=time.monotonic, sleep=time.sleep)

        def planned() -> tuple[Rewrite, ...]:
            rewrite = decide_compaction(ctx, ctx.load_table(), terms).rewrite
            return () if rewrite is None else (rewrite,)

        rewrites = planned()
        engine = SparkRewriter(self.spark, self.fence, poll_seconds=0.1)
        return run_rewrites(ctx, rewrites, engine, planned) if rewrites else None

    def run(
        self, name: str, attempt: PlainAttempt, *rewrites: Rewrite, wire: httpx.BaseTransport | None = None
    ) -> RewriteResult:
        """Run an attempt at rewriting a table."""
        engine = SparkRewriter(self.spark, self.fence, poll_seconds=0.1)
        return run_rewrites(self.context(name, attempt, wire), rewrites, engine, lambda: rewrites)

    def metadata(self, name: str) -> Mapping[str, Any]:
        return self.client().load_table(self.identifier(name), vend=False).metadata

    def files(self, table: str) -> tuple[int, int]:
        """Return the numbers of data files and of delete files."""
        contents = [row[0] for row in self.sql(f"SELECT content FROM {table}.files")]
        return contents.count(0), len(contents) - contents.count(0)

    def rows(self, table: str, of: str = "") -> list[tuple[Any, ...]]:
        """Return the rows in order, `of` a snapshot or ref."""
        return sorted((tuple(row) for row in self.sql(f"SELECT * FROM {table}{of}")), key=repr)

    def lineage(self, table: str, key: str = "id") -> dict[Any, tuple[Any, Any]]:
        found = self.sql(f"SELECT {key}, _row_id, _last_updated_sequence_number FROM {table}")
        return {row[0]: (row[1], row[2]) for row in found}

    def every_snapshot(self, table: str) -> dict[int, list[tuple[Any, ...]]]:
        """Return the rows at each snapshot."""
        ids = [row[0] for row in self.sql(f"SELECT snapshot_id FROM {table}.snapshots")]
        return {number: self.rows(table, f" VERSION AS OF {number}") for number in ids}

    def stored(self) -> set[str]:
        return set(objects(self.stack))


@contextmanager
def rewrite_world(version: str = ICEBERG) -> Iterator[RewriteWorld]:
    stack = Stack()
    try:
        stack.admin.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        with spark_session("local[2]", environment=None, **spark_settings(stack, version)) as session, Fence() as fence:
            session.sparkContext.setLogLevel("ERROR")
            yield RewriteWorld(stack, session, fence)
        # The stores of all stacks of a process are one: the next test creates the bucket.
        for key in objects(stack):
            stack.admin.delete_object(Bucket=BUCKET, Key=key)
        stack.admin.delete_bucket(Bucket=BUCKET)
    finally:
        stack.stop()
