"""Whatever JSON the catalog answers, its client returns what can be used or raises an error of this service."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

import httpx
import pytest
from pydantic import SecretStr

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import PolarisUnexpectedAnswer
from delegation.polaris.client import PolarisClient
from delegation.polaris.management import PolarisManagement
from delegation.polaris.model import VIEW
from delegation.polaris.policies import PolicyClient, PolicyIdentifier, PolicyTarget
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import Transport
from polaris_common.errors import DelegationError

BASE = "https://polaris.test/api/catalog"
ORDERS = TableIdentifier("lake", ("sales",), "orders")
CONFIG = {"defaults": {}, "overrides": {"prefix": "lake", "namespace-separator": "%1F"}}
CREDENTIAL = {"s3.access-key-id": "A", "s3.secret-access-key": "B", "s3.session-token-expires-at-ms": "1"}
TABLE = {
    "metadata-location": "s3://lake/t/1.json",
    "metadata": {
        "format-version": 2,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "s3://lake/t",
        "properties": {"a": "b"},
    },
    "config": CREDENTIAL,
    "storage-credentials": [{"prefix": "s3://lake/t", "config": CREDENTIAL}],
}
POLICY = {"policy-type": "t", "name": "p", "version": 1, "content": "{}", "namespace": ["a"], "inherited": True}
NAMES = {"identifiers": [{"namespace": ["sales"], "name": "orders"}], "next-page-token": None}
DEEP = (b"[" * 100_000, b'{"a":' * 100_000, b'{"metadata": ' + b"[" * 100_000 + b"}")
HOSTILE = (
    None,
    True,
    0,
    -1,
    1.5,
    float("inf"),
    10**400,
    "",
    "\ud800",
    "\0",
    "a/../b",
    [],
    [[]],
    {},
    {"a": []},
    ["\ud800"],
)


class KnownToken:
    scope: ClassVar = ""

    def token(self) -> str:
        return "token"

    def replace(self, refused: str) -> str:
        return refused


def variants(document: Any) -> Iterator[Any]:
    """The document with each of its values replaced by each hostile one, or left out."""
    yield from HOSTILE
    members = (
        document if isinstance(document, dict) else dict(enumerate(document)) if isinstance(document, list) else {}
    )
    for place, value in members.items():
        for other in variants(value):
            changed: Any = dict(document) if isinstance(document, dict) else list(document)
            changed[place] = other
            yield changed
    for place in document if isinstance(document, dict) else ():
        yield {name: each for name, each in document.items() if name != place}


def answering(body: bytes, status: int, config: bytes | None = None) -> Transport:
    """A transport that answers everything but the configuration with one body."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/v1/config"):
            return httpx.Response(200, content=json.dumps(CONFIG).encode() if config is None else config)
        return httpx.Response(status, content=body)

    return Transport(httpx.Client(transport=httpx.MockTransport(handle)), sleep=lambda _: None)


def client_of(transport: Transport) -> PolarisClient:
    return PolarisClient(BASE, KnownToken(), realm=None, transport=transport)


def policies_of(transport: Transport) -> PolicyClient:
    return PolicyClient(client_of(transport).requests)


def management_of(transport: Transport) -> PolarisManagement:
    return PolarisManagement("https://polaris.test/api/management/v1", KnownToken(), realm=None, transport=transport)


def signed_in(transport: Transport) -> str:
    tokens = OAuth2TokenSource(
        f"{BASE}/v1/oauth/tokens",
        lambda: ClientCredentials("purger", SecretStr("secret")),
        clock=lambda: datetime(2026, 11, 28, tzinfo=UTC),
        realm=None,
        transport=transport,
    )
    return tokens.token()


def read(table: Any) -> Any:
    """All that a loaded table states."""
    return [table.table_uuid, table.location, table.format_version, table.properties, str(table.s3), table.identifier]


CALLS: dict[str, tuple[Callable[[Transport], Any], Any]] = {
    "load": (lambda at: read(client_of(at).load_table(ORDERS)), TABLE),
    "load if changed": (lambda at: read(client_of(at).load_if_changed(ORDERS, "e")), TABLE),
    "commit": (lambda at: read(client_of(at).commit_table(ORDERS, [], [])), TABLE),
    "tables": (lambda at: list(client_of(at).list_tables("lake", ("sales",))), NAMES),
    "views": (lambda at: list(client_of(at).list_others(VIEW, "lake", ("sales",))), NAMES),
    "namespaces": (lambda at: list(client_of(at).list_namespaces("lake")), {"namespaces": [["a"]]}),
    "location": (
        lambda at: client_of(at).namespace_location("lake", ("a",)),
        {"namespace": ["a"], "properties": {"location": "s3://lake/a"}},
    ),
    "generic tables": (
        lambda at: client_of(at).generic_tables("lake", ("sales",)),
        {**NAMES, "table": {"name": "orders", "base-location": "s3://lake/g"}},
    ),
    "tombstones": (lambda at: client_of(at).own_tombstones(), {"tombstones": [], "next_page_token": None}),
    "policies": (lambda at: list(policies_of(at).list_policies("lake", ("sales",))), NAMES),
    "policy": (lambda at: policies_of(at).load(PolicyIdentifier("lake", ("a",), "p")), {"policy": POLICY}),
    "applicable": (
        lambda at: policies_of(at).applicable(PolicyTarget.of(ORDERS)),
        {"applicable-policies": [POLICY], "next-page-token": None},
    ),
    "properties": (lambda at: management_of(at).properties_of("lake"), {"properties": {"a": "b"}, "entityVersion": 1}),
    "grants": (
        lambda at: management_of(at).grants_of("lake", "r"),
        {"grants": [{"type": "namespace", "namespace": ["a"], "privilege": "X"}]},
    ),
    "roles": (lambda at: management_of(at).principal_roles_of("p"), {"roles": [{"name": "r"}]}),
    "principal": (lambda at: management_of(at).client_id_of("p"), {"clientId": "x"}),
    "secret": (
        lambda at: management_of(at).rotate_secret("p"),
        {"credentials": {"clientId": "x", "clientSecret": "y"}},
    ),
    "token": (signed_in, {"access_token": "x", "expires_in": 3600}),
}
MAKES_A_SECRET: dict[str, Callable[[PolarisManagement], Any]] = {
    "create": lambda management: management.create_principal("purger"),
    "reset": lambda management: management.reset_secret("purger"),
    "rotate": lambda management: management.rotate_secret("purger"),
}
ERROR = {"error": {"message": "m", "type": "NoSuchTableException", "code": 404}}


@pytest.mark.parametrize(("name", "status"), [("create", 201), ("reset", 200), ("rotate", 200)])
def test_an_answer_without_the_new_secret_names_the_principal_and_the_next_step(name: str, status: int):
    body = b'{"credentials": {"clientSecret": "hidden"}}'
    with pytest.raises(PolarisUnexpectedAnswer) as raised:
        MAKES_A_SECRET[name](management_of(answering(body, status)))
    text = str(raised.value)
    assert raised.value.status == status
    assert "purger" in text
    assert "`delegation polaris setup CATALOG --new-secret`" in text
    assert ("created" in text) == (name == "create")
    assert "hidden" not in text


@pytest.mark.parametrize("name", CALLS)
def test_whatever_is_answered_is_returned_as_text_that_can_be_stored_or_raised_as_a_typed_error(name: str):
    call, document = CALLS[name]
    for body in (*DEEP, *(json.dumps(each).encode() for each in variants(document))):
        used(call, answering(body, 200))
    for status in (400, 404, 500):
        for body in (*DEEP, *(json.dumps(each).encode() for each in variants(ERROR))):
            used(call, answering(body, status))


@pytest.mark.parametrize("name", ["load", "tables", "applicable"])
def test_whatever_configuration_is_answered(name: str):
    call, document = CALLS[name]
    for config in (*DEEP, *(json.dumps(each).encode() for each in variants(CONFIG))):
        used(call, answering(json.dumps(document).encode(), 200, config))


def used(call: Callable[[Transport], Any], at: Transport) -> None:
    try:
        text = repr(call(at)).encode("unicode_escape").decode()
    except DelegationError as error:
        text = str(error)
        text.encode()
    assert "\\ud800" not in text
