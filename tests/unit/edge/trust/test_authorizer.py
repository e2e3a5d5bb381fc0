"""The authorizer's decision and policy, and the answers and log lines of its Lambda."""

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.edge.errors import KeysUnavailable, Unauthorized
from delegation.edge.trust.authorizer import Authorizer, Identity, stage_arn
from delegation.edge.trust.certificates import LEAF_HEADER, CertificatePin, CertificateSource, parse_name
from delegation.edge.trust.permissions import ALL, OPEN_METHODS, Permission
from delegation.edge.trust.tokens import StaticKeys, TokenVerifier, public_key
from delegation.handlers import authorizer as handler_module
from delegation.wiring import authorizer as wiring
from tests.unit.edge.gateway import Context, sample
from tests.unit.edge.trust.pki import (
    DAY,
    ISSUER,
    NOW,
    SERIAL,
    SUBJECT,
    TokenMaker,
    alb_leaf,
    certificate,
    pem,
    public_pem,
    rsa_key,
)

MAKER = TokenMaker(rsa_key())
STAGE = "arn:aws:execute-api:eu-central-1:123456789012:a1b2c3d4e5/live"
POST = f"{STAGE}/POST/v1/tasks"


def make(source: CertificateSource = CertificateSource.APIGATEWAY, *others: Identity) -> Authorizer:
    return Authorizer(
        identities=(Identity((CertificatePin(parse_name(SUBJECT), parse_name(ISSUER)),), "execute_tasks"), *others),
        source=source,
        tokens=TokenVerifier(
            StaticKeys((public_key(public_pem(rsa_key())),)),
            issuer="https://issuer.test",
            audience="delegation",
            clock=lambda: NOW,
        ),
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
        "permissions": "manage read submit",
        "certificate_subject": SUBJECT,
        "certificate_serial": f"{SERIAL:x}",
    }


def test_the_certificate_is_read_from_the_albs_header_only_behind_an_alb() -> None:
    given = event()
    given["requestContext"]["identity"] = {}
    given["headers"][LEAF_HEADER] = alb_leaf(certificate())
    assert effect(make(CertificateSource.ALB).decide(given).policy)[0] == "Allow"
    assert effect(make(CertificateSource.APIGATEWAY).decide(given).policy)[0] == "Deny"


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
    (CertificatePin(parse_name(OPERATOR), parse_name(ISSUER)),), "manage_tasks", ALL - {Permission.SUBMIT}
)


def operators() -> Authorizer:
    return make(CertificateSource.APIGATEWAY, OPERATORS)


def test_an_operator_needs_a_certificate_and_a_scope_of_its_own() -> None:
    token = MAKER.bearer(client_id="ops", scope="manage_tasks")
    verdict = operators().decide(event(token, certificate(subject=OPERATOR)))
    assert effect(verdict.policy) == ("Allow", f"{STAGE}/*")
    assert verdict.policy["context"]["permissions"] == "manage read"
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
    assert "not the pinned one" in str(operators().decide(event(presented=certificate(subject="CN=x"))).refusal)


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


def test_the_next_certificate_and_the_next_key_are_admitted_beside_the_present_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    following = rsa_key("next")
    for name, value in {
        **ENVIRONMENT,
        "DELEGATION_CLIENT_NEXT_ISSUER": "CN=Next CA",
        "DELEGATION_TOKEN_NEXT_PUBLIC_KEY": public_pem(following),
    }.items():
        monkeypatch.setenv(name, value)
    built = replace(wiring.authorizer(), clock=lambda: NOW)
    built = replace(built, tokens=replace(built.tokens, clock=lambda: NOW))
    for presented in (certificate(), certificate(issuer="CN=Next CA")):
        for token in (MAKER.bearer(), TokenMaker(following).bearer()):
            assert effect(built.decide(event(token, presented)).policy)[0] == "Allow"
    refused = built.decide(event(presented=certificate(issuer="CN=Other CA")))
    assert effect(refused.policy)[0] == "Deny"


@pytest.mark.parametrize(
    ("may", "permissions"), [("false", {"read", "manage"}), ("true", {"read", "manage", "submit"})]
)
def test_operators_come_from_the_settings(monkeypatch: pytest.MonkeyPatch, may: str, permissions: set[str]) -> None:
    for name, value in {
        **ENVIRONMENT,
        "DELEGATION_OPERATOR_SUBJECTS": f"{OPERATOR}; CN=night shift",
        "DELEGATION_OPERATORS_MAY_SUBMIT": may,
    }.items():
        monkeypatch.setenv(name, value)
    polaris, found = wiring.authorizer().identities
    assert polaris.permissions == ALL
    assert [pin.subject.rfc4514_string() for pin in found.pins] == [OPERATOR, "CN=night shift"]
    assert (found.scope, found.permissions) == ("manage_tasks", permissions)


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
    monkeypatch.setattr(wiring, "utc_now", lambda: NOW)
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
    assert (line["action"], line["reason"], line["level"]) == ("authorize", "the signature is wrong", "INFO")
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

    monkeypatch.setattr(wiring, "_keys", lambda _settings: Silent())
    with pytest.raises(KeysUnavailable):
        handler_module.handler(event(), Context())
    assert function.getvalue() == ""


def test_the_sample_event_is_admitted_with_a_token(function: io.StringIO) -> None:
    """events/authorizer.json is for `sam local invoke`; its user adds a token."""
    given = sample("authorizer")
    with pytest.raises(Unauthorized):
        handler_module.handler(given, Context())
    assert '"reason":"not a token: DecodeError"' in function.getvalue()
    given["multiValueHeaders"]["Authorization"] = [MAKER.bearer()]
    assert effect(handler_module.handler(given, Context())) == ("Allow", f"{STAGE}/*")
