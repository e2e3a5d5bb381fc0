from typing import Final
from uuid import uuid4

from delegation.gateway.errors import request_loops
from delegation.gateway.messages import CatalogAnswer, CatalogRequest, Headers, Upstream
from delegation.gateway.routing import check_target

FORWARDED_BY: Final = "X-Delegation-Gateway"
"""The header that the gateway adds to what it forwards; a request that arrives with it has come back."""
_HOP_BY_HOP: Final = frozenset({
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
})  # fmt: skip
"""RFC 9110, Section 7.6.1."""
_OF_ONE_CONNECTION: Final = _HOP_BY_HOP | {"host", "content-length", "expect"}
"""What the next connection sets anew. `X-Forwarded-*` stay as the load balancer wrote them."""


class Forwarder:
    """Sends requests to the catalog, each for at most `timeout` seconds."""

    def __init__(self, upstream: Upstream, *, timeout: float) -> None:
        self._upstream = upstream
        self.timeout = timeout

    def forward(self, request: CatalogRequest, *, timeout: float | None = None) -> CatalogAnswer:
        """Send a request once. Raises UnsafePath, CatalogUnavailable and CatalogOutcomeUnknown."""
        refuse_loop(request)
        check_target(request.path, request.query)  # also of what the gateway makes of names
        sent = CatalogRequest(
            request.method,
            request.path,
            request.query,
            (*end_to_end(request.headers), (FORWARDED_BY, str(uuid4()))),
            request.body,
        )
        answer = self._upstream.send(sent, timeout=self.timeout if timeout is None else timeout)
        return CatalogAnswer(answer.status, end_to_end(answer.headers), answer.body)


def refuse_loop(request: CatalogRequest) -> None:
    """Raise GatewayError (REQUEST_LOOPS) for a request that a gateway has forwarded."""
    if request.header(FORWARDED_BY) is not None:
        raise request_loops()


def end_to_end(headers: Headers) -> Headers:
    lower = [name.lower() for name, _ in headers]
    dropped = _OF_ONE_CONNECTION
    if "connection" in lower:
        values = [value for name, (_, value) in zip(lower, headers, strict=True) if name == "connection"]
        dropped |= {each.strip().lower() for value in values for each in value.split(",")}
    return tuple([pair for name, pair in zip(lower, headers, strict=True) if name not in dropped])


def without(headers: Headers, *names: str) -> Headers:
    dropped = {name.lower() for name in names}
    return tuple((name, value) for name, value in headers if name.lower() not in dropped)
