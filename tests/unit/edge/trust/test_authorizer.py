"""The authorizer's decision and policy, and the answers and log lines of its Lambda."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from delegation.edge.errors import KeysUnavailable, Unauthorized
from delegation.edge.trust.authorizer import Authorizer, stage_arn
from delegation.edge.trust.certificates import LEAF_HEADER, CertificatePin, CertificateSource, parse_name
from delegation.edge.trust.tokens import StaticKey, TokenVerifier, public_key
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


def make(source: CertificateSource = CertificateSource.APIGATEWAY) -> Authorizer:
    return Authorizer(
        pin=CertificatePin(parse_name(SUBJECT), parse_name(ISSUER)),
        source=source,
        tokens=TokenVerifier(
            StaticKey(public_key(public_pem(rsa_key()))),
            issuer="https://issuer.test",
            audience="delegation",
            scope="execute_tasks",
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
