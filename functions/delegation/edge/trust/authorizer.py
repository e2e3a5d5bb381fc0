"""The Lambda REQUEST authorizer's decision: one certificate identity, then a token with the right scope (DESIGN §6).

The policy covers the whole stage, so it would be right even if it were cached; it is not, for a cache keyed by the
token alone would admit the token with any certificate of the CA.
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

_NOBODY: Final = "refused"


@dataclass(frozen=True, slots=True)
class AuthorizerDecision:
    """What was decided: the policy for API Gateway, and for the log why a request was refused (None: it was not)."""

    policy: dict[str, Any]
    refusal: Forbidden | None = None


@dataclass(frozen=True, slots=True)
class Authorizer:
    """Decides on authorizer events; `clock` answers aware UTC datetimes."""

    pin: CertificatePin
    source: CertificateSource
    tokens: TokenVerifier
    clock: Callable[[], datetime]

    def decide(self, event: Mapping[str, Any]) -> AuthorizerDecision:
        """Allow or Deny (403); raises Unauthorized, which API Gateway turns into 401, and KeysUnavailable (500)."""
        try:
            certificate = presented_certificate(event, self.source)
            self.pin.check(certificate, self.clock())
            principal = self.tokens.verify(headers.single(event, "Authorization"))
        except Forbidden as refusal:
            return AuthorizerDecision(
                _policy("Deny", event["methodArn"], _NOBODY, {"error_code": refusal.code}), refusal
            )
        context = _context(principal, certificate)
        return AuthorizerDecision(_policy("Allow", stage_arn(event["methodArn"]), principal.client_id, context))


def stage_arn(method_arn: str) -> str:
    """Everything of the stage that a method belongs to (`arn:…:api-id/stage/VERB/path` → `arn:…:api-id/stage/*`)."""
    api, stage, _ = method_arn.split("/", 2)
    return f"{api}/{stage}/*"


def _context(principal: Principal, certificate: x509.Certificate) -> dict[str, str]:
    # Strings only, and nothing secret: API Gateway hands this to the function and may log it.
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
