"""The catalog over HTTP: bytes in, bytes out. One deadline covers a whole exchange on a connection."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from ssl import SSLContext
from typing import Any, Final

import httpcore
import httpx

from delegation.gateway.messages import CatalogAnswer, CatalogOutcomeUnknown, CatalogRequest, CatalogUnavailable

_MOST_CONNECTIONS: Final = 64
_IDLE_SECONDS: Final = 5.0


class DeadlineTransport(httpx.BaseTransport):
    """Sends requests whose reads and writes end by the deadline of `within`. Raises httpx's exceptions."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._deadline = _Deadline(monotonic)
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False),
            max_connections=_MOST_CONNECTIONS,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=_Backend(httpcore.SyncBackend(), self._deadline),
        )

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit all that this thread sends and receives in the block to `seconds`."""
        self._deadline.begin(seconds)
        try:
            yield
        finally:
            self._deadline.end()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        sent = httpcore.Request(
            request.method, url, headers=request.headers.raw, content=request.stream, extensions=request.extensions
        )
        with _as_httpx():
            answered = self._pool.handle_request(sent)
        return httpx.Response(answered.status, headers=answered.headers, stream=_TimedBody(answered))

    def close(self) -> None:
        self._pool.close()


@contextmanager
def _as_httpx() -> Iterator[None]:
    """Translate into httpx's exceptions: a specific one before anything was sent, otherwise a transport error."""
    try:
        yield
    except httpcore.ConnectTimeout as error:
        raise httpx.ConnectTimeout(str(error)) from error
    except httpcore.PoolTimeout as error:
        raise httpx.PoolTimeout(str(error)) from error
    except httpcore.ConnectError as error:
        raise httpx.ConnectError(str(error)) from error
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise httpx.TransportError(str(error)) from error


class _Deadline(threading.local):
    """Each thread's deadline; no limit without one."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until: float | None = None

    def begin(self, seconds: float) -> None:
        self._until = self._monotonic() + seconds

    def end(self) -> None:
        self._until = None

    def shorter(self, timeout: float | None, over: type[Exception]) -> float | None:
        """Return the time-out of one step. Raises `over` after the deadline."""
        if self._until is None:
            return timeout
        left = self._until - self._monotonic()
        if left <= 0:
            raise over("the time for the exchange is over")
        return left if timeout is None else min(timeout, left)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: _Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.shorter(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.shorter(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._deadline.shorter(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend, deadline: _Deadline) -> None:
        self._backend = backend
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadline.shorter(timeout, httpcore.ConnectTimeout)
        return _Stream(self._backend.connect_tcp(host, port, left, local_address, socket_options), self._deadline)


class _TimedBody(httpx.SyncByteStream):
    def __init__(self, answered: httpcore.Response) -> None:
        self._answered = answered

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx():
            yield from self._answered.iter_stream()

    def close(self) -> None:
        self._answered.close()


_CONNECT_SECONDS: Final = 3.0
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_ADDED: Final = ("accept", "accept-encoding", "connection", "user-agent")
"""Headers that httpx adds if a request lacks them; removed, so that the catalog sees what the client sent."""


class HttpUpstream:
    """A catalog at a base URL, such as `https://polaris.internal/api/catalog`; thread-safe. Path and query are sent as
    given; redirects are returned, and compressed bodies stay compressed."""

    def __init__(self, base_url: str, http: httpx.Client | None = None) -> None:
        self._base = httpx.URL(base_url.rstrip("/"))
        self._within: Callable[[float], AbstractContextManager[None]] = lambda _seconds: nullcontext()
        if http is None:
            # Loaded when the first upstream is created: only cold starts that answer a request pay for it.

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
            # The request line itself: a URL would be normalized, and could lead out of the base.
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
                f"the catalog was not reached ({type(error).__name__}), and nothing was done. Repeat the request"
            ) from error
        except httpx.HTTPError as error:
            raise CatalogOutcomeUnknown(
                f"the catalog gave no answer in {timeout:g} s ({type(error).__name__}), and may have performed the "
                "request. Repeat it with the same Idempotency-Key, or read the state first"
            ) from error
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw)
        return CatalogAnswer(response.status_code, headers, body)

    def close(self) -> None:
        self._http.close()

    def _target(self, request: CatalogRequest) -> bytes:
        query = f"?{request.query}" if request.query else ""
        base = self._base.raw_path.decode("ascii").rstrip("/")
        return f"{base}/{request.path}{query}".encode("ascii")
