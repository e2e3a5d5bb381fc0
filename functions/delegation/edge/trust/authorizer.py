"""The decision of the Lambda REQUEST authorizer: the pinned client certificate, then a token with the required scope.

Policies must not be cached: API Gateway's cache key is the token alone, so a cached policy would admit the token with
any other certificate of the CA.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cryptography import x509

from delegation.edge import headers
from delegation.edge.errors import Forbidden
from delegation.edge.trust.certificates import CertificatePin, CertificateSource, presented_certificate
from delegation.edge.trust.tokens import Principal, TokenVerifier

_REFUSED_PRINCIPAL: Final = "refused"


@dataclass(frozen=True, slots=True)
class AuthorizerDecision:
    """The policy for API Gateway, and the reason of a refusal for the log (None: admitted)."""

    policy: dict[str, Any]
    refusal: Forbidden | None = None


@dataclass(frozen=True, slots=True)
class Authorizer:
    """Decides on authorizer events; `clock` returns aware UTC datetimes."""

    pin: CertificatePin
    source: CertificateSource
    tokens: TokenVerifier
    clock: Callable[[], datetime]

    def decide(self, event: Mapping[str, Any]) -> AuthorizerDecision:
        """Return Allow or Deny (403); raises Unauthorized, answered with 401, and KeysUnavailable, with 500."""
        try:
            certificate = presented_certificate(event, self.source)
            self.pin.check(certificate, self.clock())
            principal = self.tokens.verify(headers.single(event, "Authorization"))
        except Forbidden as refusal:
            return AuthorizerDecision(
                _policy("Deny", event["methodArn"], _REFUSED_PRINCIPAL, {"error_code": refusal.code}), refusal
            )
        context = _context(principal, certificate)
        return AuthorizerDecision(_policy("Allow", stage_arn(event["methodArn"]), principal.client_id, context))


def stage_arn(method_arn: str) -> str:
    """Return the ARN of all methods of a method's stage (`arn:…:api-id/stage/VERB/path` → `arn:…:api-id/stage/*`)."""
    api, stage, _ = method_arn.split("/", 2)
    return f"{api}/{stage}/*"


def _context(principal: Principal, certificate: x509.Certificate) -> dict[str, str]:
    # Only strings and no secrets: API Gateway passes this to the API's Lambda and may log it.
    return {
        "client_id": principal.client_id,
        "subject": principal.subject,
        "scope": " ".join(sorted(principal.scopes)),
        "certificate_subject": certificate.subject.rfc4514_string(),
        "certificate_serial": f"{certificate.serial_number:x}",
    }


def _policy(effect: str, resource: str, principal_id: str, context: Mapping[str, str]) -> dict[str, Any]:
    statement = {"Action": "execute-api:Invoke", "Effect": effect, "Resource": resource}
    return {
        "principalId": principal_id,
        "policyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        "context": dict(context),
    }
