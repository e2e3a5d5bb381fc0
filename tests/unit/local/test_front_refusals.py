"""The HTTPS front answers what is no HTTP request, or does not end, with 400 and closes the connection.

The cases that may be read in two ways are in tests/unit/edge/trust/refusals.
"""

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from infra.local.front import http11
from infra.local.front.apigateway import LocalApiGateway
from infra.local.front.https import Front, TlsFiles
from infra.local.identities import CertificateAuthority
from infra.local.lambdas.functions import Invocation

BASE = "/delegation-service/api"
POST = f"POST {BASE}/v1/tasks HTTP/1.1\r\nHost: localhost\r\n".encode()


class Function:
    """A function that answers every event; `seen` has the bodies that reached it."""

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.answer = answer
        self.seen: list[str | None] = []

    def invoke(self, payload: bytes) -> Invocation:
        event = json.loads(payload)
        self.seen.append(event.get("body"))
        return Invocation("r-1", json.dumps(self.answer(event)).encode())


def allowed(event: dict[str, Any]) -> dict[str, Any]:
    statement = {"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": event["methodArn"]}
    return {"principalId": "polaris", "policyDocument": {"Statement": [statement]}, "context": {}}


API = Function(lambda _event: {"statusCode": 200, "body": "{}"})


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def address(authority: CertificateAuthority) -> Iterator[tuple[str, int]]:
    server = authority.issue_server()
    front = Front(
        api=API,  # type: ignore[arg-type]
        authorizer=Function(allowed),  # type: ignore[arg-type]
        tls=TlsFiles(server.cert, server.key, authority.files.cert),
        gateway=LocalApiGateway("localhost", BASE, "us-east-1", "123456789012"),
    ).start()
    url = urlsplit(front.url)
    yield str(url.hostname), int(url.port or 0)
    front.stop()


@pytest.fixture
def send(authority: CertificateAuthority, address: tuple[str, int]) -> Callable[..., bytes]:
    """Send bytes on a new connection; return all that is answered until the front closes it.

    What is sent `then` follows the first part of the answer; `dripping` bytes follow one by one, 20 a second.
    """
    pair = authority.issue_client("polaris")
    context = ssl.create_default_context(cafile=str(authority.files.cert))
    context.load_cert_chain(pair.cert, pair.key)
    API.seen.clear()

    def send(sent: bytes, then: bytes = b"", dripping: int = 0) -> bytes:
        with (
            socket.create_connection(address, timeout=3) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(sent)
            answer = connection.recv(65536) if then else b""
            connection.sendall(then)
            with contextlib.suppress(OSError):  # the front may have answered and closed by then
                for _ in range(dripping):
                    time.sleep(0.05)
                    connection.sendall(b"x")
            while part := connection.recv(65536):
                answer += part
            return answer

    return send


def assert_one_refusal(answer: bytes) -> None:
    """Assert that the answer is one 400 with the body of API Gateway's refusals, and that nothing was invoked."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 "), head[:80]
    assert set(json.loads(body)) == {"error_code", "message", "type"}
    assert API.seen == []


@pytest.mark.parametrize("sent", [b"HELLO\r\n\r\n", POST + b"Content-Length: x\r\n\r\n"], ids=["line", "length"])
def test_what_is_no_request_is_answered_with_400(send: Callable[..., bytes], sent: bytes) -> None:
    assert_one_refusal(send(sent))


@pytest.mark.parametrize(
    "begun",
    [b"GET / HT", POST, POST + b"Content-Length: 9\r\n\r\n{}", POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"],
    ids=["line", "headers", "body", "chunk"],
)
def test_a_request_that_does_not_end_is_answered_with_400(send, monkeypatch, begun):
    monkeypatch.setattr(http11, "REQUEST_TIMEOUT_SECONDS", 0.2)
    assert_one_refusal(send(begun))


@pytest.mark.parametrize("begun", [b"GET /", POST + b"X-A: b", POST + b"Content-Length: 90\r\n\r\n"], ids=str)
def test_the_time_of_a_request_is_that_of_the_whole_and_not_of_each_read(send, monkeypatch, begun):
    monkeypatch.setattr(http11, "REQUEST_TIMEOUT_SECONDS", 0.3)
    began = time.monotonic()
    assert_one_refusal(send(begun, dripping=40))
    assert time.monotonic() - began < 1.8


def test_equal_content_lengths_and_one_coding_are_accepted(send: Callable[..., bytes]) -> None:
    close = b"Connection: close\r\n"
    assert send(POST + close + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}").startswith(b"HTTP/1.1 200 ")
    assert send(POST + close + b"Transfer-Encoding: Chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert API.seen == ["{}", "{}"]


def test_a_request_sent_with_the_one_before_is_answered_after_it(send: Callable[..., bytes]) -> None:
    first, second = POST + b"Content-Length: 1\r\n\r\n1", POST + b"Connection: close\r\nContent-Length: 1\r\n\r\n2"
    assert send(first + second).count(b"HTTP/1.1 200 OK\r\n") == 2
    assert API.seen == ["1", "2"]


def test_a_client_that_waits_before_its_body_is_asked_for_it(send: Callable[..., bytes]) -> None:
    head = POST + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    answer = send(head, then=b"{}")
    assert answer.startswith(b"HTTP/1.1 100 ")
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 1
    assert API.seen == ["{}"]


@pytest.mark.parametrize("header", ["two\r\nlines", "\u2713"])
def test_an_answer_with_a_header_that_cannot_be_sent_is_a_bad_gateway(send, monkeypatch, header):
    monkeypatch.setattr(API, "answer", lambda _event: {"statusCode": 200, "headers": {"X": header}, "body": "{}"})
    assert send(POST + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 502 ")
