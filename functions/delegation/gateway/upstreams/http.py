from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import httpx

from delegation.gateway.errors import CatalogOutcomeUnknown, CatalogUnavailable
from delegation.gateway.messages import CatalogAnswer, CatalogRequest

_CONNECT_SECONDS: Final = 3.0
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_ADDED: Final = ("accept", "accept-encoding", "connection", "user-agent")
"""What httpx sends for a request that does not set them; without them the catalog sees what the client sent."""


class HttpUpstream:
    """A catalog at a base URL, such as `https://polaris.internal/api/catalog`; thread-safe. Path and query are sent as
    given; redirects are returned, and compressed bodies stay compressed."""

    def __init__(self, base_url: str, http: httpx.Client | None = None) -> None:
        self._base = httpx.URL(base_url.rstrip("/"))
        self._within: Callable[[float], AbstractContextManager[None]] = lambda _seconds: nullcontext()
        if http is None:
            # Loaded when the first upstream is made: a cold start pays for it only where a request is answered.
            from delegation.gateway.upstreams.total_time import DeadlineTransport  # noqa: PLC0415

            transport = DeadlineTransport()
            http = httpx.Client(transport=transport, follow_redirects=False, trust_env=False)
            self._within = transport.within
        self._http = http
        for name in _ADDED:
            self._http.headers.pop(name, None)

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        built = self._http.build_request(
            request.method,
            self._base,
            headers=httpx.Headers(
                [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers]
            ),
            content=request.body,
            timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
            # The request line itself: a URL would be normalized, and lead out of the base.
            extensions={"target": self._target(request)},
        )
        try:
            with self._within(timeout):
                response = self._http.send(built, stream=True, follow_redirects=False)
                try:
                    body = b"".join(response.iter_raw())
                finally:
                    response.close()
        except _NOT_SENT as error:
            raise CatalogUnavailable(
                f"the catalog was not reached ({type(error).__name__}), and nothing was done; repeat the request"
            ) from error
        except httpx.HTTPError as error:
            raise CatalogOutcomeUnknown(
                f"the catalog gave no answer in {timeout:g} s ({type(error).__name__}), and may have done what was "
                "asked; repeat the request with the same Idempotency-Key, or read the state first"
            ) from error
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw)
        return CatalogAnswer(response.status_code, headers, body)

    def close(self) -> None:
        self._http.close()

    def _target(self, request: CatalogRequest) -> bytes:
        query = f"?{request.query}" if request.query else ""
        base = self._base.raw_path.decode("ascii").rstrip("/")
        return f"{base}/{request.path}{query}".encode("ascii")
