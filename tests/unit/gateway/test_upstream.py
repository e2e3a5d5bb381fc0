"""The contract of Upstream, for HTTP; the catalog is a plain server in this process."""

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import httpx
import pytest

from delegation.gateway.errors import CatalogOutcomeUnknown, CatalogUnavailable
from delegation.gateway.http_upstream import HttpUpstream
from delegation.gateway.messages import CatalogRequest

BODY = gzip.compress(b'{"a": 1}', mtime=0)
ANSWER = (
    b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Encoding: gzip\r\nA: 1\r\nA: 2\r\n"
    b"Content-Length: " + str(len(BODY)).encode() + b"\r\n\r\n" + BODY
)


@dataclass
class OneAnswer:
    """A server that answers one request with given bytes, and keeps what it received."""

    answer: bytes | None = ANSWER
    received: bytes = b""
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/api/catalog/"

    def serve(self) -> None:
        connection, _ = self.listener.accept()
        with connection:
            while b"\r\n\r\n" not in self.received or not self.received.endswith(b"!"):
                self.received += connection.recv(65536)
            if self.answer is not None:
                connection.sendall(self.answer)


@pytest.fixture
def server() -> Iterator[OneAnswer]:
    one = OneAnswer()
    thread = threading.Thread(target=one.serve)
    thread.start()
    with closing(one.listener):
        yield one
    thread.join()


SENT = CatalogRequest(
    "POST",
    "v1/lake/namespaces/a%1Fb%2fc/tables/t'u(%20)",
    "x=%7b1%7d&y=a+b&purgeRequested",
    (("B", "1"), ("a", "2"), ("B", "3"), ("Authorization", "Bearer t")),
    b'{"n": 1.0}\xff!',
)


def test_a_request_and_its_answer_pass_byte_for_byte(server):
    answer = HttpUpstream(server.url).send(SENT, timeout=5)
    head, _, body = server.received.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    assert line == f"POST /api/catalog/{SENT.path}?{SENT.query} HTTP/1.1".encode()
    named = [tuple(header.decode().split(": ", 1)) for header in headers]
    assert [pair for pair in named if pair[0].lower() not in {"host", "content-length"}] == [*SENT.headers]
    assert body == SENT.body
    # Neither followed nor decompressed.
    assert (answer.status, answer.header("Location"), answer.body) == (307, "/elsewhere", BODY)
    assert [value for name, value in answer.headers if name == "A"] == ["1", "2"]


def test_a_connection_that_ends_without_an_answer_leaves_the_outcome_unknown(server):
    server.answer = None
    with pytest.raises(CatalogOutcomeUnknown, match="same Idempotency-Key"):
        HttpUpstream(server.url).send(SENT, timeout=5)


def test_a_catalog_that_is_not_there_did_nothing():
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(CatalogUnavailable, match="nothing was done"):
        HttpUpstream(url).send(SENT, timeout=5)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (httpx.ConnectTimeout("t"), CatalogUnavailable),
        (httpx.PoolTimeout("t"), CatalogUnavailable),
        (httpx.ReadTimeout("t"), CatalogOutcomeUnknown),
        (httpx.WriteError("t"), CatalogOutcomeUnknown),
        (httpx.RemoteProtocolError("t"), CatalogOutcomeUnknown),
    ],
)
def test_only_what_was_certainly_not_sent_was_not_done(error, expected):
    def fail(_request):
        raise error

    upstream = HttpUpstream("http://catalog.test", httpx.Client(transport=httpx.MockTransport(fail)))
    with pytest.raises(expected):
        upstream.send(SENT, timeout=5)
