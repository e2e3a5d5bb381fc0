"""The proxy in front of the catalog: who answers, what arrives, and what a client reads when the function fails."""

import base64
import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from infra.local.front import http11
from infra.local.front.balancer import CatalogBalancer
from infra.local.lambdas.functions import Invocation, PayloadTooLargeError, TooManyRequestsError
from infra.local.processes.programs import LOOPBACK, LoopbackServer
from tests.infra.rule.samples import BASE, KEY, SAMPLES, TABLE, RuleSample


class Catalog(BaseHTTPRequestHandler):
    """A catalog that tells what it was sent."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        seen = json.dumps({"target": self.path, "body": body, "accept": self.headers.get("Accept-Encoding")}).encode()
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(seen)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(seen)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class' name
        """Print nothing."""


class RecordedFunction:
    """The gateway's function: it keeps the events, and answers or raises as the test says."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.invocation: Callable[[], Invocation] = lambda: answered({"statusCode": 200, "body": "{}"})

    def invoke(self, payload: bytes) -> Invocation:
        self.events.append(json.loads(payload))
        return self.invocation()


def answered(answer: dict[str, Any]) -> Invocation:
    return Invocation("r-1", json.dumps(answer).encode())


def raising(error: Exception) -> Callable[[], Invocation]:
    def invocation() -> Invocation:
        raise error

    return invocation


def test_a_body_beyond_the_limit_is_answered_in_the_form_of_the_catalog(address: str, monkeypatch):
    monkeypatch.setattr(http11, "REQUEST_LIMIT_BYTES", 10)
    url = urlsplit(address)
    connection = http.client.HTTPConnection(str(url.hostname), url.port or 0, timeout=10)
    connection.request("POST", TABLE, b"x" * 11)
    answer = connection.getresponse()
    error = json.loads(answer.read())["error"]
    connection.close()
    assert (answer.status, error["code"], error["type"]) == (413, 413, "PayloadTooLargeException")


@pytest.fixture(scope="module")
def catalog() -> Iterator[str]:
    server = LoopbackServer(ThreadingHTTPServer((LOOPBACK, 0), Catalog)).start()
    yield server.url
    server.stop()


@pytest.fixture
def function() -> RecordedFunction:
    return RecordedFunction()


@contextmanager
def balanced(catalog_url: str, function: RecordedFunction, **options: Any) -> Iterator[str]:
    """The address of a balancer before a catalog and a function."""
    given = {"region": "us-east-1", "account": "123456789012", **options}
    balancer = CatalogBalancer(catalog_url=catalog_url, gateway=function, **given).start()
    yield balancer.url
    balancer.stop()


@pytest.fixture
def address(catalog: str, function: RecordedFunction) -> Iterator[str]:
    with balanced(f"{catalog}/api/catalog", function) as url:
        yield url


def send(
    url: str, method: str, target: str, body: bytes | None = None, headers: tuple[tuple[str, str], ...] = ()
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    connection.request(method, target, body, dict(headers))
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_only_the_requests_of_the_rule_reach_the_function(address: str, function: RecordedFunction, sample: RuleSample):
    status, headers, _ = send(address, sample.method, sample.target, headers=sample.headers)
    assert status == 200
    assert bool(function.events) is sample.to_gateway
    assert ("etag" in headers) is not sample.to_gateway


def test_what_goes_to_the_catalog_arrives_unchanged(address: str, function: RecordedFunction):
    target = f"{TABLE}?a=%2F&b=c+d&snapshots=refs"
    sent = (("Accept-Encoding", "gzip"),)
    assert address.endswith("/api/catalog")
    _, headers, body = send(address, "POST", target, '{"größe": 1}'.encode(), sent)
    assert json.loads(body) == {"target": target, "body": '{"größe": 1}', "accept": "gzip"}
    assert headers["etag"] == '"1"'
    assert function.events == []


def test_the_function_gets_the_event_of_a_private_api(address: str, function: RecordedFunction):
    send(address, "POST", f"{TABLE}?x=1", b'{"updates": []}', KEY)
    (event,) = function.events
    assert (event["httpMethod"], event["path"]) == ("POST", TABLE.replace("%1F", "\x1f"))
    assert event["requestContext"]["path"] == TABLE
    assert (event["isBase64Encoded"], base64.b64decode(event["body"])) == (True, b'{"updates": []}')
    assert event["multiValueQueryStringParameters"] == {"x": ["1"]}
    assert event["requestContext"]["identity"]["vpceId"] == "vpce-local"
    assert not [name for name in event["headers"] if "mtls" in name.lower()]


@pytest.mark.parametrize(
    ("invocation", "status", "kind", "retry_after"),
    [
        (raising(PayloadTooLargeError("7 MB")), 413, "PayloadTooLargeException", None),
        (raising(TooManyRequestsError("busy")), 429, "TooManyRequestsException", "2"),
        (
            lambda: Invocation("r-1", b'{"errorMessage": "killed"}', "Unhandled"),
            502,
            "CommitStateUnknownException",
            "2",
        ),
        (lambda: answered({"no": "status"}), 502, "CommitStateUnknownException", "2"),
    ],
)
def test_a_failure_of_the_function_is_read_by_iceberg_clients(address, function, invocation, status, kind, retry_after):
    function.invocation = invocation
    found, headers, body = send(address, "POST", TABLE, b"{}", KEY)
    error = json.loads(body)["error"]
    assert (found, error["code"], error["type"], headers.get("retry-after")) == (status, status, kind, retry_after)


def test_too_large_a_request_is_advised_to_go_without_its_key(address: str, function: RecordedFunction):
    function.invocation = raising(PayloadTooLargeError("7 MB"))
    *_, body = send(address, "POST", TABLE, b"{}", KEY)
    assert "without Idempotency-Key" in json.loads(body)["error"]["message"]


def test_a_catalog_that_is_not_there_is_a_502(function: RecordedFunction):
    with balanced(f"http://{LOOPBACK}:1/api/catalog", function) as url:
        assert send(url, "GET", f"{BASE}/lake/namespaces")[0] == 502


def test_a_catalog_at_another_base_gets_its_own_paths(function: RecordedFunction, catalog: str):
    with balanced(catalog, function, base_path="/api/catalog") as url:
        *_, body = send(url, "GET", f"{BASE}/lake/namespaces?parent=a%1Fb")
    assert json.loads(body)["target"] == "/v1/lake/namespaces?parent=a%1Fb"
    assert function.events == []


def test_a_function_that_takes_all_gets_empty_parameters_too(function: RecordedFunction, catalog: str):
    with balanced(f"{catalog}/api/catalog", function, takes_all=True) as url:
        send(url, "GET", f"{BASE}/lake/namespaces?pageToken=")
    (event,) = function.events
    assert event["multiValueQueryStringParameters"] == {"pageToken": [""]}
