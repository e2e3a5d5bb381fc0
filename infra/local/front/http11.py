"""HTTP/1.1 on a loopback port by h11, as API Gateway and load balancers read it: what is ambiguous is refused."""

import contextlib
import http
import http.client
import math
import re
import socket
import socketserver
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final, Protocol

import h11

from infra.local.errors import LocalStackError
from infra.local.front import apigateway
from infra.local.front.apigateway import TOO_LARGE, ApiRequest, Response
from infra.local.processes.programs import ConnectionsServer, LoopbackServer

# API Gateway developer guide, "Quotas": payload size.
REQUEST_LIMIT_BYTES = 10 * 1024 * 1024
REQUEST_TIMEOUT_SECONDS = 20.0
"""How long a request may take from its first byte to its last."""
_IDLE_SECONDS: Final = 120.0
_LINGER_SECONDS: Final = 1.0
_LINGER_READS: Final = 64
_READ_BYTES: Final = 16 * 1024
# A client that still sends would get a reset instead of the answer, so this much of a body is read and dropped.
_DROPPED_BYTES: Final = 8 * REQUEST_LIMIT_BYTES
_VERSIONS: Final = frozenset({b"1.0", b"1.1"})
_FOLDED: Final = re.compile(rb"\n[ \t]")
_WITHOUT_BODY: Final = frozenset({204, 304})


class _BadRequestError(LocalStackError):
    """API Gateway would not accept the request; the message is for the answer."""


class AnsweringServer(Protocol):
    """A server whose `answer` answers a request; `too_large` is the answer to a body beyond the limit."""

    too_large: Response

    def answer(self, request: ApiRequest) -> Response:
        """Return the answer."""


class HttpHandler(socketserver.BaseRequestHandler):
    """One connection without TLS; a subclass adds TLS.

    What is no request, or can be read in two ways, is answered with 400, and the connection ends.
    """

    server: AnsweringServer  # type: ignore[assignment]
    request: socket.socket

    def setup(self) -> None:
        """Send each answer at once."""
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self._http = h11.Connection(h11.SERVER)

    def handle(self) -> None:
        """Answer the requests of the connection, one after the other."""
        while self._answer_one():
            self._http.start_next_cycle()

    def client_certificate(self) -> bytes:
        """Return the client's certificate in DER, empty without one."""
        return b""

    def plain_connection(self) -> socket.socket:
        """End TLS, if there is any, and return the connection below it."""
        return self.request

    def _answer_one(self) -> bool:
        """Read a request and answer it; return whether another may follow."""
        self._ends = math.inf
        if self._http.trailing_data[0]:
            self._begin()
        self._method = b""
        try:
            head, body = self._read()
        except _BadRequestError as exc:
            return self._refuse(str(exc))
        except h11.RemoteProtocolError as exc:
            if exc.error_status_hint == http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                # Its client may read no answer before all is sent.
                with contextlib.suppress(OSError):
                    _read_on(self.request)
            return self._refuse(str(exc).partition(":")[0])  # h11 quotes the request after the colon
        except TimeoutError:
            # Nobody waits on a connection without the beginning of a request.
            return self._ends < math.inf and self._refuse("the request did not end in time")
        if head is None:
            return False
        if len(body) > REQUEST_LIMIT_BYTES:
            return self._send(self.server.too_large, close=True)
        request = ApiRequest(
            method=head.method.decode("latin-1"),
            target=head.target.decode("latin-1"),
            headers=tuple(
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers.raw_items()
            ),
            body=body,
            certificate=self.client_certificate(),
            source_ip=str(self.client_address[0]),
            received=datetime.now(UTC),
        )
        return self._send(self.server.answer(request), close=False)

    def _read(self) -> tuple[h11.Request | None, bytes]:
        """Return the next request and its body, which is cut beyond the limit; None if the client closed before.

        Raises _BadRequestError and h11.RemoteProtocolError for what is refused, TimeoutError for what does not end.
        """
        head: h11.Request | None = None
        body, dropped = bytearray(), 0
        for event in self._events():
            if isinstance(event, h11.Request):
                head, self._method = event, event.method
            elif isinstance(event, h11.Data) and len(body) <= REQUEST_LIMIT_BYTES:
                body += event.data
            elif isinstance(event, h11.Data):
                dropped += len(event.data)
            if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed) or dropped > _DROPPED_BYTES:
                break
        return head, bytes(body)

    def _begin(self) -> None:
        self._ends = time.monotonic() + REQUEST_TIMEOUT_SECONDS

    def _events(self) -> Iterator[h11.Event]:
        received = self._http.trailing_data[0]
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Event):
                if isinstance(event, h11.Request):
                    _check(event, received[: len(received) - len(self._http.trailing_data[0])])
                yield event
                continue
            if self._http.they_are_waiting_for_100_continue:
                self.request.sendall(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            left = self._ends - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.request.settimeout(min(left, _IDLE_SECONDS))
            data = self.request.recv(_READ_BYTES)
            if data and self._ends == math.inf:
                self._begin()
            if self._http.their_state is h11.IDLE:
                received += data
            self._http.receive_data(data)

    def _refuse(self, message: str) -> bool:
        """Answer 400 and end the connection, reading on a little: unread bytes would reset it before the answer."""
        self._send(apigateway.bad_request(message), close=True)
        with contextlib.suppress(OSError, ValueError):
            self.request.settimeout(_LINGER_SECONDS)
            plain = self.plain_connection()
            plain.shutdown(socket.SHUT_WR)
            _read_on(plain)
        return False

    def _send(self, response: Response, *, close: bool) -> bool:
        """Send an answer; return whether another request may follow on the connection."""
        headers = [
            ("Server", "polaris-delegation-local"),
            ("Date", format_datetime(datetime.now(UTC), usegmt=True)),
            *response.headers,
            ("Content-Length", str(len(response.body))),
            *([("Connection", "close")] if close else []),
        ]
        try:
            start = h11.Response(
                status_code=response.status,
                headers=[(name.encode("latin-1"), value.strip().encode("latin-1")) for name, value in headers],
                reason=http.client.responses.get(response.status, "").encode(),
            )
        except (h11.LocalProtocolError, UnicodeEncodeError):  # a header that no client could read
            return self._send(apigateway.MALFORMED, close=close)
        has_body = self._method != b"HEAD" and response.status not in _WITHOUT_BODY
        parts = (start, h11.Data(data=response.body if has_body else b""), h11.EndOfMessage())
        self.request.settimeout(_IDLE_SECONDS)
        self.request.sendall(b"".join(self._http.send(part) or b"" for part in parts))
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE


def _read_on(connection: socket.socket) -> None:
    """Read and drop a little of what still comes."""
    connection.settimeout(_LINGER_SECONDS)
    for _ in range(_LINGER_READS):
        if not connection.recv(_READ_BYTES):
            break


def _check(head: h11.Request, received: bytes) -> None:
    """Refuse what h11 accepts: other versions, a folded header, and a length beside a transfer coding.

    RFC 9112, Sections 2.3, 5.2 and 6.3.
    """
    if head.http_version not in _VERSIONS:
        raise _BadRequestError("the request line has another version than HTTP/1.1")
    if _FOLDED.search(received):
        raise _BadRequestError("a header continues on the next line")
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in head.headers}:
        raise _BadRequestError("the request has both Content-Length and Transfer-Encoding")


class ConnectionServer(ConnectionsServer):
    """Answers requests; a subclass may make another connection of an accepted socket, as TLS does."""

    handler: type[HttpHandler] = HttpHandler

    def __init__(self, port: int, answer: Callable[[ApiRequest], Response], *, too_large: Response = TOO_LARGE) -> None:
        self.answer = answer
        self.too_large = too_large
        super().__init__(port, self.handler)

    def connected(self, accepted: socket.socket) -> socket.socket | None:
        """Return the connection to read requests from, None if it was refused; runs in the connection's thread."""
        return accepted

    def finish_request(self, request: Any, client_address: Any) -> None:
        connection = self.connected(request)
        if connection is None:
            return
        try:
            with self.opened(connection), contextlib.suppress(ConnectionError, TimeoutError, ssl.SSLError):
                self.handler(connection, client_address, self)
        finally:
            if connection is not request:  # an accepted socket is closed by socketserver
                connection.close()


class ServedFront(LoopbackServer):
    """A server in threads of this process, with threads for the functions that it invokes."""

    def __init__(self, name: str, server: ConnectionServer) -> None:
        super().__init__(server)
        # An invocation continues after a 504, so there are more threads than connections.
        self._calls = ThreadPoolExecutor(2 * server.request_queue_size, thread_name_prefix=name)

    @property
    def address(self) -> str:
        return super().url.removeprefix("http://")

    def stop(self) -> None:
        """Close the port and every connection; may be called again."""
        super().stop()
        self._calls.shutdown(wait=False)
