"""An Upstream in memory that records what it is sent, and requests to a gateway."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from delegation.gateway.app import Gateway, GatewayRules
from delegation.gateway.forwarding import Forwarder, TokenCallers
from delegation.gateway.messages import CatalogAnswer, CatalogRequest

OK = CatalogAnswer(200, (("Content-Type", "application/json"),), b"{}")


@dataclass
class RecordingUpstream:
    """Answers with what `respond` returns."""

    respond: Callable[[CatalogRequest], CatalogAnswer] = lambda _request: OK
    sent: list[CatalogRequest] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        self.sent.append(request)
        self.timeouts.append(timeout)
        return self.respond(request)


def gateway_over(upstream: RecordingUpstream, *, rules: GatewayRules | None = None, **parts: Any) -> Gateway:
    return Gateway(Forwarder(upstream, timeout=20), TokenCallers(None), rules=rules, **parts)


def request(method: str, path: str, body: bytes = b"", query: str = "", **headers: str) -> CatalogRequest:
    """Headers are named as arguments: `idempotency_key` is `idempotency-key`."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return CatalogRequest(method, path, query, named, body)
