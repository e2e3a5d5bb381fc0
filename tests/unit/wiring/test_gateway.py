"""The gateway's settings, and its Lambda on an event."""

import gc
import json
from datetime import timedelta
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import ValidationError

from delegation.gateway.forwarding import KnownCatalogs
from delegation.gateway.http import HttpUpstream
from delegation.gateway.messages import CatalogAnswer
from delegation.handlers import gateway as handler
from delegation.wiring import gateway
from delegation.wiring.gateway import CatalogTokenSettings, GatewayEnvironment
from tests.paths import ROOT

CONTEXT = SimpleNamespace(
    function_name="gateway", memory_limit_in_mb=512, invoked_function_arn="arn:aws:lambda:::gateway", aws_request_id="r"
)
PEM = (
    ec.generate_private_key(ec.SECP256R1())
    .public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    .decode()
)
SWITCHED_OFF = json.dumps({"polaris.idempotency.enabled": "false"})
JWKS = "https://issuer.test/keys"
CONFIG = {
    "httpMethod": "GET",
    "path": "/api/catalog/v1/config",
    "multiValueHeaders": {},
    "requestContext": {"path": "/api/catalog/v1/config", "requestId": "r"},
}

DROP = {
    "httpMethod": "DELETE",
    "path": "/api/catalog/v1/config",
    "multiValueHeaders": {},
    "multiValueQueryStringParameters": {"purgeRequested": ["True"]},
    "requestContext": {"path": "/live/api/catalog/v1/lake/namespaces/ns/tables/t", "requestId": "r"},
}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    values = {
        "DELEGATION_POLARIS_URL": "http://catalog.test/api/catalog",
        "DELEGATION_REALM": "R",
        "DELEGATION_IDEMPOTENCY_TABLE": "keys",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(HttpUpstream, "send", lambda _self, _request, timeout: CatalogAnswer(200, (), b'{"a": 1}'))


def test_the_setting_of_a_url_or_a_key_that_is_wrong_is_named(monkeypatch):
    monkeypatch.setenv("DELEGATION_POLARIS_URL", "catalog")
    with pytest.raises(ValidationError, match="DELEGATION_POLARIS_URL"):
        GatewayEnvironment.read()
    monkeypatch.setenv("DELEGATION_TOKEN_PUBLIC_KEY", PEM)
    monkeypatch.setenv("DELEGATION_TOKEN_JWKS_URL", JWKS)
    with pytest.raises(ValidationError, match="DELEGATION_TOKEN_JWKS_URL"):
        CatalogTokenSettings.read()
    monkeypatch.setenv("DELEGATION_TOKEN_PUBLIC_KEY", "none")
    with pytest.raises(ValidationError, match="DELEGATION_TOKEN_PUBLIC_KEY"):
        CatalogTokenSettings.read()


@pytest.mark.parametrize(
    ("variables", "supported"),
    [
        ({}, "false"),
        ({"DELEGATION_TOKEN_PUBLIC_KEY": PEM}, "true"),
        ({"DELEGATION_TOKEN_JWKS_URL": JWKS}, "true"),
        ({"DELEGATION_TOKEN_PUBLIC_KEY": PEM, "DELEGATION_PROPERTIES": SWITCHED_OFF}, "false"),
    ],
)
def test_keys_are_honoured_where_callers_can_be_verified(monkeypatch, variables, supported):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    answer = gateway.gateway()(CONFIG)
    assert json.loads(answer["body"])["properties"]["idempotency-key-supported"] == supported


def test_the_lifetime_and_the_separator_are_the_settings(monkeypatch):
    monkeypatch.setenv("DELEGATION_PROPERTIES", json.dumps({"polaris.idempotency.lifetime": "PT2H"}))
    monkeypatch.setenv("DELEGATION_GATEWAY_NAMESPACE_SEPARATOR", "%2E")
    made = gateway.keyed_mutations(GatewayEnvironment.read(), forwarder=None, catalogs=None)
    assert (made.lifetime, made.realm) == (timedelta(hours=2), "R")
    assert gateway.catalog_paths(GatewayEnvironment.read()).separator == "."


def test_what_a_process_loads_once_is_not_searched_for_garbage_by_later_requests(monkeypatch):
    monkeypatch.setenv("DELEGATION_TOKEN_PUBLIC_KEY", PEM)
    handler._gateway.cache_clear()
    gc.unfreeze()
    try:
        handler.handler(CONFIG, CONTEXT)
        loaded = handler._gateway()
        assert not any(each is loaded for each in gc.get_objects())  # nor is anything that was made before it
    finally:
        gc.unfreeze()
        handler._gateway.cache_clear()


def test_a_call_of_the_table_of_keys_is_neither_validated_nor_described_anew(monkeypatch):
    """Both are done for each call, and together take a third of it."""
    made = []
    monkeypatch.setattr(gateway, "aws", lambda service, config: made.append((service, config)))
    gateway.mutations_held_for(12.0)
    [(service, config)] = made
    assert (service, config.parameter_validation) == ("dynamodb", False)
    assert config.user_agent == "polaris-delegation-gateway"


@pytest.mark.parametrize(("pem", "keyed"), [(None, False), (PEM, True)])
def test_drops_are_made_for_the_first_of_them(monkeypatch, pem, keyed):
    made = []

    class Drops:
        def drop(self, request, caller, identifier):
            made.append(str(identifier))
            return CatalogAnswer(204)

    monkeypatch.setattr(KnownCatalogs, "refusal", lambda *_: None)
    assert gateway.gateway()(DROP)["statusCode"] == 200  # the catalog's own answer: there is no table of tombstones
    monkeypatch.setenv("DELEGATION_TOMBSTONES_TABLE", "tombstones")
    if pem is not None:
        monkeypatch.setenv("DELEGATION_TOKEN_PUBLIC_KEY", pem)
    from delegation.gateway.drop import keyed as keyed_drops
    from delegation.wiring import drops as wired

    monkeypatch.setattr(wired, "table_drops", lambda _forwarder, _realm: Drops())
    monkeypatch.setattr(keyed_drops, "KeyedDrops", lambda drops, *_: made.append("keyed") or drops)
    answer = gateway.gateway()
    assert [answer(DROP)["statusCode"] for _ in range(2)] == [204, 204]
    assert made == [*(["keyed"] if keyed else []), "lake.ns.t", "lake.ns.t"]


@pytest.mark.parametrize(("purges", "status"), [("refuse", 400), ("pass", 200)])
def test_drops_with_purge_are_refused_or_passed_on_where_the_operator_wants_that(monkeypatch, purges, status):
    monkeypatch.setenv("DELEGATION_TOMBSTONES_TABLE", "tombstones")
    monkeypatch.setenv("DELEGATION_GATEWAY_PURGE_REQUESTS", purges)
    answer = gateway.gateway()(DROP)
    assert answer["statusCode"] == status
    assert ("gateway-purge-requests" in answer["body"]) == (purges == "refuse")


@pytest.mark.parametrize("path", sorted((ROOT / "events").glob("gateway*.json")), ids=lambda path: path.stem)
def test_the_sample_event_is_answered_by_the_handler(monkeypatch, path):
    """Without a table of tombstones the drop is the catalog's own."""
    sent = []

    def send(_self, request, timeout):
        sent.append(request)
        return CatalogAnswer(204)

    monkeypatch.setattr(HttpUpstream, "send", send)
    handler._gateway.cache_clear()
    assert handler.handler(json.loads(path.read_text()), CONTEXT)["statusCode"] == 204
    assert [(one.method, one.path, one.query) for one in sent] == [
        ("DELETE", "v1/lake/namespaces/sales/tables/orders", "purgeRequested=True")
    ]
    handler._gateway.cache_clear()
