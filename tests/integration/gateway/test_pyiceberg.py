"""pyiceberg appends through the gateway to a catalog that loses its answer: without our wrapper, and with it."""

import warnings
from collections.abc import Iterator

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from werkzeug.wrappers import Request, Response

from delegation.client.catalogs.keys import send_keys
from delegation.edge.trust.tokens import StaticKeys, TokenVerifier, TrustedIssuer, public_key
from delegation.gateway.answers import error_answer
from delegation.gateway.app import Gateway
from delegation.gateway.callers import TokenCallers
from delegation.gateway.forwarding import Forwarder
from delegation.gateway.http_upstream import HttpUpstream
from delegation.gateway.keys.service import CatalogMutations, Patience, policy_for
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.idempotency.mutations.memory import MemoryReservationStore
from delegation.idempotency.mutations.service import Mutations
from infra.local.processes.wsgi import WsgiServer
from tests.integration.local.catalog_world import SCHEMA, SCOPE, Stack, emptied, objects, rows, running
from tests.unit.gateway.keys.stand_in import LIFETIME, TIMEOUT

BASE = "/api/catalog/"


class LosingUpstream:
    """The catalog applies each commit, and the answer to its first try is lost behind a 500."""

    def __init__(self, catalog: HttpUpstream) -> None:
        self._catalog = catalog
        self.lost: list[bytes] = []

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        answer = self._catalog.send(request, timeout=timeout)
        if b'"add-snapshot"' not in request.body or request.body in self.lost:
            return answer
        self.lost.append(request.body)
        return error_answer(500, "InternalServerError", "failed after it was applied")


class GatewayFront:
    """The gateway on a loopback port."""

    def __init__(self, stack: Stack) -> None:
        self.upstream = LosingUpstream(HttpUpstream(stack.catalog.url))
        forwarder = Forwarder(self.upstream, timeout=TIMEOUT)
        keys = StaticKeys((public_key(stack.catalog.tokens.public_key_pem()),))
        nonces = iter(f"nonce-{number}" for number in range(10_000))
        mutations = Mutations(
            MemoryReservationStore(),
            policy=policy_for(TIMEOUT, LIFETIME),
            clock=stack.clock,
            nonce=lambda: next(nonces),
        )
        self._gateway = Gateway(
            forwarder,
            TokenCallers(TokenVerifier((TrustedIssuer("polaris", keys),), clock=stack.clock)),
            keys=CatalogMutations(mutations, forwarder, stack.clock, Patience(0.0), "POLARIS", LIFETIME),
        )
        self.server = WsgiServer(self).start()

    def __call__(self, environ, start_response):
        request = Request(environ)
        path, _, query = environ["REQUEST_URI"].removeprefix(BASE).partition("?")
        asked = CatalogRequest(request.method, path, query, tuple(request.headers.items()), request.get_data())
        answer = self._gateway.answer(asked)
        return Response(answer.body, answer.status, list(answer.headers))(environ, start_response)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    yield from running()


@pytest.fixture
def bucket(stack: Stack) -> Iterator[None]:
    yield from emptied(stack)


@pytest.fixture
def front(stack: Stack, bucket: None) -> Iterator[GatewayFront]:
    made = GatewayFront(stack)
    yield made
    made.server.stop()


def connect(front: GatewayFront) -> RestCatalog:
    url = front.server.url + BASE.rstrip("/")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return RestCatalog(
            "lake", uri=url, warehouse="lake", credential="owner-id:owner-secret", scope=SCOPE,
            **{"oauth2-server-uri": f"{url}/v1/oauth/tokens"},
        )  # fmt: skip


def test_an_append_whose_answer_is_lost_succeeds_once_and_keeps_its_files(stack: Stack, front: GatewayFront) -> None:
    catalog = connect(front)
    catalog.create_namespace("sales")
    table = catalog.create_table(("sales", "orders"), SCHEMA)
    with pytest.raises(CommitStateUnknownException):
        table.append(rows((1, "eu")))
    assert send_keys(catalog, sleep=lambda _seconds: None)
    table = catalog.load_table(("sales", "orders"))
    assert table.scan().to_arrow().num_rows == 1  # it was applied: the caller did not learn that
    table.append(rows((2, "us")))
    loaded = catalog.load_table(("sales", "orders"))
    assert sorted(loaded.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert (len(loaded.snapshots()), len(front.upstream.lost)) == (2, 2)
    present = objects(stack)
    manifests = [each.manifest_path for snapshot in loaded.snapshots() for each in snapshot.manifests(loaded.io)]
    assert {path.removeprefix("s3://warehouse/") for path in manifests} <= set(present)
