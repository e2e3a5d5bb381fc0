"""The contract of Upstream, for HTTP; the catalog is a plain server in this process."""

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field

import httpx
import pytest

from delegation.gateway.http import DeadlineTransport, HttpUpstream
from delegation.gateway.messages import CatalogOutcomeUnknown, CatalogRequest, CatalogUnavailable

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
    before_each_byte: Callable[[], None] | None = None
    pause: threading.Event = field(default_factory=threading.Event)
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/api/catalog/"

    def serve(self) -> None:
        connection, _ = self.listener.accept()
        with connection:
            while b"\r\n\r\n" not in self.received or not self.received.endswith(b"!"):
                self.received += connection.recv(65536)
            if self.before_each_byte is None:
                connection.sendall(self.answer or b"")
                return
            with suppress(OSError):  # the client has given up
                for number in range(len(self.answer or b"")):
                    self.before_each_byte()
                    connection.sendall((self.answer or b"")[number : number + 1])
                    self.pause.wait(0.002)


@pytest.fixture
def server() -> Iterator[OneAnswer]:
    one = OneAnswer()
    thread = threading.Thread(target=one.serve)
    thread.start()
    with closing(one.listener):
        yield one
    thread.join()


@pytest.fixture
def upstream(server) -> Iterator[HttpUpstream]:
    """The server's end is closed after its answer; whether the client has noticed by then is a matter of luck."""
    with closing(HttpUpstream(server.url)) as made:
        yield made


SENT = CatalogRequest(
    "POST",
    "v1/lake/namespaces/a%1Fb%2fc/tables/t'u(%20)",
    "x=%7b1%7d&y=a+b&purgeRequested",
    (("B", "1"), ("a", "2"), ("B", "3"), ("Authorization", "Bearer t")),
    b'{"n": 1.0}\xff!',
)


def test_a_request_and_its_answer_pass_byte_for_byte(server, upstream):
    answer = upstream.send(SENT, timeout=5)
    head, _, body = server.received.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    assert line == f"POST /api/catalog/{SENT.path}?{SENT.query} HTTP/1.1".encode()
    named = [tuple(header.decode().split(": ", 1)) for header in headers]
    assert [pair for pair in named if pair[0].lower() not in {"host", "content-length"}] == [*SENT.headers]
    assert body == SENT.body
    # Neither followed nor decompressed.
    assert (answer.status, answer.header("Location"), answer.body) == (307, "/elsewhere", BODY)
    assert [value for name, value in answer.headers if name == "A"] == ["1", "2"]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("v1/../../management/v1/principals", ""),
        ("v1/a/./b//c/%2e%2E/d", "a"),
        ("v1/%E4/[x]{y}|\\^`", "%E4&a&b=&c=[d]|{e}"),
        ("v1/%7Ea/~a;b=c", "x=%7E~+%20'"),
    ],
)
def test_path_and_query_are_sent_as_they_are(server, upstream, path, query):
    sent = CatalogRequest("POST", path, query, (), b"!")
    upstream.send(sent, timeout=5)
    target = f"/api/catalog/{path}?{query}" if query else f"/api/catalog/{path}"
    assert server.received.split(b"\r\n")[0] == f"POST {target} HTTP/1.1".encode()


def test_a_catalog_that_drips_does_not_exceed_the_time(server):
    """Each byte comes in time for a time-out of one read."""
    now = [0.0]
    transport = DeadlineTransport(monotonic=lambda: now[0])
    http = httpx.Client(transport=transport)
    upstream = HttpUpstream(server.url, http)
    server.before_each_byte = lambda: now.__setitem__(0, now[0] + 1.0)
    with pytest.raises(CatalogOutcomeUnknown), transport.within(5):
        upstream.send(SENT, timeout=5)
    http.close()
    assert 5.0 <= now[0] < 100


def test_a_connection_that_ends_without_an_answer_leaves_the_outcome_unknown(server, upstream):
    server.answer = None
    with pytest.raises(CatalogOutcomeUnknown, match="same Idempotency-Key"):
        upstream.send(SENT, timeout=5)


def test_a_catalog_that_is_not_there_did_nothing():
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with closing(HttpUpstream(url)) as upstream, pytest.raises(CatalogUnavailable, match="nothing was done"):
        upstream.send(SENT, timeout=5)


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
