"""pyiceberg appends through the gateway to a catalog that loses its answer: without our wrapper, and with it."""

import warnings
from collections.abc import Iterator

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from delegation.client.keys import send_keys
from delegation.gateway.keys.calls import CatalogClient, Conclusion, conclusion
from delegation.gateway.messages import error_answer
from tests.gateway.losing import Answering, CatalogFront, LosingUpstream, direct_to, losing, through_gateway
from tests.integration.local.catalog_world import SCHEMA, SCOPE, Stack, emptied, objects, rows, running


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    yield from running()


@pytest.fixture
def bucket(stack: Stack) -> Iterator[None]:
    yield from emptied(stack)


@pytest.fixture
def upstream(stack: Stack, bucket: None) -> LosingUpstream:
    return losing(stack)


@pytest.fixture
def front(stack: Stack, upstream: LosingUpstream) -> Iterator[CatalogFront]:
    made = through_gateway(upstream, stack)
    yield made
    made.server.stop()


def connect(front: CatalogFront) -> RestCatalog:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return RestCatalog(
            "lake", uri=front.url, warehouse="lake", credential="owner-id:owner-secret", scope=SCOPE,
            **{"oauth2-server-uri": f"{front.url}/v1/oauth/tokens"},
        )  # fmt: skip


def test_an_append_whose_answer_is_lost_succeeds_once_and_keeps_its_files(
    stack: Stack, upstream: LosingUpstream, front: CatalogFront
) -> None:
    catalog = connect(front)
    catalog.create_namespace("sales")
    table = catalog.create_table(("sales", "orders"), SCHEMA)
    upstream.to_lose = 1
    with pytest.raises(CommitStateUnknownException):
        table.append(rows((1, "eu")))
    assert send_keys(catalog, sleep=lambda _seconds: None)
    table = catalog.load_table(("sales", "orders"))
    assert table.scan().to_arrow().num_rows == 1  # it was applied: the caller did not learn that
    upstream.to_lose = 1
    table.append(rows((2, "us")))
    loaded = catalog.load_table(("sales", "orders"))
    assert sorted(loaded.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert (len(loaded.snapshots()), upstream.commits, upstream.to_lose) == (2, [200, 200], 0)
    first, second = front.keys  # nobody repeats it: the gateway found the snapshot itself
    assert first is None
    assert second is not None
    present = objects(stack)
    manifests = [each.manifest_path for snapshot in loaded.snapshots() for each in snapshot.manifests(loaded.io)]
    assert {path.removeprefix("s3://warehouse/") for path in manifests} <= set(present)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 500, 502, 503, 504])
def test_pyiceberg_concludes_from_an_answer_what_the_table_of_clients_says(
    stack: Stack, upstream: LosingUpstream, status: int
) -> None:
    def answered(answer: Answering) -> Answering:
        lost = error_answer(status, "SomeException", "no")
        return lambda request: lost if b"set-properties" in request.body else answer(request)

    made = direct_to(upstream, proxy=answered)
    try:
        catalog = connect(made)
        catalog.create_namespace("sales")
        table = catalog.create_table(("sales", "orders"), SCHEMA, properties={"commit.retry.num-retries": "0"})
        with pytest.raises(Exception) as concluded, table.transaction() as changes:
            changes.set_properties(a="1")
    finally:
        made.server.stop()
    kinds = {CommitFailedException: Conclusion.NOT_APPLIED, CommitStateUnknownException: Conclusion.UNKNOWN}
    assert kinds.get(concluded.type, Conclusion.FAILED) is conclusion(CatalogClient.PYICEBERG, status)
