"""A commit that was applied and whose answer is lost, repeated on behalf of Spark 4.1 and Iceberg's Java client 1.11.

Direct, the repeat is refused with 409, the client takes that for the commit's own refusal, and deletes the files of the
snapshot that is live (Idempotency-Key proposal, "Current pain point example"). Through the gateway, which advertises
keys, the repeat has the first request's key and its answer. The client itself repeats after 503 with `Retry-After`;
after 500 it does not, but a proxy may. Without a repeat it loads the table, and finds the snapshot of an append.
"""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from delegation.gateway.keys.calls import CatalogClient, Conclusion, conclusion
from tests.fixtures.lakehouse import PACKAGES
from tests.gateway.losing import CatalogFront, LosingUpstream, Proxy, direct_to, losing, repeating, through_gateway
from tests.integration.local.catalog_world import REALM, REGION, SCOPE, Stack, emptied, objects, running
from tests.spark_sessions import spark_session

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
TABLE = "sales.orders"
# The last try of a commit: Iceberg reads its own snapshot again before another one.
LAST_TRY = "TBLPROPERTIES ('commit.retry.num-retries' = '0')"


@dataclass(frozen=True)
class Loss:
    """The answer that replaces that of a commit, and who repeats the commit; None: nobody."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    repeated_by: str | None = "the client"

    @property
    def proxy(self) -> Proxy:
        return repeating if self.repeated_by == "a proxy" else lambda answer: answer


REPEATED = [Loss(503, (("Retry-After", "1"),)), Loss(500, repeated_by="a proxy")]


@pytest.fixture(scope="module")
def store() -> Iterator[Stack]:
    yield from running()


@pytest.fixture(autouse=True)
def bucket(store: Stack) -> Iterator[None]:
    yield from emptied(store)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    settings = {
        "spark.jars.packages": ",".join(PACKAGES[:2]),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }
    with spark_session("local[1]", **settings) as session:
        session.sparkContext.setLogLevel("OFF")
        yield session


@dataclass(frozen=True)
class Catalog:
    """A table with one row, in a catalog of Spark with a name of its own, whose next commit's answer is lost."""

    spark: Any
    store: Stack
    front: CatalogFront
    upstream: LosingUpstream
    name: str

    @property
    def settings(self) -> dict[str, str]:
        return {
            "type": "rest",
            "uri": self.front.url,
            "warehouse": "lake",
            "credential": "owner-id:owner-secret",
            "scope": SCOPE,
            "oauth2-server-uri": f"{self.front.url}/v1/oauth/tokens",
            "header.Polaris-Realm": REALM,
            "header.X-Iceberg-Access-Delegation": "vended-credentials",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "client.region": REGION,
            "cache-enabled": "false",
        }

    def prepare(self) -> None:
        for name, value in self.settings.items():
            self.spark.conf.set(f"spark.sql.catalog.{self.name}.{name}", value)
        self.spark.conf.set(f"spark.sql.catalog.{self.name}", "org.apache.iceberg.spark.SparkCatalog")
        self.spark.sql(f"CREATE NAMESPACE {self.name}.sales")
        self.spark.sql(f"CREATE TABLE {self.name}.{TABLE} (id BIGINT) USING iceberg {LAST_TRY}")
        self.insert()
        self.upstream.to_lose = 1

    def insert(self) -> None:
        """Insert a row with Spark."""
        self.spark.sql(f"INSERT INTO {self.name}.{TABLE} VALUES (1)")

    def append(self) -> None:
        """Append the table's data file once more, with Iceberg's Java client."""
        iceberg = self.spark._jvm.org.apache.iceberg
        catalog = iceberg.rest.RESTCatalog()
        catalog.initialize("java", self.settings)
        try:
            table = catalog.loadTable(iceberg.catalog.TableIdentifier.parse(TABLE))
            path = self.spark.table(f"{self.name}.{TABLE}.files").first().file_path
            file = iceberg.DataFiles.builder(table.spec()).withPath(path).withFileSizeInBytes(500).withRecordCount(1)
            table.newFastAppend().appendFile(file.withFormat("parquet").build()).commit()
        finally:
            catalog.close()

    def rows(self) -> int:
        return int(self.spark.table(f"{self.name}.{TABLE}").count())

    def missing_manifest_lists(self) -> list[bool]:
        """Whether each snapshot, from the first one on, lacks its manifest list."""
        present = {f"s3://warehouse/{key}" for key in objects(self.store)}
        found = self.spark.table(f"{self.name}.{TABLE}.snapshots").orderBy("committed_at").collect()
        return [one.manifest_list not in present for one in found]

    def files_left(self) -> tuple[int, int]:
        """How many manifests and data files there are in the bucket."""
        keys = objects(self.store)
        manifests = sum(key.endswith("-m0.avro") for key in keys)
        return manifests, sum(key.endswith(".parquet") for key in keys)

    def missing_files(self) -> set[str]:
        """The manifests and data files of all snapshots that are not there."""
        table = f"{self.name}.{TABLE}"
        manifests = {one.path for one in self.spark.table(f"{table}.all_manifests").collect()}
        files = {one.file_path for one in self.spark.table(f"{table}.all_files").collect()}
        return (manifests | files) - {f"s3://warehouse/{key}" for key in objects(self.store)}


@contextlib.contextmanager
def catalog_whose_answer_is_lost(spark: Any, store: Stack, loss: Loss, *, by_gateway: bool) -> Iterator[Catalog]:
    upstream = losing(store, status=loss.status, headers=loss.headers)
    proxy = loss.proxy
    front = through_gateway(upstream, store, proxy=proxy) if by_gateway else direct_to(upstream, proxy=proxy)
    try:
        catalog = Catalog(spark, store, front, upstream, f"lake_{uuid.uuid4().hex[:8]}")
        catalog.prepare()
        yield catalog
    finally:
        front.server.stop()


@pytest.mark.parametrize("write", [Catalog.insert, Catalog.append], ids=["Spark", "Java"])
@pytest.mark.parametrize("loss", REPEATED, ids=lambda loss: f"{loss.status} repeated by {loss.repeated_by}")
def test_without_the_gateway_the_client_deletes_the_manifests_of_the_live_snapshot(
    spark: Any, store: Stack, loss: Loss, write: Any
) -> None:
    with catalog_whose_answer_is_lost(spark, store, loss, by_gateway=False) as catalog:
        with pytest.raises(Py4JJavaError, match="CommitFailedException"):
            write(catalog)
        assert catalog.upstream.commits == [200, 200, 409]  # it was applied, and its repeat was refused
        assert set(catalog.front.keys) == {None}
        assert catalog.missing_manifest_lists() == [False, True]
        assert catalog.files_left() == (1, 1)  # of two manifests; Spark deleted the second data file too
        with pytest.raises(Py4JJavaError, match=r"NotFoundException|NoSuchKey"):
            spark.table(f"{catalog.name}.{TABLE}").collect()


@pytest.mark.parametrize("write", [Catalog.insert, Catalog.append], ids=["Spark", "Java"])
@pytest.mark.parametrize("loss", REPEATED, ids=lambda loss: f"{loss.status} repeated by {loss.repeated_by}")
def test_through_the_gateway_the_commit_succeeds_once_and_every_file_stays(
    spark: Any, store: Stack, loss: Loss, write: Any
) -> None:
    with catalog_whose_answer_is_lost(spark, store, loss, by_gateway=True) as catalog:
        write(catalog)
        assert catalog.upstream.commits == [200, 200]  # the repeat was not sent to the catalog
        first, *repeated = catalog.front.keys
        assert None not in {first, *repeated}
        assert len({*repeated}) == 1
        assert first not in repeated
        assert (catalog.missing_manifest_lists(), catalog.missing_files(), catalog.rows()) == ([False] * 2, set(), 2)


@pytest.mark.parametrize("by_gateway", [False, True], ids=["direct", "gateway"])
def test_a_500_that_nobody_repeats_is_looked_into_by_the_client_itself(
    spark: Any, store: Stack, by_gateway: bool
) -> None:
    loss = Loss(500, repeated_by=None)
    with catalog_whose_answer_is_lost(spark, store, loss, by_gateway=by_gateway) as catalog:
        catalog.insert()
        assert catalog.upstream.commits == [200, 200]
        assert (catalog.missing_manifest_lists(), catalog.missing_files(), catalog.rows()) == ([False] * 2, set(), 2)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 500, 502, 503, 504])
def test_iceberg_java_concludes_from_an_answer_what_the_table_of_clients_says(
    spark: Any, store: Stack, status: int
) -> None:
    """An append was applied, and this is its answer: does the client delete the manifest list of the live snapshot?"""
    loss = Loss(status, repeated_by=None)
    with catalog_whose_answer_is_lost(spark, store, loss, by_gateway=False) as catalog:
        with contextlib.suppress(Py4JJavaError):
            catalog.append()
        has_deleted = catalog.missing_manifest_lists() == [False, True]
        assert has_deleted is (conclusion(CatalogClient.ICEBERG, status) is Conclusion.NOT_APPLIED)
