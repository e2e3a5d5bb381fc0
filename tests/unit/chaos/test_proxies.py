"""The proxies of a chaos run pass everything on, unless a fault is on."""

import random
from collections.abc import Iterator

import httpx
import pytest
from werkzeug.wrappers import Request, Response

from infra.local.processes.programs import WsgiServer
from tests.chaos.proxies import SLOW_DOWN, THROUGHPUT_EXCEEDED, Relay, ThrottlingProxy


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    @Request.application
    def echo(request: Request) -> Response:
        body = request.get_data() or b"nothing"
        own = {"X-Target": request.environ["RAW_URI"], "X-Own": request.headers.get("X-Own", "")}
        return Response(body, 201 if request.method == "PUT" else 200, headers=own)

    server = WsgiServer(echo).start()
    yield server.url
    server.stop()


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(verify=False) as client:  # nothing here speaks TLS, and reading the authorities takes a while
        yield client


@pytest.fixture
def proxy(upstream: str) -> Iterator[ThrottlingProxy]:
    proxy = ThrottlingProxy(upstream, SLOW_DOWN, random.Random(1)).start()
    yield proxy
    proxy.stop()


def test_a_request_and_its_answer_pass_unchanged(proxy, http):
    answer = http.put(f"{proxy.url}/a%2Fb/c+d?list-type=2&x=%20", content=b"\x00data", headers={"X-Own": "1"})
    assert (answer.status_code, answer.content) == (201, b"\x00data")
    assert (answer.headers["X-Target"], answer.headers["X-Own"]) == ("/a%2Fb/c+d?list-type=2&x=%20", "1")
    assert http.head(proxy.url).headers["Content-Length"] == "7"


def test_a_share_of_the_requests_is_refused_while_it_throttles_and_counted(proxy, http):
    proxy.throttle(0.5)
    statuses = [http.get(proxy.url).status_code for _ in range(20)]
    proxy.throttle(0.0)
    assert {200, 503} == set(statuses)
    assert proxy.throttled == statuses.count(503)
    assert http.get(proxy.url).status_code == 200


def test_the_refusals_are_those_of_the_services(proxy, http):
    proxy.throttle(1.0)
    assert "<Code>SlowDown</Code>" in http.get(proxy.url).text
    assert b"ProvisionedThroughputExceededException" in THROUGHPUT_EXCEEDED.body
    assert (SLOW_DOWN.status, THROUGHPUT_EXCEEDED.status) == (503, 400)


def test_a_relay_passes_bytes_on_cuts_connections_and_refuses_while_it_is_down(upstream, http):
    host, _, port = upstream.removeprefix("http://").partition(":")
    relay = Relay((host, int(port))).start()
    url = f"http://{relay.address}"
    assert http.put(url, content=b"x" * 100_000).content == b"x" * 100_000
    relay.down(True)
    with pytest.raises(httpx.TransportError):
        http.get(url)
    relay.down(False)
    assert http.get(url).status_code == 200
    relay.stop()
    with pytest.raises(httpx.ConnectError):
        http.get(url)
