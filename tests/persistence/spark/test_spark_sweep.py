"""Maintenance on a real Spark session: local[2], DynamoDB from moto's server, Python workers as separate processes."""

from collections.abc import Iterator
from typing import Any

import pytest

from infra.local.aws.moto_app import MotoProcess
from polaris_persistence.backends.base import Locator
from polaris_persistence.catalogs.executors import DynamoDbStores
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.entities import EntityHead
from polaris_persistence.iceberg.objects import IcebergProperties
from polaris_persistence.maintenance.run import SweepPolicy
from polaris_persistence.maintenance.spark import SparkSweep
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.testing.rows import all_rows
from tests.persistence.contract.backends import create_tables, dynamodb_client
from tests.persistence.releases.record import POLICY, RecordedRelease
from tests.spark_sessions import spark_session

pytestmark = [
    pytest.mark.spark,
    # A minute for one comparison; the rules that both sweeps share are tested without Spark.
    pytest.mark.long,
    # Py4J leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
AWS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_DEFAULT_REGION": "us-east-1"}
CHUNKS = 8
GARBAGE = 20
AT_ONCE = SweepPolicy(grace=-3.0, chunk=40, segments=2)
"""The next run may delete at once: the database's time is exact to a second, twice."""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session(environment=AWS) as session:
        yield session


@pytest.fixture
def stores(moto_dynamodb: MotoProcess, monkeypatch: pytest.MonkeyPatch) -> DynamoDbStores:
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    objects, references = create_tables(dynamodb_client(moto_dynamodb.url))
    return DynamoDbStores(objects, references, moto_dynamodb.url)


def site_on(stores: DynamoDbStores) -> RecordedRelease:
    """Three realms of tables, and what nothing names."""
    site = RecordedRelease()
    site.process = stores.open()
    site.backend = site.process.backend  # type: ignore[assignment]
    site.realms = site.process.realms(policy=POLICY)
    for realm in ("one", "two", "broken"):
        site.realms.create(realm, {})
        store = site.realms.create_catalog(realm, "c", {})
        for number in range(2):
            site.put(store, f"t{number}", f"s3://{realm}/{number}")
        write_garbage(store)
    return site


def write_garbage(store: CatalogStore) -> None:
    store.write([IcebergProperties(value=number) for number in range(GARBAGE)])


def named_by(store: CatalogStore) -> ObjectRef:
    """Return an object that the newest commit names."""
    head = Committer(store, "main", EntityHead).head()
    assert head is not None
    return next(iter(dict(head.value.working_index(store.fetch_many).items()).values()))


def keys_of(site: RecordedRelease, realm: str) -> set[Any]:
    space = site.realms.get(realm).space
    return {row.key for row in all_rows(site.backend, limit=1_000) if row.key.realm == space}


def test_runs_on_spark_and_in_a_process_delete_the_same(spark: Any, stores: DynamoDbStores) -> None:
    """They share the stored state: what one found unneeded, the other deletes, except in a realm that refuses."""
    site = site_on(stores)
    broken = site.realms.open("broken", "c")
    site.backend.delete_many([Locator(broken.key(named_by(broken)))])
    kept = keys_of(site, "broken")
    in_process = site.process.maintenance(AT_ONCE)

    first = in_process.run()
    assert (first.deleted, [place for place, _ in first.refused]) == (0, [f"{broken.realm}/{broken.catalog}"])
    assert first.young >= 2 * GARBAGE
    write_garbage(site.realms.open("one", "c"))
    contents = {realm: site.content(realm, "c") for realm in ("one", "two")}
    assert [len(one) for one in contents.values()] == [2, 2]

    second = SparkSweep(spark, stores, AT_ONCE).run()
    assert [place for place, _ in second.refused] == [f"{broken.realm}/{broken.catalog}"]
    assert "missing" in second.refused[0][1]
    # Each found some chunks of the run itself unneeded too, which that run deleted at its end.
    assert first.young - CHUNKS <= second.deleted <= first.young
    assert second.young >= GARBAGE
    third = in_process.run()
    assert second.young - CHUNKS <= third.deleted <= second.young
    assert {realm: site.content(realm, "c") for realm in contents} == contents
    assert keys_of(site, "broken") == kept
    # Less than a grace period later, nothing is done.
    early = SparkSweep(spark, stores, SweepPolicy()).run()
    assert early.not_before
    assert early.scanned == 0
