"""The Spark engine on the tables that Spark and Iceberg wrote: it plans and deletes what the inline engine does.

    ORACLE_SPARK=1 pytest tests/unit/removal/purge/oracle/test_spark.py

for all tables that a catalog lists; otherwise for a few, in a short run for one. The stores are in memory; executors
reach them by a socket.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from delegation.removal.purge.spark import purge_with_spark
from tests.faults.crashes.switch import StoreServer
from tests.spark_sessions import spark_session
from tests.unit.removal.purge.oracle.oracle import Purge, check_exact, tables

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
LIVE = tables(live=True)
FEW = LIVE[:: len(LIVE) // 4]
SAMPLE = [FEW[0], *(pytest.param(*table, marks=pytest.mark.long) for table in FEW[1:])]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session() as session:
        yield session.sparkContext


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    with StoreServer() as opened:
        yield opened


@pytest.mark.parametrize(("scenario", "table"), LIVE if os.environ.get("ORACLE_SPARK") else SAMPLE)
def test_a_purge_with_executors_is_exact(scenario: str, table: str, spark: Any, server: StoreServer) -> None:
    purge = Purge(scenario, table)
    ctx = purge.by_catalog()
    result = purge_with_spark(spark, ctx, server.resources(ctx))
    assert (result.status, result.files_deleted) == ("PURGED", len(purge.expected()))
    check_exact(purge)
