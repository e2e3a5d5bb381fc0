"""A reverse proxy in front of an S3 endpoint that limits vended keys to their prefixes.

Paths, queries, headers and bodies are forwarded byte for byte; the signature is not checked. A key that was not vended
is an administrator's and not limited. The proxy keeps client connections alive and opens one connection to the store
for each request, because moto closes its connections anyway.
"""

import contextlib
import http.client
from collections.abc import Callable, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

from delegation.timestamps import utc_now
from infra.local.processes.programs import HOP_BY_HOP, ConnectionsServer, LoopbackServer, connection_to
from infra.local.s3 import requests

_BLOCK = 1 << 16
_UPSTREAM_TIMEOUT_SECONDS = 300
# A request whose body is larger is refused by closing the connection instead of reading it.
_DRAIN_LIMIT = 64 << 20
_NOT_PASSED_ON = HOP_BY_HOP | {"expect"}
# Headers that describe the request's body; they are dropped when another body is sent.
_BODY_HEADERS = ("content-length", "content-md5", "x-amz-checksum-", "x-amz-sdk-checksum-algorithm")


class S3Front(LoopbackServer):
    def __init__(
        self,
        upstream: str,
        keys: requests.VendedKeys,
        *,
        port: int = 0,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Bind the port; `upstream` is the store's endpoint URL, `keys` the registry that the catalog fills."""
        super().__init__(_Server(port, upstream, keys, clock))


class _StoreUnavailable(Exception):
    """The store did not answer; nothing has been sent to the client yet."""


class _Server(ConnectionsServer):
    def __init__(self, port: int, upstream: str, keys: requests.VendedKeys, clock: Callable[[], datetime]) -> None:
        super().__init__(port, _S3Handler)
        self.upstream = urlsplit(upstream)
        self.keys = keys
        self.clock = clock

    def connect(self) -> http.client.HTTPConnection:
        return connection_to(self.upstream, timeout_seconds=_UPSTREAM_TIMEOUT_SECONDS)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self.opened(request):
            super().process_request_thread(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors, because they are clients that close the connection during an answer."""


class _S3Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = _BLOCK

    def handle_expect_100(self) -> bool:
        # `_body` answers 100 once the request is allowed, so that a client never sends a refused upload.
        return True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name
        """Log nothing, because presigned URLs contain tokens."""

    def version_string(self) -> str:
        return "S3Front"

    def _serve(self) -> None:
        target = self.requestline.split(" ")[1]
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = requests.S3Request.parse(self.command, target, headers)
        whose = requests.identify(request, self.server.keys, self.server.clock())
        try:
            self._serve_as(whose, request, target)
        except _StoreUnavailable as error:
            self.close_connection = True
            self._answer(503, requests.Refusal(503, "ServiceUnavailable", f"the store did not answer: {error}").xml())

    def _serve_as(
        self, whose: requests.VendedKey | requests.Refusal | None, request: requests.S3Request, target: str
    ) -> None:
        if isinstance(whose, requests.Refusal):
            self._refuse(whose)
        elif whose is None:
            self._forward(target)
        elif request.is_multi_delete:
            self._multi_delete(target, request, whose)
        elif all(whose.allows(*needed) for needed in request.accesses()):
            self._forward(target)
        else:
            self._refuse(requests.ACCESS_DENIED)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = _serve  # noqa: N815 - http.server's names

    def _multi_delete(self, target: str, request: requests.S3Request, vended: requests.VendedKey) -> None:
        body = b"".join(self._body())
        try:
            delete = requests.MultiDelete(body, request.bucket, vended)
        except ElementTree.ParseError:
            self._answer(requests.MALFORMED.status, requests.MALFORMED.xml())
            return
        if not delete.denied:
            self._forward(target, body)
        elif not delete.any_allowed:
            self._answer(200, delete.answer(None))
        else:
            with contextlib.closing(self.server.connect()) as upstream:
                answer = self._exchange(upstream, target, delete.allowed_body())
                content = answer.read()
            self._answer(answer.status, delete.answer(content) if answer.status == 200 else content)

    def _forward(self, target: str, body: bytes | None = None) -> None:
        """Send the request unchanged, or with `body` if its body was read already, and stream the answer back."""
        with contextlib.closing(self.server.connect()) as upstream:
            self._relay(self._exchange(upstream, target, body))

    def _exchange(
        self, upstream: http.client.HTTPConnection, target: str, body: bytes | None
    ) -> http.client.HTTPResponse:
        """Send a request to the store and return its answer's head; raises _StoreUnavailable."""
        try:
            self._send(upstream, target, body)
            return upstream.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise _StoreUnavailable(type(error).__name__) from error

    def _send(self, upstream: http.client.HTTPConnection, target: str, body: bytes | None) -> None:
        upstream.putrequest(self.command, target, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            lower = name.lower()
            if lower not in _NOT_PASSED_ON and not (body is not None and lower.startswith(_BODY_HEADERS)):
                if body is not None and lower == "transfer-encoding":
                    continue
                upstream.putheader(name, value)
        if body is not None:
            upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body)
        else:
            upstream.endheaders()
            for block in self._body(framed=True):
                upstream.send(block)

    def _relay(self, answer: http.client.HTTPResponse) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.headers.items():
            if name.lower() not in _NOT_PASSED_ON and name.lower() != "transfer-encoding":
                self.send_header(name, value)
        bodiless = self.command == "HEAD" or answer.status in {204, 304} or answer.status < 200
        chunked = not bodiless and "content-length" not in answer.headers
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if not bodiless:
            while block := answer.read(_BLOCK):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block)
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _refuse(self, refusal: requests.Refusal) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            # The client has sent no body; whether it still sends one is uncertain, so the connection is closed.
            self.close_connection = True
        elif int(self.headers.get("Content-Length") or 0) > _DRAIN_LIMIT:
            self.close_connection = True
        else:
            for _ in self._body():
                pass
        self._answer(refusal.status, refusal.xml())

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    def _body(self, *, framed: bool = False) -> Iterator[bytes]:
        """Yield the request's body in blocks; `framed` keeps the framing of a chunked body, including trailers."""
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
            self.wfile.flush()
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            yield from _chunks(self.rfile, framed=framed)
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left > 0:
            block = self.rfile.read(min(left, _BLOCK))
            if not block:
                raise ConnectionError("the client closed the connection within its body")
            left -= len(block)
            yield block


def _chunks(source: BufferedIOBase, *, framed: bool) -> Iterator[bytes]:
    """Yield a chunked body (RFC 9112, Section 7.1), with or without its framing."""
    while True:
        line = source.readline(_BLOCK)
        size = int(line.partition(b";")[0], 16) if line.strip() else -1
        if size < 0:
            raise ConnectionError("the client closed the connection within its body")
        data = source.read(size)
        if framed:
            yield line
        if data:
            yield data
        ending = source.readline(_BLOCK)
        if framed:
            yield ending
        if size == 0:
            while ending.strip():
                ending = source.readline(_BLOCK)
                if framed:
                    yield ending
            return
