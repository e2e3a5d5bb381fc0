"""A catalog that applies a commit and loses its answer, reached direct or through the gateway, on a loopback port."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from werkzeug.wrappers import Request, Response

from delegation.edge.trust.tokens import StaticKeys, TokenVerifier, TrustedIssuer, public_key
from delegation.gateway.app import Gateway
from delegation.gateway.forwarding import Forwarder, TokenCallers
from delegation.gateway.http import HttpUpstream
from delegation.gateway.keys.service import CatalogMutations, Patience, policy_for
from delegation.gateway.messages import CatalogAnswer, CatalogRequest, Upstream, error_answer
from delegation.idempotency.mutations import Mutations
from delegation.idempotency.reservations import MemoryReservationStore
from infra.local.processes.programs import WsgiServer
from tests.integration.local.catalog_world import Stack
from tests.unit.gateway.keys.stand_in import LIFETIME, TIMEOUT

BASE = "/api/catalog/"
Answering = Callable[[CatalogRequest], CatalogAnswer]
Proxy = Callable[[Answering], Answering]


class LosingUpstream:
    """The catalog applies every commit; the answers to the next `to_lose` commits of snapshots are lost behind another.

    `status` and `headers` are of the answer that replaces it; `commits` has the status of each answer of the catalog.
    """

    def __init__(self, catalog: Upstream, *, status: int = 500, headers: Iterable[tuple[str, str]] = ()) -> None:
        self._catalog = catalog
        self._lost = error_answer(status, "InternalServerError", "failed after it was applied")
        self._headers = tuple(headers)
        self.to_lose = 0
        self.commits: list[int] = []

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        """See Upstream.send."""
        answer = self._catalog.send(request, timeout=timeout)
        if b'"add-snapshot"' not in request.body:
            return answer
        self.commits.append(answer.status)
        if answer.status != 200 or not self.to_lose:
            return answer
        self.to_lose -= 1
        return CatalogAnswer(self._lost.status, (*self._lost.headers, *self._headers), self._lost.body)


class CatalogFront:
    """Answers a catalog's clients on a loopback port; `keys` has the Idempotency-Key of each commit of a snapshot."""

    def __init__(self, answer: Answering) -> None:
        self._answer = answer
        self.keys: list[str | None] = []
        self.server = WsgiServer(self).start()

    @property
    def url(self) -> str:
        """The base of the catalog's API."""
        return self.server.url + BASE.rstrip("/")

    def __call__(self, environ: Mapping[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(dict(environ))
        path, _, query = environ["REQUEST_URI"].removeprefix(BASE).partition("?")
        asked = CatalogRequest(request.method, path, query, tuple(request.headers.items()), request.get_data())
        if b'"add-snapshot"' in asked.body:
            self.keys.append(asked.header("Idempotency-Key"))
        answer = self._answer(asked)
        return Response(answer.body, answer.status, list(answer.headers))(dict(environ), start_response)


def direct_to(upstream: Upstream, *, proxy: Proxy = lambda answer: answer) -> CatalogFront:
    """Return the catalog as it is without a gateway."""
    return CatalogFront(proxy(Forwarder(upstream, timeout=TIMEOUT).forward))


def through_gateway(upstream: Upstream, stack: Stack, *, proxy: Proxy = lambda answer: answer) -> CatalogFront:
    """Return the gateway before a catalog, whose key verifies the tokens of callers."""
    forwarder = Forwarder(upstream, timeout=TIMEOUT)
    keys = StaticKeys((public_key(stack.catalog.tokens.public_key_pem()),))
    nonces = iter(f"nonce-{number}" for number in range(10_000))
    mutations = Mutations(
        MemoryReservationStore(),
        policy=policy_for(TIMEOUT, LIFETIME),
        clock=stack.clock,
        nonce=lambda: next(nonces),
    )
    gateway = Gateway(
        forwarder,
        TokenCallers(TokenVerifier((TrustedIssuer("polaris", keys),), clock=stack.clock)),
        keys=CatalogMutations(mutations, forwarder, stack.clock, Patience(0.0), "POLARIS", LIFETIME),
    )
    return CatalogFront(proxy(gateway.answer))


def repeating(answer: Answering) -> Answering:
    """Return what a proxy answers that repeats a request after a 500 once, as Envoy with `retry_on: 5xx` does."""

    def answered(request: CatalogRequest) -> CatalogAnswer:
        first = answer(request)
        return answer(request) if first.status == 500 else first

    return answered


def losing(stack: Stack, **answer: Any) -> LosingUpstream:
    """Return the stack's catalog, with answers to lose."""
    return LosingUpstream(HttpUpstream(stack.catalog.url), **answer)
