"""The HTTPS front answers what is no HTTP request, or may be read in two ways, with 400 and closes the connection."""

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from infra.local.front import https
from infra.local.front.apigateway import LocalApiGateway
from infra.local.front.https import Front, TlsFiles
from infra.local.front.pki import CertificateAuthority
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
def send(authority: CertificateAuthority, address: tuple[str, int]) -> Callable[[bytes], bytes]:
    """Send bytes on a new connection; return all that is answered until the front closes it."""
    pair = authority.issue_client("polaris")
    context = ssl.create_default_context(cafile=str(authority.files.cert))
    context.load_cert_chain(pair.cert, pair.key)
    API.seen.clear()

    def send(sent: bytes) -> bytes:
        with (
            socket.create_connection(address, timeout=3) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(sent)
            answer = b""
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


@pytest.mark.parametrize(
    "lengths",
    ["Content-Length: 2\r\nContent-Length: 5\r\n", "Content-Length: 2\r\ncontent-length: 02x\r\n"],
)
def test_differing_content_lengths_are_refused(send: Callable[[bytes], bytes], lengths: str) -> None:
    assert_one_refusal(send(POST + lengths.encode() + b"\r\n{}abc"))


@pytest.mark.parametrize("lengths", ["2, 5", "+2", "0x2", "\u00b2", "2 2", ""])
def test_a_content_length_that_is_no_number_is_refused(send: Callable[[bytes], bytes], lengths: str) -> None:
    assert_one_refusal(send(POST + f"Content-Length: {lengths}x\r\n\r\n{{}}".encode("latin-1")))


@pytest.mark.parametrize("first", [True, False])
def test_content_length_beside_transfer_encoding_is_refused(send: Callable[[bytes], bytes], first: bool) -> None:
    fields = [b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n"]
    head = b"".join(fields if first else reversed(fields))
    assert_one_refusal(send(POST + head + b"\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"))


def test_a_second_transfer_encoding_is_refused(send: Callable[[bytes], bytes]) -> None:
    coded = b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"
    assert_one_refusal(send(POST + coded))


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x00\x01\x02\x03",
        b"\xff\xfe\xfd",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"HELLO\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / rubbish\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nrubbish\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length : 3\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: \x00\r\n\r\n",
        b"GET / HTTP/1.1\r\n: b\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    ],
    ids=lambda sent: repr(sent[:40]),
)
def test_what_is_no_request_is_answered_with_400(send: Callable[[bytes], bytes], rubbish: bytes) -> None:
    assert_one_refusal(send(rubbish))


@pytest.mark.parametrize(
    "begun",
    [b"GET / HT", POST, POST + b"Content-Length: 9\r\n\r\n{}", POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"],
    ids=["line", "headers", "body", "chunk"],
)
def test_a_request_that_does_not_end_is_answered_with_400(
    send: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(https, "REQUEST_TIMEOUT_SECONDS", 0.2, raising=False)
    assert_one_refusal(send(begun))


@pytest.mark.parametrize(
    "chunks", [b"2\r\nabXX0\r\n\r\n", b"2\r\n{}0\r\n\r\n", b"zz\r\n\r\n", b"-2\r\n\r\n", b"\r\n\r\n"]
)
def test_a_chunk_without_a_size_is_refused(send: Callable[[bytes], bytes], chunks: bytes) -> None:
    assert_one_refusal(send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks))


def test_a_chunk_longer_than_its_size_is_refused(send: Callable[[bytes], bytes]) -> None:
    assert_one_refusal(send(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX\r\n0\r\n\r\n"))


def test_equal_content_lengths_and_one_coding_are_accepted(send: Callable[[bytes], bytes]) -> None:
    close = b"Connection: close\r\n"
    assert send(POST + close + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}").startswith(b"HTTP/1.1 200 ")
    assert send(POST + close + b"Transfer-Encoding: Chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert API.seen == ["{}", "{}"]
