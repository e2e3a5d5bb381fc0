"""Settings of the API and its authorizer: an error names an invalid setting and does not show its value."""

import traceback

import pytest
from aws_lambda_powertools import Logger
from pydantic import ValidationError

from delegation.edge.trust.authorizer import CertificateReader, CertificateSource
from delegation.edge.trust.settings import AuthorizerSettings
from delegation.edge.trust.tokens import JwksKeys, StaticKeys
from delegation.wiring.api import api
from delegation.wiring.authorizer import authorizer
from infra.environment.functions import FUNCTIONS
from infra.environment.resources import Resources, environment
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
        ("DELEGATION_CLIENT_NEXT_SERIALS", f"0a,{SECRET}"),
        ("DELEGATION_CLIENT_CERTIFICATE_SOURCE", "alb"),
        ("DELEGATION_CLIENT_VPC_ENDPOINTS", "vpce-0a1b"),
        ("DELEGATION_CLIENT_VPC_ENDPOINTS", f"vpce-0a1b,{SECRET}"),
        ("DELEGATION_REVOCATION_LISTS", f"https://{SECRET}/ca.crl"),
        ("DELEGATION_REVOCATION_LISTS", "s3://bucket"),
        ("DELEGATION_REVOCATION_OUTDATED", "ignore"),
        ("DELEGATION_REVOCATION_MAX_AGE_SECONDS", "0"),
        ("DELEGATION_OPERATOR_NEXT_ISSUER", SECRET),
        ("DELEGATION_TOKEN_BINDING", "sometimes"),
        ("DELEGATION_TOKEN_NEXT_ISSUER", "https://issuer.test"),
        ("DELEGATION_TOKEN_NEXT_JWKS_URL", "https://next.test/jwks.json"),
        ("DELEGATION_TOKEN_NEXT_AUDIENCE", "next"),
        ("DELEGATION_TOKEN_NEXT_CLIENT_ID", "polaris-2"),
        ("DELEGATION_TOKEN_CLIENT_ID", None),
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
def test_an_invalid_setting_is_named_in_the_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    if value is None:  # needed with a scope that any principal of Polaris gets
        monkeypatch.setenv("DELEGATION_TOKEN_SCOPE", "PRINCIPAL_ROLE:ALL")
    else:
        monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match=name) as refused:
        AuthorizerSettings.read()
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_exactly_one_source_of_keys_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATION_TOKEN_PUBLIC_KEY", public_pem(ec_key()))
    with pytest.raises(ValidationError, match="exactly one"):
        AuthorizerSettings.read()
    monkeypatch.delenv("DELEGATION_TOKEN_JWKS_URL")
    assert isinstance(authorizer().tokens.issuers[0].keys, StaticKeys)
    monkeypatch.delenv("DELEGATION_TOKEN_PUBLIC_KEY")
    with pytest.raises(ValidationError, match="exactly one"):
        AuthorizerSettings.read()


def test_the_authorizer_is_built_from_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATION_CLIENT_SERIALS", "0a:1b,2c")
    monkeypatch.setenv("DELEGATION_CLIENT_CERTIFICATE_SOURCE", "alb")
    monkeypatch.setenv("DELEGATION_CLIENT_VPC_ENDPOINTS", "vpce-0a1b, vpce-2c3d")
    monkeypatch.setenv("DELEGATION_CLIENT_CRL", pem(revocation_list([7])))
    monkeypatch.setenv("DELEGATION_CLIENT_CA", pem(authority()))
    built = authorizer()
    [[pin]] = [identity.pins for identity in built.identities]
    assert built.certificates == CertificateReader(CertificateSource.ALB, frozenset({"vpce-0a1b", "vpce-2c3d"}))
    assert pin.serials == {0x0A1B, 0x2C}
    assert pin.subject.rfc4514_string() == SUBJECT
    assert pin.revocation is not None
    pin.check(certificate(serial=0x2C), NOW)
    [issuer] = built.tokens.issuers
    assert isinstance(issuer.keys, JwksKeys)


def test_a_list_of_another_issuer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATION_CLIENT_CRL", pem(revocation_list(issuer="CN=Other CA")))
    monkeypatch.setenv("DELEGATION_CLIENT_CA", pem(authority("CN=Other CA")))
    with pytest.raises(ValidationError, match="for DELEGATION_CLIENT_ISSUER"):
        authorizer()


@pytest.mark.parametrize(
    ("name", "operators"),
    [("CLIENT_NEXT_ISSUER", ""), ("OPERATOR_ISSUER", "CN=operator"), ("OPERATOR_NEXT_ISSUER", "CN=operator")],
)
def test_a_list_has_to_decide_on_every_issuer(monkeypatch: pytest.MonkeyPatch, name: str, operators: str) -> None:
    """Certificates of another issuer were admitted unchecked."""
    monkeypatch.setenv("DELEGATION_CLIENT_CRL", pem(revocation_list([7])))
    monkeypatch.setenv("DELEGATION_CLIENT_CA", pem(authority()))
    if operators:
        monkeypatch.setenv("DELEGATION_OPERATOR_SUBJECTS", operators)
    pins = [pin for identity in authorizer().identities for pin in identity.pins]
    assert all(pin.revocation is not None for pin in pins)
    monkeypatch.setenv(f"DELEGATION_{name}", "CN=Next CA")
    with pytest.raises(ValidationError, match=r"DELEGATION_CLIENT_CRL .*CN=Next CA"):
        authorizer()


def test_lists_in_s3_decide_on_every_pinned_issuer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DELEGATION_REVOCATION_LISTS", "s3://lists/ca.crl, s3://lists/next.crl")
    with pytest.raises(ValidationError, match=f"DELEGATION_CLIENT_CA lacks the certificate of {ISSUER}"):
        authorizer()
    monkeypatch.setenv("DELEGATION_CLIENT_NEXT_ISSUER", "CN=Next CA")
    monkeypatch.setenv("DELEGATION_OPERATOR_SUBJECTS", "CN=operator")
    monkeypatch.setenv("DELEGATION_OPERATOR_ISSUER", "CN=People")
    authorities = [pem(authority()), pem(authority("CN=Next CA"))]
    monkeypatch.setenv("DELEGATION_CLIENT_CA", "".join(authorities))
    with pytest.raises(ValidationError, match="DELEGATION_CLIENT_CA lacks the certificate of CN=People"):
        authorizer()
    monkeypatch.setenv("DELEGATION_CLIENT_CA", "".join([*authorities, pem(authority("CN=People"))]))
    pins = [pin for identity in authorizer().identities for pin in identity.pins]
    assert len(pins) == 3
    assert all(pin.revocation is not None for pin in pins)
    monkeypatch.setenv("DELEGATION_CLIENT_CRL", pem(revocation_list()))
    with pytest.raises(ValidationError, match="only one of"):
        authorizer()


def test_operators_must_be_pinned_where_any_principal_gets_the_scope(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DELEGATION_OPERATOR_SCOPE", "PRINCIPAL_ROLE:operators")
    assert len(authorizer().identities) == 1
    monkeypatch.setenv("DELEGATION_OPERATOR_SUBJECTS", "CN=operator")
    with pytest.raises(ValidationError, match="DELEGATION_OPERATOR_CLIENT_IDS"):
        authorizer()
    monkeypatch.setenv("DELEGATION_OPERATOR_CLIENT_IDS", "alice, bob")
    assert authorizer().identities[1].clients == {"alice", "bob"}


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
