"""The authorizer's decision and policy, and the answers and log lines of its Lambda."""

import contextlib
import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.edge.errors import KeysUnavailable, Unauthorized
from delegation.edge.trust.authorizer import (
    Authorizer,
    CertificatePin,
    CertificateReader,
    CertificateSource,
    Identity,
    parse_name,
    stage_arn,
    thumbprint,
)
from delegation.edge.trust.permissions import ALL, OPEN_METHODS, Permission
from delegation.edge.trust.tokens import StaticKeys, TokenBinding, TokenVerifier, TrustedIssuer, public_key
from delegation.handlers import authorizer as handler_module
from delegation.wiring import authorizer as wiring
from tests.paths import EVENTS
from tests.unit.edge.gateway import Context, sample
from tests.unit.edge.trust.pki import (
    DAY,
    ENDPOINT,
    ISSUER,
    NOW,
    SERIAL,
    SUBJECT,
    TokenMaker,
    alb_headers,
    certificate,
    pem,
    public_pem,
    rsa_key,
)

MAKER = TokenMaker(rsa_key())
STAGE = "arn:aws:execute-api:eu-central-1:123456789012:a1b2c3d4e5/live"
POST = f"{STAGE}/POST/v1/tasks"
APIGATEWAY = CertificateReader()
ALB = CertificateReader(CertificateSource.ALB, frozenset({ENDPOINT}))


def make(reader: CertificateReader = APIGATEWAY, *others: Identity) -> Authorizer:
    keys = StaticKeys((public_key(public_pem(rsa_key())),))
    return Authorizer(
        identities=(Identity((CertificatePin(parse_name(SUBJECT), parse_name(ISSUER)),), "execute_tasks"), *others),
        certificates=reader,
        tokens=TokenVerifier((TrustedIssuer("https://issuer.test", keys, "delegation"),), clock=lambda: NOW),
        clock=lambda: NOW,
    )


def event(
    authorization: str | None = None, presented: Any = None, *, header: str = "Authorization", arn: str = POST
) -> dict[str, Any]:
    """Return a REQUEST authorizer event with a certificate, and a token unless `authorization` is empty."""
    value = MAKER.bearer() if authorization is None else authorization
    identity = {"clientCert": {"clientCertPem": pem(presented or certificate())}}
    return {
        "type": "REQUEST",
        "methodArn": arn,
        "headers": {header: value} if value else {},
        "requestContext": {"identity": identity},
    }


def effect(policy: dict[str, Any]) -> tuple[str, str]:
    [statement] = policy["policyDocument"]["Statement"]
    assert statement["Action"] == "execute-api:Invoke"
    return statement["Effect"], statement["Resource"]


def test_the_pinned_client_with_a_valid_token_is_allowed_the_whole_stage() -> None:
    verdict = make().decide(event())
    assert verdict.refusal is None
    assert effect(verdict.policy) == ("Allow", f"{STAGE}/*")
    assert verdict.policy["principalId"] == "polaris"
    assert verdict.policy["context"] == {
        "client_id": "polaris",
        "subject": "service-account-polaris",
        "scope": "execute_tasks openid",
        "permissions": "read submit",
        "certificate_subject": SUBJECT,
        "certificate_serial": f"{SERIAL:x}",
    }


def test_the_certificate_is_read_from_the_albs_header_only_behind_an_alb() -> None:
    given = event()
    given["requestContext"]["identity"] = {"vpceId": ENDPOINT}
    given["headers"] |= alb_headers(certificate())
    assert effect(make(ALB).decide(given).policy)[0] == "Allow"
    assert effect(make(APIGATEWAY).decide(given).policy)[0] == "Deny"


@pytest.mark.parametrize(
    "presented",
    [
        certificate(subject="CN=other"),
        certificate(issuer="CN=Other CA"),
        certificate(ends=NOW - timedelta(seconds=1)),
        certificate(begins=NOW + timedelta(seconds=1), ends=NOW + DAY),
    ],
)
@pytest.mark.parametrize("authorization", [None, "", "Bearer nonsense"])
def test_another_certificate_is_forbidden_whatever_the_token(presented: Any, authorization: str | None) -> None:
    verdict = make().decide(event(authorization, presented))
    assert effect(verdict.policy) == ("Deny", POST)
    assert verdict.policy["context"] == {"error_code": "CERTIFICATE_REFUSED"}
    assert verdict.policy["principalId"] == "refused"


def test_a_token_without_the_scope_is_forbidden() -> None:
    verdict = make().decide(event(MAKER.bearer(scope="other")))
    assert effect(verdict.policy) == ("Deny", POST)
    assert verdict.policy["context"] == {"error_code": "INSUFFICIENT_SCOPE"}


@pytest.mark.parametrize("authorization", ["", "Basic eDp5", "Bearer x", "Bearer a.b.c", MAKER.bearer(exp=0)])
def test_a_missing_or_invalid_token_is_unauthorized(authorization: str) -> None:
    with pytest.raises(Unauthorized, match=r"^Unauthorized$"):
        make().decide(event(authorization))


def test_a_repeated_authorization_header_is_unauthorized() -> None:
    given = event()
    given["multiValueHeaders"] = {"authorization": [MAKER.bearer(), MAKER.bearer()]}
    with pytest.raises(Unauthorized):
        make().decide(given)


def test_the_headers_name_is_case_insensitive() -> None:
    assert effect(make().decide(event(header="authorization")).policy)[0] == "Allow"


@pytest.mark.parametrize("path", ["GET/", "POST/v1/tasks/execute/synchronous", "GET/v1/tasks/a/b/c"])
def test_the_stage_arn_covers_all_methods_of_the_stage(path: str) -> None:
    assert stage_arn(f"{STAGE}/{path}") == f"{STAGE}/*"


OPERATOR = "CN=operator,O=Example"
OPERATORS = Identity(
    (CertificatePin(parse_name(OPERATOR), parse_name(ISSUER)),), "manage_tasks", permissions=ALL - {Permission.SUBMIT}
)


def operators() -> Authorizer:
    return make(APIGATEWAY, OPERATORS)


def test_an_operator_needs_a_certificate_and_a_scope_of_its_own() -> None:
    token = MAKER.bearer(client_id="ops", scope="manage_tasks")
    verdict = operators().decide(event(token, certificate(subject=OPERATOR)))
    assert effect(verdict.policy) == ("Allow", f"{STAGE}/*")
    assert verdict.policy["context"]["permissions"] == "approve manage read"
    assert verdict.policy["context"]["client_id"] == "ops"


@pytest.mark.parametrize(
    ("scope", "subject"), [("execute_tasks", OPERATOR), ("manage_tasks", SUBJECT)], ids=["operator", "polaris"]
)
def test_neither_identity_is_admitted_with_the_scope_of_the_other(scope: str, subject: str) -> None:
    verdict = operators().decide(event(MAKER.bearer(scope=scope), certificate(subject=subject)))
    assert verdict.policy["context"] == {"error_code": "INSUFFICIENT_SCOPE"}


def test_the_refusal_is_that_of_the_identity_which_the_certificate_names() -> None:
    expired = certificate(subject=OPERATOR, ends=NOW - timedelta(seconds=1))
    assert "expired" in str(operators().decide(event(presented=expired)).refusal)
    assert "another subject or issuer" in str(operators().decide(event(presented=certificate(subject="CN=x"))).refusal)


@pytest.mark.parametrize("method", sorted(OPEN_METHODS))
def test_an_open_method_alone_is_allowed_without_a_token(method: str) -> None:
    verdict = make().decide(event("", certificate(subject="CN=anyone of the CA"), arn=f"{STAGE}/{method}"))
    assert effect(verdict.policy) == ("Allow", f"{STAGE}/{method}")
    assert verdict.policy["context"] == {"permissions": ""}


@pytest.mark.parametrize("method", ["GET/v1/healthy", "POST/v1/health", "GET/v1/tasks", "GET/docs/x", "GET/v1/config"])
def test_no_other_method_is_open(method: str) -> None:
    with pytest.raises(Unauthorized):
        make().decide(event("", arn=f"{STAGE}/{method}"))


def test_a_wrong_token_is_refused_at_an_open_method_too() -> None:
    with pytest.raises(Unauthorized):
        make().decide(event("Bearer nonsense", arn=f"{STAGE}/GET/v1/health"))


def test_a_token_of_another_client_is_forbidden() -> None:
    polaris, others = make().identities[0], make()
    pinned = replace(others, identities=(replace(polaris, clients=frozenset({"polaris", "next"})),))
    for client in ("polaris", "next"):
        assert effect(pinned.decide(event(MAKER.bearer(client_id=client))).policy)[0] == "Allow"
    refused = pinned.decide(event(MAKER.bearer(client_id="spark-user")))
    assert refused.policy["context"] == {"error_code": "CLIENT_REFUSED"}


def test_a_bound_token_is_unauthorized_with_another_certificate() -> None:
    first, renewed = certificate(), certificate(serial=SERIAL + 1)
    bound = MAKER.bearer(cnf={"x5t#S256": thumbprint(first)})
    assert effect(make().decide(event(bound, first)).policy)[0] == "Allow"
    with pytest.raises(Unauthorized):
        make().decide(event(bound, renewed))
    strict = replace(make(), binding=TokenBinding.REQUIRED)
    assert effect(strict.decide(event(bound, first)).policy)[0] == "Allow"
    with pytest.raises(Unauthorized):
        strict.decide(event())


def built_from(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Authorizer:
    """Return the authorizer of the environment and these variables, at the tests' time."""
    for name, value in {**ENVIRONMENT, **{f"DELEGATION_{key}": value for key, value in variables.items()}}.items():
        monkeypatch.setenv(name, value)
    built = replace(wiring.authorizer(), clock=lambda: NOW)
    return replace(built, tokens=replace(built.tokens, clock=lambda: NOW))


NEXT = TokenMaker(rsa_key("next"))


@pytest.mark.parametrize(
    ("variables", "authorization", "presented"),
    [
        ({"CLIENT_NEXT_SUBJECT": "CN=polaris-2"}, MAKER.bearer(), certificate(subject="CN=polaris-2")),
        ({"CLIENT_NEXT_ISSUER": "CN=Next CA"}, MAKER.bearer(), certificate(issuer="CN=Next CA")),
        ({"CLIENT_SERIALS": f"{SERIAL:x}", "CLIENT_NEXT_SERIALS": "7"}, MAKER.bearer(), certificate(serial=7)),
        ({"TOKEN_NEXT_PUBLIC_KEY": public_pem(NEXT.key)}, NEXT.bearer(), certificate()),
        ({"TOKEN_NEXT_ISSUER": "https://next.test"}, MAKER.bearer(iss="https://next.test"), certificate()),
        (
            {"TOKEN_NEXT_ISSUER": "https://next.test", "TOKEN_NEXT_AUDIENCE": "next"},
            MAKER.bearer(iss="https://next.test", aud="next"),
            certificate(),
        ),
        (
            {"TOKEN_NEXT_ISSUER": "https://next.test", "TOKEN_NEXT_PUBLIC_KEY": public_pem(NEXT.key)},
            NEXT.bearer(iss="https://next.test"),
            certificate(),
        ),
        (
            {"TOKEN_CLIENT_ID": "polaris", "TOKEN_NEXT_CLIENT_ID": "polaris-2"},
            MAKER.bearer(client_id="polaris-2"),
            certificate(),
        ),
    ],
    ids=["subject", "issuer of certificates", "serials", "key", "issuer", "audience", "issuer with a key", "client"],
)
def test_each_pin_has_a_next_one_that_is_admitted_beside_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], authorization: str, presented: Any
) -> None:
    first = built_from(monkeypatch)
    with contextlib.suppress(Unauthorized):
        assert effect(first.decide(event(authorization, presented)).policy)[0] == "Deny" or variables.keys() & UNPINNED
    both = built_from(monkeypatch, **variables)
    assert effect(both.decide(event()).policy)[0] == "Allow"
    assert effect(both.decide(event(authorization, presented)).policy)[0] == "Allow"
    assert effect(both.decide(event(presented=certificate(subject="CN=x"))).policy)[0] == "Deny"


@pytest.mark.parametrize(
    ("maker", "own", "other"),
    [(MAKER, "https://issuer.test", "https://next.test"), (NEXT, "https://next.test", "https://issuer.test")],
    ids=["the first", "the next"],
)
def test_each_issuer_is_believed_with_its_own_key_alone(
    monkeypatch: pytest.MonkeyPatch, maker: TokenMaker, own: str, other: str
) -> None:
    """Otherwise the one issuer could sign in the other's name."""
    variables = {"TOKEN_NEXT_ISSUER": "https://next.test", "TOKEN_NEXT_PUBLIC_KEY": public_pem(NEXT.key)}
    built = built_from(monkeypatch, **variables)
    assert effect(built.decide(event(maker.bearer(iss=own))).policy)[0] == "Allow"
    with pytest.raises(Unauthorized):
        built.decide(event(maker.bearer(iss=other)))


def test_the_next_certificate_can_be_pinned_by_its_number_too(monkeypatch: pytest.MonkeyPatch) -> None:
    built = built_from(monkeypatch, CLIENT_NEXT_SUBJECT="CN=polaris-2", CLIENT_NEXT_SERIALS="7")
    assert effect(built.decide(event(presented=certificate(subject="CN=polaris-2", serial=7))).policy)[0] == "Allow"
    assert effect(built.decide(event(presented=certificate(subject="CN=polaris-2", serial=8))).policy)[0] == "Deny"


UNPINNED = {"CLIENT_NEXT_SERIALS", "TOKEN_NEXT_CLIENT_ID"}
"""Without a first pin of these any value is admitted."""


def test_operators_are_admitted_with_certificates_of_the_next_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    token = MAKER.bearer(client_id="ops", scope="manage_tasks")
    of_next = certificate(subject=OPERATOR, issuer="CN=Next CA")
    for variables in (
        {"CLIENT_NEXT_ISSUER": "CN=Next CA"},
        {"OPERATOR_ISSUER": ISSUER, "OPERATOR_NEXT_ISSUER": "CN=Next CA", "CLIENT_NEXT_ISSUER": "CN=a"},
    ):
        built = built_from(monkeypatch, OPERATOR_SUBJECTS=OPERATOR, OPERATOR_CLIENT_IDS="ops, night", **variables)
        for presented in (certificate(subject=OPERATOR), of_next):
            assert effect(built.decide(event(token, presented)).policy)[0] == "Allow"
        stranger = built.decide(event(MAKER.bearer(scope="manage_tasks"), of_next))
        assert stranger.policy["context"] == {"error_code": "CLIENT_REFUSED"}


def test_polaris_own_broker_can_issue_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokens: RS256, `iss` polaris, no key id, no audience, the scope that every principal gets."""
    built = built_from(
        monkeypatch,
        TOKEN_ISSUER="polaris",
        TOKEN_AUDIENCE="",
        TOKEN_SCOPE="PRINCIPAL_ROLE:ALL",
        TOKEN_CLIENT_ID="5c0ffee5c0ffee00",
    )
    claims = {"iss": "polaris", "aud": None, "sub": "delegation-caller", "active": True, "principalId": 12}
    maker = TokenMaker(rsa_key(), kid=None)
    token = {**claims, "scope": "PRINCIPAL_ROLE:ALL"}
    assert effect(built.decide(event(maker.bearer(**token, client_id="5c0ffee5c0ffee00"))).policy)[0] == "Allow"
    refused = built.decide(event(maker.bearer(**token, client_id="any-other-principal")))
    assert refused.policy["context"] == {"error_code": "CLIENT_REFUSED"}


@pytest.mark.parametrize(
    ("may", "permissions"),
    [("false", {"approve", "manage", "read"}), ("true", {"approve", "manage", "read", "submit"})],
)
def test_operators_come_from_the_settings(monkeypatch: pytest.MonkeyPatch, may: str, permissions: set[str]) -> None:
    for name, value in {
        **ENVIRONMENT,
        "DELEGATION_OPERATOR_SUBJECTS": f"{OPERATOR}; CN=night shift",
        "DELEGATION_OPERATORS_MAY_SUBMIT": may,
    }.items():
        monkeypatch.setenv(name, value)
    polaris, found = wiring.authorizer().identities
    assert polaris.permissions == {"read", "submit"}
    assert [pin.subject.rfc4514_string() for pin in found.pins] == [OPERATOR, "CN=night shift"]
    assert (found.scope, found.permissions) == ("manage_tasks", permissions)


@pytest.mark.parametrize(
    ("may", "permissions"), [("false", {"read", "submit"}), ("true", {"read", "submit", "manage"})]
)
def test_polaris_manages_only_where_a_setting_says_so(
    monkeypatch: pytest.MonkeyPatch, may: str, permissions: set[str]
) -> None:
    for name, value in {**ENVIRONMENT, "DELEGATION_POLARIS_MAY_MANAGE": may}.items():
        monkeypatch.setenv(name, value)
    (polaris,) = wiring.authorizer().identities
    assert polaris.permissions == permissions


ENVIRONMENT = {
    "DELEGATION_CLIENT_SUBJECT": SUBJECT,
    "DELEGATION_CLIENT_ISSUER": ISSUER,
    "DELEGATION_TOKEN_ISSUER": "https://issuer.test",
    "DELEGATION_TOKEN_PUBLIC_KEY": public_pem(rsa_key()),
    "DELEGATION_TOKEN_AUDIENCE": "delegation",
}


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Set the Lambda's environment and clock, and return its captured log."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("POWERTOOLS_LOGGER_LOG_EVENT", "true")
    monkeypatch.setattr(wiring, "now", lambda: NOW)
    log = io.StringIO()
    handlers = list(handler_module.logger.handlers)
    for one in handlers:
        if isinstance(one, logging.StreamHandler):
            monkeypatch.setattr(one, "stream", log)
    handler_module.authorizer.cache_clear()
    yield log
    handler_module.authorizer.cache_clear()


def test_the_lambda_returns_the_policy_and_logs_nothing(function: io.StringIO) -> None:
    policy = handler_module.handler(event(), Context())
    assert effect(policy)[0] == "Allow"
    assert function.getvalue() == ""


def test_the_lambda_builds_its_authorizer_once(function: io.StringIO) -> None:
    handler_module.handler(event(), Context())
    first = handler_module.authorizer()
    handler_module.handler(event(), Context())
    assert handler_module.authorizer() is first
    assert function.getvalue() == ""


def test_the_lambda_raises_unauthorized_and_logs_the_reason(function: io.StringIO) -> None:
    token = TokenMaker(rsa_key("other")).token()
    with pytest.raises(Exception, match=r"^Unauthorized$"):
        handler_module.handler(event(f"Bearer {token}"), Context())
    [line] = [json.loads(text) for text in function.getvalue().splitlines()]
    assert (line["action"], line["level"]) == ("authorize", "INFO")
    assert "signature was not made" in line["reason"]
    assert not any(part in function.getvalue() for part in token.split("."))


def test_the_lambda_logs_why_a_caller_is_forbidden(function: io.StringIO) -> None:
    token = MAKER.token(scope="other")
    policy = handler_module.handler(event(f"Bearer {token}"), Context())
    assert effect(policy)[0] == "Deny"
    [line] = [json.loads(text) for text in function.getvalue().splitlines()]
    assert (line["error_code"], line["action"]) == ("INSUFFICIENT_SCOPE", "authorize")
    assert not any(part in function.getvalue() for part in token.split("."))


def test_unavailable_keys_are_not_answered_as_unauthorized(
    function: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any other error than `Unauthorized` API Gateway answers 500, after which a client may retry."""

    class Silent:
        def keys(self, kid: str | None) -> Any:
            raise KeysUnavailable("the token issuer's keys cannot be fetched: ConnectError")

    monkeypatch.setattr(wiring, "_issuers", lambda _: (TrustedIssuer("https://issuer.test", Silent(), "delegation"),))
    with pytest.raises(KeysUnavailable):
        handler_module.handler(event(), Context())
    assert function.getvalue() == ""


def test_every_sample_event_of_the_authorizer_is_run_by_a_test_below() -> None:
    assert {path.stem for path in EVENTS.glob("authorizer*.json")} == {"authorizer", "authorizer-private"}


def test_the_sample_event_is_admitted_with_a_token(function: io.StringIO) -> None:
    """events/authorizer.json is for `sam local invoke`; its user adds a token."""
    given = sample("authorizer")
    with pytest.raises(Unauthorized):
        handler_module.handler(given, Context())
    assert '"reason":"not a token: DecodeError"' in function.getvalue()
    given["multiValueHeaders"]["Authorization"] = [MAKER.bearer()]
    assert effect(handler_module.handler(given, Context())) == ("Allow", f"{STAGE}/*")


def test_the_sample_event_of_the_private_profile_is_admitted_where_it_is_configured(
    function: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """events/authorizer-private.json is what a private API passes on from a load balancer that verifies."""
    given = sample("authorizer-private")
    given["multiValueHeaders"]["Authorization"] = [MAKER.bearer()]
    assert effect(handler_module.handler(given, Context()))[0] == "Deny"
    assert "no client certificate" in function.getvalue()
    monkeypatch.setenv("DELEGATION_CLIENT_CERTIFICATE_SOURCE", "alb")
    monkeypatch.setenv("DELEGATION_CLIENT_VPC_ENDPOINTS", ENDPOINT)
    handler_module.authorizer.cache_clear()
    assert effect(handler_module.handler(given, Context())) == ("Allow", f"{STAGE}/*")
