"""HTTP/1.1 as API Gateway and load balancers read it: what can be read in two ways is refused."""

import contextlib
import re
import socket
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol

from infra.local.errors import LocalStackError
from infra.local.front import apigateway
from infra.local.front.apigateway import ApiRequest, Response

# API Gateway developer guide, "Quotas": payload size.
REQUEST_LIMIT_BYTES = 10 * 1024 * 1024
REQUEST_TIMEOUT_SECONDS = 20.0
"""How long each read of a request that has begun may take."""
_LINGER_SECONDS = 1.0
_LONGEST_LINE = 65536
_LONGEST_LENGTH = 12
_MOST_TRAILERS = 100
_VERSIONS = frozenset({"HTTP/1.0", "HTTP/1.1"})
# RFC 9112, Section 3 and RFC 9110, Section 5.6.2. An empty line may precede a request (RFC 9112, Section 2.2).
_LINE_BYTES = re.compile(rb"\r?\n?|[!#$%&'*+.^_`|~0-9A-Za-z-]+( [!-~ ]*\r?\n?)?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class _BadRequestError(LocalStackError):
    """API Gateway would not accept the request; the message is for the answer."""


class AnsweringServer(Protocol):
    """A server whose `answer` answers a request."""

    def answer(self, request: ApiRequest) -> Response:
        """Return the answer."""


class _Lines:
    """Passes on the lines of a stream, and notes whether one has a carriage return that does not end it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.has_return_inside = False

    def readline(self, limit: int = -1) -> bytes:
        line: bytes = self._stream.readline(limit)
        self.has_return_inside |= b"\r" in line.removesuffix(b"\n").removesuffix(b"\r")
        return line


class HttpHandler(BaseHTTPRequestHandler):
    """One connection without TLS; a subclass adds TLS.

    What is no request, or can be read in two ways, is answered with 400, and the connection ends.
    """

    protocol_version = "HTTP/1.1"
    server_version = "polaris-delegation-local"
    sys_version = ""
    timeout = 120  # between two requests
    disable_nagle_algorithm = True
    server: AnsweringServer  # type: ignore[assignment]
    connection: socket.socket

    def handle_one_request(self) -> None:
        self.command = self.requestline = ""
        self.raw_requestline = b""
        try:
            self.raw_requestline = self._request_line()
            if not self.raw_requestline or not self._parse_head():
                self.close_connection = True
                return
            self._check_head()
            body = self._read_body()
        except _BadRequestError as exc:
            self._refuse(str(exc))
            return
        except TimeoutError:
            # Nobody waits on a connection without the beginning of a request.
            if self.raw_requestline or self.command:
                self._refuse("the request did not end in time")
            self.close_connection = True
            return
        self.connection.settimeout(self.timeout)
        if body is None:
            self._send(apigateway.TOO_LARGE, close=True)
            return
        request = ApiRequest(
            method=self.command,
            target=self.path,
            headers=tuple((name, str(value)) for name, value in self.headers.items()),
            body=body,
            certificate=self.client_certificate(),
            source_ip=str(self.client_address[0]),
            received=datetime.now(UTC),
        )
        self._send(self.server.answer(request), close=False)

    def _parse_head(self) -> bool:
        """Read the headers; raises _BadRequestError for a carriage return inside a line (RFC 9112, Section 2.2).

        The base class would take it for the end of a line, and what follows for another header.
        """
        stream, lines = self.rfile, _Lines(self.rfile)
        self.rfile = lines  # type: ignore[assignment]
        try:
            parsed = self.parse_request()
        finally:
            self.rfile = stream
        if lines.has_return_inside:
            raise _BadRequestError("a header has a carriage return inside")
        return parsed

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Refuse what the base class cannot parse; its text may quote the request."""
        self._refuse("the request line or the headers cannot be read")

    def _refuse(self, message: str) -> None:
        """Answer 400 and end the connection, reading on a little: unread bytes would reset it before the answer."""
        self.request_version = self.protocol_version  # to an HTTP/0.9 request the base class sends no status line
        self.close_connection = True
        self._send(apigateway.bad_request(message), close=True)
        with contextlib.suppress(OSError, ValueError):
            self.connection.settimeout(_LINGER_SECONDS)
            self._drain_plain(self.plain_connection())

    def client_certificate(self) -> bytes:
        """Return the client's certificate in DER, empty without one."""
        return b""

    def plain_connection(self) -> socket.socket:
        """End TLS, if there is any, and return the connection below it."""
        return self.connection

    @staticmethod
    def _drain_plain(plain: socket.socket) -> None:
        plain.shutdown(socket.SHUT_WR)
        for _ in range(64):
            if not plain.recv(65536):
                return

    def _request_line(self) -> bytes:
        """Return the request line; raises _BadRequestError at the first byte that cannot be in one."""
        line = bytearray()
        while not line.endswith(b"\n"):
            ready = self.rfile.peek(1)  # type: ignore[attr-defined]
            if not ready:
                return bytes(line)
            self.connection.settimeout(REQUEST_TIMEOUT_SECONDS)  # once it has begun it must end
            line += self.rfile.read(ready.find(b"\n") + 1 or len(ready))
            self.raw_requestline = bytes(line)
            if len(line) > _LONGEST_LINE or not _LINE_BYTES.fullmatch(line):
                raise _BadRequestError("the request line is too long, or has bytes that no request line has")
        return bytes(line)

    def _check_head(self) -> None:
        """Refuse other versions, and headers that another parser may read in another way (RFC 9112, Section 5)."""
        if self.request_version not in _VERSIONS:
            raise _BadRequestError("the request is not HTTP/1.1")
        if self.headers.defects or self.headers.get_payload():
            raise _BadRequestError("a header line has no colon")
        for name, value in self.headers.items():
            if not _TOKEN.fullmatch(name) or _CONTROL.search(str(value)):
                raise _BadRequestError("a header has a name that is no token, or a value with control characters")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class' name
        """Log nothing; the functions log their work, and a request line may contain what must not be logged."""

    def _read_body(self) -> bytes | None:
        """Return the request's body, or None if it is larger than API Gateway accepts.

        Raises _BadRequestError for a length that is stated twice (RFC 9112, Section 6.3).
        """
        codings = [str(value).strip().lower() for value in self.headers.get_all("Transfer-Encoding", [])]
        lengths = {str(value).strip() for value in self.headers.get_all("Content-Length", [])}
        if codings and lengths:
            raise _BadRequestError("the request has both Content-Length and Transfer-Encoding")
        if codings and codings != ["chunked"]:
            raise _BadRequestError("the only transfer coding that is supported is chunked")
        if codings:
            return self._read_chunks()
        if len(lengths) > 1:
            raise _BadRequestError("the request has several Content-Lengths, which differ")
        stated = lengths.pop() if lengths else "0"
        if not (stated.isascii() and stated.isdecimal() and len(stated) <= _LONGEST_LENGTH):
            raise _BadRequestError("Content-Length is not a number")
        if int(stated) > REQUEST_LIMIT_BYTES:
            self._drain(int(stated))
            return None
        return self._read(int(stated))

    def _read_chunks(self) -> bytes | None:
        body = bytearray()
        while True:
            line = self.rfile.readline(1024).split(b";")[0].strip()
            if not line or not set(line) <= set(b"0123456789abcdefABCDEF"):
                raise _BadRequestError("a chunk has no size")
            size = int(line, 16)
            if len(body) + size > REQUEST_LIMIT_BYTES:
                return None
            if size == 0:
                self._skip_trailers()
                return bytes(body)
            body += self._read(size)
            if self.rfile.readline(3) not in {b"\r\n", b"\n"}:
                raise _BadRequestError("a chunk is longer than its size")

    def _skip_trailers(self) -> None:
        for _ in range(_MOST_TRAILERS):
            line = self.rfile.readline(1024)
            if line in {b"\r\n", b"\n"}:
                return
            if not line:
                raise ConnectionError("the client closed the connection within its request")
        raise _BadRequestError("the request has too many trailers")

    def _read(self, size: int) -> bytes:
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionError("the client closed the connection within its request")
        return body

    def _drain(self, size: int) -> None:
        # Read the body, up to a limit; otherwise a client that still sends gets a reset instead of the answer.
        remaining = min(size, 8 * REQUEST_LIMIT_BYTES)
        while remaining > 0 and (part := self.rfile.read(min(remaining, 1 << 20))):
            remaining -= len(part)

    def _send(self, response: Response, *, close: bool) -> None:
        self.send_response(response.status)
        for name, value in response.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        if close:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)
        self.wfile.flush()
