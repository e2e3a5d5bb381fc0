"""Secrets planted in requests and answers do not appear in reprs, errors, tracebacks or logs."""

import json
import logging
import traceback
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import PolarisError
from delegation.polaris.client import PolarisClient
from delegation.polaris.credentials import VendedCredentials
from delegation.polaris.model import LoadedTable
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.polaris.settings import read_credentials
from tests.kit.clocks import Clock
from tests.unit.polaris.scripted import Server, error, raw_json, table_answer

SECRET = "planted-secret"
TOKENS = "/v1/oauth/tokens"
TABLE = "/v1/lake/namespaces/ns/tables/orders"
ORDERS = TableIdentifier("lake", ("ns",), "orders")
VENDED = {
    "s3.access-key-id": f"{SECRET}-id",
    "s3.secret-access-key": f"{SECRET}-key",
    "s3.session-token": f"{SECRET}-session",
}


@pytest.fixture
def client(server: Server, clock: Clock) -> PolarisClient:
    server.answer("POST", TOKENS, raw_json(json.dumps({"access_token": f"{SECRET}-token", "expires_in": 3600})))
    server.answer("GET", "/v1/config", raw_json('{"overrides": {"prefix": "lake"}}'))
    vended = [{"prefix": "s3://lake", "config": VENDED}]
    server.answer("GET", TABLE, table_answer(config=VENDED, **{"storage-credentials": vended}))
    credentials = ClientCredentials("purger", SecretStr(f"{SECRET}-client"))
    tokens = OAuth2TokenSource(
        "https://polaris.test" + TOKENS, lambda: credentials, clock=clock, transport=server.transport
    )
    return PolarisClient("https://polaris.test", tokens, transport=server.transport)


def texts(value: object) -> str:
    return f"{value!r} {value!s} {value}"


def test_no_repr_shows_a_secret(client: PolarisClient, clock: Clock) -> None:
    loaded = client.load_table(ORDERS)
    vended = VendedCredentials(lambda: loaded, clock=clock)
    held = vended.for_uri("s3://lake/ns/orders/f")
    assert held.secret_access_key == f"{SECRET}-key"
    credentials = ClientCredentials("purger", SecretStr(f"{SECRET}-client"))
    shown = "".join(map(texts, (loaded, held, vended, client, credentials, loaded.credentials, [loaded])))
    assert SECRET not in shown


def unusable(**changes: Any) -> httpx.Response:
    return table_answer(config=VENDED, **changes)


ECHO = f"the token {SECRET}-token was refused"
ECHO_CLIENT = f"the client secret {SECRET}-client was refused"
FAILURES: list[Callable[[Server], None]] = [
    lambda server: server.answer("GET", TABLE, error(403, "ForbiddenException", ECHO)),
    lambda server: server.answer("GET", TABLE, error(500, "RuntimeException", ECHO)),
    lambda server: server.answer("GET", TABLE, error(400, f"{SECRET}-token", ECHO)),
    lambda server: server.answer("GET", TABLE, httpx.Response(401, text=ECHO)),
    lambda server: server.answer("GET", TABLE, httpx.Response(502, text=ECHO)),
    lambda server: server.answer("GET", TABLE, httpx.ReadTimeout("slow")),
    lambda server: server.answer("GET", TABLE, httpx.Response(200, text=f"{{'{SECRET}")),
    lambda server: server.answer("GET", TABLE, unusable(metadata=None)),
    lambda server: server.answer("GET", TABLE, unusable(**{"metadata-location": ""})),
    lambda server: server.answer("GET", TABLE, table_answer(config=VENDED | {"expiration-time": f"{SECRET}-time"})),
    lambda server: server.answer(
        "POST", TOKENS, httpx.Response(401, json={"error": "x", "error_description": ECHO_CLIENT})
    ),
    lambda server: server.answer("POST", TOKENS, httpx.Response(400, json={"error": f"{SECRET}-client"})),
    lambda server: server.answer("POST", TOKENS, httpx.Response(200, text=f"{SECRET}-token")),
    lambda server: server.answer("POST", TOKENS, httpx.Response(200, json={"token": f"{SECRET}-token"})),
    lambda server: server.answer("POST", TOKENS, httpx.ConnectError("refused")),
]


@pytest.mark.parametrize("fail", FAILURES, ids=[str(number) for number in range(len(FAILURES))])
def test_no_error_shows_a_secret(
    client: PolarisClient, server: Server, fail: Callable[[Server], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fail(server)
    with pytest.raises(PolarisError) as raised:
        client.load_table(ORDERS)
    shown = texts(raised.value) + str(vars(raised.value)) + "".join(traceback.format_exception(raised.value))
    assert SECRET not in shown + caplog.text
    assert raised.value.args[0]


class Secrets:
    def __init__(self, text: str | None) -> None:
        self.text = text

    def get_secret_value(self, *, SecretId: str) -> dict[str, Any]:
        return {"ARN": SecretId, "SecretString": self.text}


@pytest.mark.parametrize(
    "text",
    [
        f"{{{SECRET}",
        json.dumps({"client_id": "x", "secret": SECRET}),
        json.dumps({"client_secret": SECRET}),
        f'"{SECRET}"',
    ],
)
def test_a_malformed_secret_is_not_quoted(text: str) -> None:
    with pytest.raises(PolarisError) as raised:
        read_credentials(Secrets(text), "arn:secret")
    shown = "".join(traceback.format_exception(raised.value)) + texts(raised.value)
    assert SECRET not in shown


def test_an_error_with_a_table_as_argument_shows_no_secret(client: PolarisClient) -> None:
    loaded: LoadedTable = client.load_table(ORDERS)
    assert SECRET not in str(ValueError(loaded, loaded.credentials))
