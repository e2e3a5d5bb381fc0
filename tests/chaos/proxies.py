"""Proxies in front of the backends that throttle, refuse and cut, as long as a fault lasts."""

import contextlib
import http.client
import json
import random
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from werkzeug.wrappers import Request, Response

from infra.local.processes.programs import LOOPBACK, WsgiServer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_UPSTREAM_TIMEOUT_SECONDS = 60.0
_OF_ONE_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "expect"})
_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer of a service that throttles."""

    status: int
    content_type: str
    body: bytes


SLOW_DOWN = Refused(
    503,
    "application/xml",
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>",
)
"""Amazon S3 API Reference, "Error responses"."""
THROUGHPUT_EXCEEDED = Refused(
    400,
    "application/x-amz-json-1.0",
    json.dumps(
        {
            "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
            "message": "The level of configured provisioned throughput for the table was exceeded.",
        }
    ).encode(),
)
"""DynamoDB developer guide, "Error handling with DynamoDB"."""


class ThrottlingProxy:
    """Forwards requests to `upstream`; while it throttles, a share of them is refused before they arrive there."""

    def __init__(self, upstream: str, refused: Refused, dice: random.Random) -> None:
        self._upstream = urlsplit(upstream)
        self._refused = refused
        self._dice = dice
        self._lock = threading.Lock()
        self._share = 0.0
        self.throttled = 0
        self._server = WsgiServer(self)

    @property
    def url(self) -> str:
        return self._server.url

    def start(self) -> Self:
        self._server.start()
        return self

    def stop(self) -> None:
        self._server.stop()

    def throttle(self, share: float) -> None:
        """Refuse this share of the requests from now on, none with 0."""
        with self._lock:
            self._share = share

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        request = Request(environ)
        body = request.get_data()
        answer = self._throttled() or self._forwarded(request, body, environ["RAW_URI"])
        return answer(environ, start_response)

    def _throttled(self) -> Response | None:
        with self._lock:
            if not self._share or self._dice.random() >= self._share:
                return None
            self.throttled += 1
        return Response(self._refused.body, self._refused.status, content_type=self._refused.content_type)

    def _forwarded(self, request: Request, body: bytes, target: str) -> Response:
        connection = http.client.HTTPConnection(self._upstream.netloc, timeout=_UPSTREAM_TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            connection.putrequest(request.method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name.lower() not in _OF_ONE_CONNECTION | {"content-length"}:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
        response = Response(content, answer.status)
        response.headers.clear()
        for name, value in answer.getheaders():
            if name.lower() not in _OF_ONE_CONNECTION:
                response.headers.add(name, value)
        if request.method != "HEAD" and answer.status not in {204, 304}:
            response.headers["Content-Length"] = str(len(content))
        return response


class Relay:
    """Forwards the bytes of connections to `upstream`; `cut` ends them all, `down` also refuses new ones."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._listener = socket.create_server((LOOPBACK, 0), backlog=128)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_down = False
        self._stopping = False

    @property
    def address(self) -> str:
        """The host and port."""
        return f"{LOOPBACK}:{self._listener.getsockname()[1]}"

    def start(self) -> Self:
        threading.Thread(target=self._accept, name="relay", daemon=True).start()
        return self

    def stop(self) -> None:
        self._stopping = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def down(self, is_down: bool) -> None:
        """End every connection as soon as it is made, until it is called with False."""
        self._is_down = is_down
        if is_down:
            self.cut()

    def cut(self) -> int:
        """End the open connections and return how many clients had one."""
        with self._lock:
            ended = list(self._open)
            for each in ended:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        return len(ended) // 2

    def _accept(self) -> None:
        while not self._stopping:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_down:
                client.close()
                continue
            try:
                upstream = socket.create_connection(self._upstream, timeout=5)
            except OSError:
                client.close()
                continue
            upstream.settimeout(None)
            with self._lock:
                self._open |= {client, upstream}
            threading.Thread(target=self._serve, args=(client, upstream), daemon=True).start()

    def _serve(self, client: socket.socket, upstream: socket.socket) -> None:
        back = threading.Thread(target=_pump, args=(upstream, client), daemon=True)
        back.start()
        _pump(client, upstream)
        back.join()
        with self._lock:
            self._open -= {client, upstream}
        client.close()
        upstream.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until one side ends, then end both."""
    with contextlib.suppress(OSError):
        while block := source.recv(_BLOCK):
            target.sendall(block)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
