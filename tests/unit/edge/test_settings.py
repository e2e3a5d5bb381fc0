"""Settings of the API and its authorizer: an error names an invalid setting and does not show its value."""

import traceback

import pytest
from aws_lambda_powertools import Logger
from pydantic import ValidationError

from delegation.edge.trust.certificates import CertificateSource
from delegation.edge.trust.jwks import JwksKeys
from delegation.edge.trust.settings import AuthorizerSettings
from delegation.edge.trust.tokens import StaticKeys
from delegation.wiring.api import api
from delegation.wiring.authorizer import authorizer
from delegation.wiring.settings import ApiSettings
from infra.environment import FUNCTIONS, Resources, environment
from tests.unit.edge.trust.pki import (
    ISSUER,
    NOW,
    SUBJECT,
    authority,
    certificate,
    ec_key,
    pem,
    public_pem,
    revocation_list,
)

JWKS = {
    "DELEGATION_CLIENT_SUBJECT": SUBJECT,
    "DELEGATION_CLIENT_ISSUER": ISSUER,
    "DELEGATION_TOKEN_ISSUER": "https://issuer.test",
    "DELEGATION_TOKEN_JWKS_URL": "https://issuer.test/jwks.json",
}
SECRET = "Pl4ntedS3cretPl4nted"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DELEGATION_TOKEN_PUBLIC_KEY", "DELEGATION_TOKEN_AUDIENCE", "DELEGATION_CLIENT_SERIALS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in JWKS.items():
        monkeypatch.setenv(name, value)


def test_defaults_are_api_gateway_and_the_scope_of_the_proposal() -> None:
    settings = AuthorizerSettings.read()
    assert settings.client_certificate_source is CertificateSource.APIGATEWAY
    assert settings.token_scope == "execute_tasks"
    assert settings.token_audience is None
    assert settings.token_leeway_seconds == 30


def test_settings_are_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        AuthorizerSettings.read().token_scope = "other"  # type: ignore[misc]


@pytest.mark.parametrize("name", ["DELEGATION_CLIENT_SUBJECT", "DELEGATION_CLIENT_ISSUER", "DELEGATION_TOKEN_ISSUER"])
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_setting_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch, name: str, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match=name):
        AuthorizerSettings.read()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DELEGATION_CLIENT_SUBJECT", f"{SECRET}"),
        ("DELEGATION_CLIENT_ISSUER", "CN=a, O=b"),
        ("DELEGATION_CLIENT_SERIALS", f"0a,{SECRET}"),
        ("DELEGATION_CLIENT_CERTIFICATE_SOURCE", "header"),
        ("DELEGATION_CLIENT_CRL", SECRET),
        ("DELEGATION_CLIENT_CRL", pem(revocation_list([7]))),
        ("DELEGATION_CLIENT_CA", SECRET),
        ("DELEGATION_TOKEN_JWKS_URL", "ftp://issuer.test"),
        ("DELEGATION_TOKEN_JWKS_URL", "https://"),
        ("DELEGATION_TOKEN_PUBLIC_KEY", SECRET),
        ("DELEGATION_TOKEN_SCOPE", "two scopes"),
        ("DELEGATION_OPERATOR_SCOPE", "two scopes"),
        ("DELEGATION_OPERATOR_SUBJECTS", f"CN=a;{SECRET}"),
        ("DELEGATION_CLIENT_NEXT_SUBJECT", SECRET),
        ("DELEGATION_TOKEN_NEXT_PUBLIC_KEY", public_pem(ec_key())),
        ("DELEGATION_TOKEN_LEEWAY_SECONDS", "301"),
        ("DELEGATION_TOKEN_LEEWAY_SECONDS", "-1"),
        ("DELEGATION_TOKEN_JWKS_TIMEOUT_SECONDS", "0"),
    ],
)
def test_an_invalid_setting_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match=name) as refused:
        AuthorizerSettings.read()
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_exactly_one_source_of_keys_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATION_TOKEN_PUBLIC_KEY", public_pem(ec_key()))
    with pytest.raises(ValidationError, match="exactly one"):
        AuthorizerSettings.read()
    monkeypatch.delenv("DELEGATION_TOKEN_JWKS_URL")
    assert isinstance(authorizer().tokens.keys, StaticKeys)
    monkeypatch.delenv("DELEGATION_TOKEN_PUBLIC_KEY")
    with pytest.raises(ValidationError, match="exactly one"):
        AuthorizerSettings.read()


def test_the_authorizer_is_built_from_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATION_CLIENT_SERIALS", "0a:1b,2c")
    monkeypatch.setenv("DELEGATION_CLIENT_CERTIFICATE_SOURCE", "alb")
    monkeypatch.setenv("DELEGATION_CLIENT_CRL", pem(revocation_list([7])))
    monkeypatch.setenv("DELEGATION_CLIENT_CA", pem(authority()))
    built = authorizer()
    [[pin]] = [identity.pins for identity in built.identities]
    assert built.source is CertificateSource.ALB
    assert pin.serials == {0x0A1B, 0x2C}
    assert pin.subject.rfc4514_string() == SUBJECT
    assert pin.revoked is not None
    assert pin.authority is not None
    pin.check(certificate(serial=0x2C), NOW)
    assert isinstance(built.tokens.keys, JwksKeys)


def test_without_serials_any_certificate_of_the_identity_is_admitted() -> None:
    assert authorizer().identities[0].pins[0].serials is None


def test_the_lambda_gets_the_variables_that_the_settings_read() -> None:
    given = environment(
        "authorizer",
        Resources(
            client_subject=SUBJECT,
            client_issuer=ISSUER,
            client_serials="0a:1b",
            token_issuer="https://issuer.test",
            token_jwks_url="https://issuer.test/jwks.json",
            token_audience="delegation",
        ),
    )
    read = {field.alias for field in AuthorizerSettings.model_fields.values()}
    assert {name for name in given if name.startswith("DELEGATION_")} <= read
    assert "POWERTOOLS_METRICS_NAMESPACE" in environment("api", Resources())
    assert {"api", "authorizer"} <= FUNCTIONS.keys()


def test_the_api_requires_a_metrics_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POWERTOOLS_METRICS_NAMESPACE", raising=False)
    with pytest.raises(ValidationError, match="POWERTOOLS_METRICS_NAMESPACE"):
        api(Logger(service="edge-settings"))


def test_tracing_is_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Delegation")
    assert ApiSettings.read().tracing is False
    monkeypatch.setenv("DELEGATION_TRACING", "true")
    assert ApiSettings.read().tracing is True
