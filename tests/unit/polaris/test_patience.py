"""Requests to a hung Polaris, which accepts connections and never answers, end before the caller's own timeout."""

import httpx
import pytest
from pydantic import SecretStr

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import PolarisUnavailable
from delegation.polaris.client import PolarisClient
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import TIMEOUT, RequestRetries, Transport
from delegation.wiring import table_access as wiring
from infra.environment.functions import FUNCTIONS
from infra.local.front.https import INTEGRATION_TIMEOUT_SECONDS
from tests.kit.clocks import Clock

HANGS = httpx.ReadTimeout("no answer")


class Hung:
    """Never answers; each request advances the clock by the read timeout."""

    def __init__(self, timeout: httpx.Timeout, backoff: RequestRetries | None = None) -> None:
        self.now = 0.0
        self.requests = 0
        self._read_timeout = timeout.read or 0.0
        http = httpx.Client(transport=httpx.MockTransport(self._handle), timeout=timeout)
        self.transport = Transport(http, backoff=backoff, sleep=self._sleep, monotonic=lambda: self.now)

    def load(self) -> None:
        secret = ClientCredentials("service", SecretStr("s3cr3t"))
        url = "https://polaris.test/v1/oauth/tokens"
        token = OAuth2TokenSource(url, lambda: secret, clock=Clock(), transport=self.transport)
        PolarisClient("https://polaris.test", token, transport=self.transport).load_table(
            TableIdentifier("cat", ("ns",), "orders")
        )

    def _handle(self, _request: httpx.Request) -> httpx.Response:
        self.requests += 1
        self.now += self._read_timeout
        raise HANGS

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_hung_polaris_is_reported_before_the_steps_lambda_times_out() -> None:
    hung = Hung(TIMEOUT)
    with pytest.raises(PolarisUnavailable):
        hung.load()
    assert hung.now < FUNCTIONS["prepare"].timeout_seconds - 10


def test_a_hung_polaris_is_reported_before_api_gateway_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[httpx.Timeout, RequestRetries]] = []

    def transport(http: httpx.Client, *, backoff: RequestRetries) -> Transport:
        made.append((http.timeout, backoff))
        return Transport(http, backoff=backoff)

    monkeypatch.setattr(wiring, "Transport", transport)
    monkeypatch.setattr(wiring, "polaris", lambda transport: transport)
    wiring.synchronous_polaris()
    hung = Hung(*made[0])
    with pytest.raises(PolarisUnavailable):
        hung.load()
    assert hung.now < INTEGRATION_TIMEOUT_SECONDS - 5


def test_requests_that_fail_fast_are_retried_to_the_full_number() -> None:
    hung = Hung(httpx.Timeout(0.1))
    with pytest.raises(PolarisUnavailable):
        hung.load()
    assert hung.requests == RequestRetries().attempts


def test_a_request_begins_at_the_end_of_the_patience_and_none_after_it() -> None:
    retries = RequestRetries(patience_seconds=5.0)
    assert retries.wait(1, 1.0, spent_seconds=4.0) == 1.0
    assert retries.wait(1, 1.0, spent_seconds=4.5) is None
