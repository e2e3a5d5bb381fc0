"""Compactions of tables in one new process, by the shared worker, a job, or Iceberg's procedure; prints figures.

    PYTHONPATH=functions:. python tests/bench/contenders/rewrites.py NAME URL --tables TABLE …

`session` is the time until the Spark session has started, `seconds` that of the rewrites after it.
"""

import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pydantic import SecretStr

from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.rewrites.behavior import RewriteJob
from delegation.rewrites.context import RewriteResult
from delegation.rewrites.runtimes import JARS
from delegation.tasks.life.model import Task
from tests.bench.frame import options
from tests.integration.local.catalog_world import REALM, REGION, SCOPE
from tests.kit.worlds.shared_rewrites import SharedRewrites

MASTER = "local[2]"
AT_ONCE = 4
SETTINGS = {
    "spark.master": MASTER,
    "spark.jars.packages": ",".join(JARS),
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
}


def client(url: str) -> PolarisClient:
    """Return a client of the catalog as the service's principal."""
    tokens = OAuth2TokenSource(
        f"{url}/v1/oauth/tokens",
        lambda: ClientCredentials("service-id", SecretStr("service-secret")),
        clock=lambda: datetime.now(UTC),
        realm=REALM,
    )
    return PolarisClient(url, tokens, realm=REALM)


class Timed:
    """When the session of a contender began to rewrite."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.began = self.started

    def figures(self) -> dict[str, float]:
        now = time.monotonic()
        return {"session": self.began - self.started, "seconds": now - self.began}


def check(ended: Sequence[Task]) -> None:
    """Raise SystemExit unless each task rewrote its table."""
    wrong = [task for task in ended if task.details.get("files_rewritten", 0) < 2]
    if wrong:
        raise SystemExit(f"{len(wrong)} tables were not rewritten: {wrong[0].result_summary}")


def shared(url: str, tables: Sequence[TableIdentifier], timed: Timed) -> None:
    """Rewrite all tables with the shared worker."""
    from delegation.rewrites.job import shared_session

    worker = SharedRewrites(lambda: client(url), at_once=AT_ONCE)
    with shared_session(**SETTINGS) as session:
        timed.began = time.monotonic()
        ended = worker.rewrite(session, [worker.ask(table) for table in tables])
    check(ended)


def job(url: str, tables: Sequence[TableIdentifier], timed: Timed) -> None:
    """Rewrite one table as a job of its own does."""
    from delegation.rewrites.fence import Fence
    from delegation.rewrites.run import run_rewrites
    from delegation.rewrites.spark import SparkRewriter, reached_at, rewriting_session
    from delegation.tasks.life.policy import Lease

    def rewrite_in_session(work: RewriteJob) -> RewriteResult:
        """Rewrite as `delegation.rewrites.job` does, and note when the session has started."""
        with rewriting_session(**SETTINGS) as session, Fence(reached_at(session)) as fence:
            timed.began = time.monotonic()
            return run_rewrites(work.ctx, work.plan.rewrites, SparkRewriter(session, fence), work.planned_again)

    worker = SharedRewrites(lambda: client(url))
    (table,) = tables
    task = worker.ask(table)
    held = worker.tasks.leases.acquire(task.task_id, "job", lambda now: Lease.lasting(timedelta(hours=1), now))
    done = worker.behavior(None).run_job(rewrite_in_session, held.task_id, held.attempt_count)
    check([done])


def loop(url: str, tables: Sequence[TableIdentifier], timed: Timed) -> None:
    """Call Iceberg's procedure for one table after the other, in one session."""
    from delegation.rewrites.spark import rewriting_session

    catalog = {
        "type": "rest",
        "uri": url,
        "warehouse": "lake",
        "credential": "owner-id:owner-secret",
        "scope": SCOPE,
        "oauth2-server-uri": f"{url}/v1/oauth/tokens",
        "header.Polaris-Realm": REALM,
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": REGION,
        "rest-metrics-reporting-enabled": "false",
    }
    own = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}
    own |= {f"spark.sql.catalog.lake.{name}": value for name, value in catalog.items()}
    with rewriting_session(**SETTINGS, **own) as session:
        timed.began = time.monotonic()
        for table in tables:
            name = ".".join((*table.namespace, table.name))
            call = f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('min-input-files', '2'))"
            (row,) = session.sql(call).collect()
            if row["rewritten_data_files_count"] < 2:
                raise SystemExit(f"{name}: {row}")


CONTENDERS = {"shared": shared, "job": job, "loop": loop}


def main() -> None:
    given = options(__doc__, "name", "url", tables=["sales.orders"])
    timed = Timed()
    tables = [TableIdentifier("lake", (name.split(".")[0],), name.split(".")[1]) for name in given.tables]
    CONTENDERS[given.name](given.url, tables, timed)
    sys.stdout.write(f"\n{json.dumps(timed.figures())}\n")


if __name__ == "__main__":
    main()
