from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier, Event

import httpx
import pytest
from pydantic import SecretStr

from delegation.polaris import answers
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from tests.kit.clocks import Clock
from tests.unit.polaris.scripted import Server, error

PATH = "/api/catalog/v1/oauth/tokens"


class Issued:
    """Answers with token-1, token-2, …, once `go` is set."""

    def __init__(self, expires_in: int | None = 3600) -> None:
        self.count = 0
        self.expires_in = expires_in
        self.go = Event()
        self.go.set()

    def __call__(self) -> httpx.Response:
        assert self.go.wait(10)
        self.count += 1
        lifetime = {} if self.expires_in is None else {"expires_in": self.expires_in}
        return httpx.Response(200, json={"access_token": f"token-{self.count}", **lifetime})


def source(
    server: Server, clock: Clock, secrets: list[str] | None = None, realm: str | None = None
) -> OAuth2TokenSource:
    queue = secrets or ["pssst"]
    return OAuth2TokenSource(
        "https://polaris.test" + PATH,
        lambda: ClientCredentials("purger", SecretStr(queue.pop(0) if len(queue) > 1 else queue[0])),
        clock=clock,
        realm=realm,
        transport=server.transport,
    )


def test_the_request_is_a_client_credentials_grant(server: Server, clock: Clock) -> None:
    server.answer("POST", PATH, Issued())
    assert source(server, clock, realm="prod").token() == "token-1"
    [request] = server.requests
    assert request.headers["Polaris-Realm"] == "prod"
    assert dict(httpx.QueryParams(request.content.decode())) == {
        "grant_type": "client_credentials",
        "client_id": "purger",
        "client_secret": "pssst",
        "scope": "PRINCIPAL_ROLE:ALL",
    }


@pytest.mark.parametrize(
    ("expires_in", "still_used", "replaced"),
    [(3600, 3539, 3541), (100, 89, 91), (None, 269, 271), (10**12, 86_339, 86_341), (0, 269, 271)],
)
def test_a_token_is_replaced_shortly_before_it_expires(
    server: Server, clock: Clock, expires_in: int | None, still_used: int, replaced: int
) -> None:
    server.answer("POST", PATH, Issued(expires_in))
    tokens = source(server, clock)
    tokens.token()
    clock.advance(timedelta(seconds=still_used))
    assert tokens.token() == "token-1"
    clock.advance(timedelta(seconds=replaced - still_used))
    assert tokens.token() == "token-2"


def test_concurrent_threads_cause_one_request(server: Server, clock: Clock) -> None:
    issued = Issued()
    issued.go.clear()
    server.answer("POST", PATH, issued)
    tokens = source(server, clock)
    ready = Barrier(9)

    def ask() -> str:
        ready.wait(10)
        return tokens.token()

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask) for _ in range(8)]
        ready.wait(10)
        issued.go.set()
        assert {future.result(10) for future in asked} == {"token-1"}
    assert issued.count == 1


def test_a_token_refused_to_several_threads_is_replaced_once(server: Server, clock: Clock) -> None:
    issued = Issued()
    server.answer("POST", PATH, issued)
    tokens = source(server, clock)
    refused = tokens.token()
    with ThreadPoolExecutor(8) as pool:
        replaced = set(pool.map(lambda _: tokens.replace(refused), range(8)))
    assert replaced == {"token-2"}
    assert issued.count == 2


def test_a_rotated_secret_is_used_for_the_next_token(server: Server, clock: Clock) -> None:
    server.answer("POST", PATH, Issued())
    tokens = source(server, clock, secrets=["old", "new"])
    tokens.token()
    tokens.replace("token-1")
    sent = [httpx.QueryParams(request.content.decode())["client_secret"] for request in server.requests]
    assert sent == ["old", "new"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (httpx.Response(401, json={"error": "unauthorized_client"}), answers.PolarisUnauthorized),
        (httpx.Response(400, json={"error": "invalid_client"}), answers.PolarisUnauthorized),
        (httpx.Response(400, json={"error": "invalid_scope"}), answers.PolarisMisconfigured),
        (error(404, "MissingOrInvalidRealm"), answers.PolarisMisconfigured),
        (httpx.Response(200, json={"token_type": "bearer"}), answers.PolarisUnexpectedAnswer),
        (httpx.Response(200, text="<html>"), answers.PolarisUnexpectedAnswer),
        (httpx.Response(503), answers.PolarisUnavailable),
        (httpx.ReadTimeout("slow"), answers.PolarisUnavailable),
    ],
)
def test_failures_of_the_token_endpoint(
    server: Server, clock: Clock, answer: httpx.Response | Exception, kind: type[answers.PolarisError]
) -> None:
    server.answer("POST", PATH, answer)
    with pytest.raises(answers.PolarisError) as raised:
        source(server, clock).token()
    assert type(raised.value) is kind


def test_a_failure_is_not_cached(server: Server, clock: Clock) -> None:
    server.answer("POST", PATH, httpx.Response(400, json={"error": "invalid_scope"}), Issued())
    tokens = source(server, clock)
    with pytest.raises(answers.PolarisMisconfigured):
        tokens.token()
    assert tokens.token() == "token-1"
