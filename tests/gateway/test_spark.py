"""Spark 4.1 and Iceberg's Java REST client 1.11 through the gateway against the stand-in.

The client sends keys, because the configuration says that they are honoured. Its `purgeTable` is what the gateway takes
over; Spark's own `DROP TABLE … PURGE` deletes from the client up to Iceberg 1.11 (docs/gateway-rule.md).
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.fixtures.lakehouse import PACKAGES
from tests.gateway.conftest import GatewayStack
from tests.spark_sessions import spark_session

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.stack, pytest.mark.timeout(1200)]


def catalog_settings(stack: GatewayStack) -> dict[str, str]:
    return {
        "uri": stack["gateway_url"],
        "warehouse": stack["warehouse"],
        "credential": stack["polaris_credential"],
        "scope": stack["polaris_scope"],
        "oauth2-server-uri": f"{stack['polaris_url']}/v1/oauth/tokens",
        "header.Polaris-Realm": stack["realm"],
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": "us-east-1",
        "cache-enabled": "false",
    }


@pytest.fixture(scope="module")
def spark(stack: GatewayStack) -> Iterator[Any]:
    settings = {
        "spark.jars.packages": ",".join(PACKAGES[:2]),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        **{f"spark.sql.catalog.lake.{name}": value for name, value in catalog_settings(stack).items()},
    }
    with spark_session("local[1]", **settings) as session:
        session.sparkContext.setLogLevel("ERROR")
        yield session


@pytest.fixture(scope="module")
def java(spark: Any, stack: GatewayStack) -> Iterator[Any]:
    """Iceberg's RESTCatalog in Spark's JVM."""
    catalog = spark._jvm.org.apache.iceberg.rest.RESTCatalog()
    catalog.initialize("java", catalog_settings(stack))
    yield catalog
    catalog.close()


@pytest.fixture
def namespace(spark: Any) -> str:
    name = f"spark_{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE NAMESPACE lake.{name}")
    return name


def test_spark_writes_and_reads_and_the_java_client_purges(
    stack: GatewayStack, spark: Any, java: Any, namespace: str
) -> None:
    before = stack.stored_keys()
    spark.sql(f"CREATE TABLE lake.{namespace}.orders (id BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO lake.{namespace}.orders VALUES (1), (2)")
    spark.sql(f"INSERT INTO lake.{namespace}.orders VALUES (3)")
    assert spark.table(f"lake.{namespace}.orders").count() == 3
    assert stack.stored_keys() > before, "the client sent no key"
    identifier = spark._jvm.org.apache.iceberg.catalog.TableIdentifier.parse(f"{namespace}.orders")
    location = str(java.loadTable(identifier).location())
    assert stack.objects(location)
    assert java.dropTable(identifier, True) is True
    assert not java.tableExists(identifier)
    assert stack.objects(location) == []


def test_the_java_client_commits_to_two_tables_at_once_or_to_none(spark: Any, java: Any, namespace: str) -> None:
    jvm, names = spark._jvm, ("a", "b")
    identifiers = [jvm.org.apache.iceberg.catalog.TableIdentifier.parse(f"{namespace}.{name}") for name in names]
    for name in names:
        spark.sql(f"CREATE TABLE lake.{namespace}.{name} (id BIGINT) USING iceberg")

    def commits(value: str) -> Any:
        found = jvm.java.util.ArrayList()
        for identifier in identifiers:
            base = java.loadTable(identifier).operations().current()
            changed = base.replaceProperties({"changed": value})
            found.add(jvm.org.apache.iceberg.catalog.TableCommit.create(identifier, base, changed))
        return found

    def changed() -> list[str | None]:
        return [java.loadTable(identifier).properties().get("changed") for identifier in identifiers]

    java.commitTransaction(commits("once"))
    assert changed() == ["once", "once"]
    stale = commits("twice")
    spark.sql(f"DROP TABLE lake.{namespace}.b")
    spark.sql(f"CREATE TABLE lake.{namespace}.b (id BIGINT) USING iceberg")
    with pytest.raises(Py4JJavaError, match="UUID does not match"):
        java.commitTransaction(stale)
    assert changed() == ["once", None]


def test_spark_s_own_purge_sends_a_plain_drop_and_deletes_from_the_client(
    stack: GatewayStack, spark: Any, namespace: str
) -> None:
    spark.sql(f"CREATE TABLE lake.{namespace}.purged (id BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO lake.{namespace}.purged VALUES (1)")
    spark.sql(f"DROP TABLE lake.{namespace}.purged PURGE")
    assert spark.sql(f"SHOW TABLES IN lake.{namespace}").count() == 0
