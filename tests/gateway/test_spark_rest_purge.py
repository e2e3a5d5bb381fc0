"""Spark 4.1 with Iceberg 1.12, whose `DROP TABLE … PURGE` leaves the files to the server (`rest-catalog-purge`).

Its sessions have a process of their own: the JVM of another test has the classes of another release.
"""

import uuid
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from infra.local.resources import TOMBSTONES_TABLE
from tests.fixtures.lakehouse import SCALA
from tests.gateway.conftest import GatewayStack
from tests.gateway.test_spark import catalog_settings
from tests.spark_sessions import spark_session

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.stack, pytest.mark.timeout(1200)]

ICEBERG = "1.12.0"
JARS = f"org.apache.iceberg:iceberg-spark-runtime-4.1_{SCALA}:{ICEBERG},org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}"


def dropped(catalog: Mapping[str, str], namespace: str) -> str:
    """Write a table, drop it with its files, and return its location."""
    settings = {
        "spark.jars.packages": JARS,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        **{f"spark.sql.catalog.lake.{name}": value for name, value in catalog.items()},
    }
    from py4j.protocol import Py4JError

    with spark_session("local[1]", **settings) as spark:
        try:
            return _dropped(spark, namespace)
        except Py4JError as error:
            raise RuntimeError(str(error)) from None  # the error itself cannot leave the process


def _dropped(spark: Any, namespace: str) -> str:
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql(f"CREATE NAMESPACE lake.{namespace}")
    spark.sql(f"CREATE TABLE lake.{namespace}.orders (id BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO lake.{namespace}.orders VALUES (1), (2)")
    [(file,)] = spark.sql(f"SELECT file FROM lake.{namespace}.orders.metadata_log_entries LIMIT 1").collect()
    spark.sql(f"DROP TABLE lake.{namespace}.orders PURGE")
    assert spark.sql(f"SHOW TABLES IN lake.{namespace}").count() == 0
    return str(file).rpartition("/metadata/")[0]


@pytest.mark.parametrize("by_server", [True, False])
def test_the_server_purges_where_the_catalog_is_set_to_leave_it_the_files(stack: GatewayStack, by_server: bool) -> None:
    def records() -> int:
        found = stack.client("dynamodb", "dynamodb_endpoint").scan(TableName=TOMBSTONES_TABLE, Select="COUNT")
        return int(found["Count"])

    before = records()
    catalog = {**catalog_settings(stack), **({"rest-catalog-purge": "true"} if by_server else {})}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        location = process.submit(dropped, catalog, f"spark_{uuid.uuid4().hex[:8]}").result()
    assert stack.objects(location) == []
    assert (records() > before) is by_server, "a tombstone is the trace of a drop that the gateway took over"
