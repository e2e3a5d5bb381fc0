"""One removal of a table's orphan files in a new process, by this service or by Iceberg's action; prints its figures.

    PYTHONPATH=functions:. python tests/bench/contenders/orphans.py NAME URL METADATA_LOCATION [--memory 4g]

The time is from when the process (and its Spark session) has started until the call returns. The table is alone in its
catalog: an object in the process for ours, Iceberg's JdbcCatalog on SQLite for the action.
"""

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.bench.contenders.expiry import CATALOG, registered
from tests.bench.contenders.purge import TUNED, ContenderTable, held, memory_of
from tests.bench.frame import Figures, contend, options

AGE = timedelta(days=1)


def ours(given: ContenderTable) -> Figures:
    """Remove with the service's engine, bound to one core; listings and the plan are written to the same store."""
    from delegation.identifiers import TableIdentifier
    from delegation.removal.attempt import MemoryAttempt
    from delegation.removal.orphans.context import OrphanContext, OrphanOptions, OrphanSettings
    from delegation.removal.orphans.details import ApprovalLimits
    from delegation.removal.orphans.run import remove_orphan_files
    from delegation.removal.purge.direct import DirectResources, MetadataFile
    from delegation.storage.credentials import S3Settings
    from delegation.storage.s3 import S3ObjectStore

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    settings = S3Settings(endpoint=given.url, region="us-east-1", path_style=True)
    identifier = TableIdentifier(CATALOG, ("sales",), "orders")
    store = S3ObjectStore(settings=settings)
    source = MetadataFile(given.metadata_location, store)

    class Alone:
        """The passes over a catalog of one table."""

        def summary(self) -> list[dict[str, Any]]:
            return []

        def renew(self) -> None:
            """There is nothing to wait for."""

    context = OrphanContext(
        attempt=MemoryAttempt("bench"),
        identifier=identifier,
        table_uuid=str(source.load().metadata["table-uuid"]),
        tables=source,
        store=store,
        plans=DirectResources("s3://plans/bench", settings).plans(),
        neighbours=lambda _roots: (),
        references=Alone(),
        places=lambda: (),
        claims=lambda: (),
        options=OrphanOptions(older_than=AGE, limits=ApprovalLimits(max_share=1.0, first_run_deletes=True)),
        settings=OrphanSettings(vended=False),
    )
    before = memory_of("VmRSS")
    started, cpu = time.monotonic(), time.process_time()
    result = remove_orphan_files(context)
    return {
        "files": result.files_deleted,
        "listed": result.files_listed,
        "seconds": time.monotonic() - started,
        "cpu": time.process_time() - cpu,
        "before_mb": before,
        "peak_mb": memory_of("VmHWM"),
    }


def action(given: ContenderTable, properties: Mapping[str, str]) -> Figures:
    """Remove with Iceberg's action on Spark, which lists through the table's FileIO."""
    with registered(given, properties) as (session, table):
        actions = session._jvm.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession)
        older_than = int((datetime.now(UTC) - AGE).timestamp() * 1000)
        started = time.monotonic()
        result = actions.deleteOrphanFiles(table).usePrefixListing(True).olderThan(older_than).execute()
        files = sum(1 for _ in result.orphanFileLocations())
        return {"files": files, "seconds": time.monotonic() - started} | held(session.sparkContext)


CONTENDERS: dict[str, Callable[[ContenderTable], Figures]] = {
    "ours": ours,
    "action": lambda given: action(given, {}),
    "action tuned": lambda given: action(given, TUNED),
}

if __name__ == "__main__":
    contend(CONTENDERS, options(__doc__, "name", "url", "metadata_location", memory="4g"))
