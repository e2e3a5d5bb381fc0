"""The decision of the Lambda REQUEST authorizer: a pinned client certificate, then a token with the required scope.
Policies must not be cached: API Gateway's cache key is the token alone, so a cached policy would admit it with any
other certificate of the CA."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cryptography import x509

from delegation.edge import headers
from delegation.edge.errors import Forbidden
from delegation.edge.trust.certificates import CertificatePin, CertificateReader, thumbprint
from delegation.edge.trust.permissions import OF_POLARIS, OPEN_METHODS, Permission
from delegation.edge.trust.tokens import (
    Principal,
    TokenBinding,
    TokenVerifier,
    require_binding,
    require_client,
    require_scope,
)

_REFUSED_PRINCIPAL: Final = "refused"
_ANONYMOUS: Final = "anonymous"


@dataclass(frozen=True, slots=True)
class Identity:
    """An admitted identity: a certificate that one of `pins` accepts, and a token of one of `clients` with `scope`. Two
    pins admit the former and next certificate during a renewal. Without `clients` any client is admitted."""

    pins: tuple[CertificatePin, ...]
    scope: str
    clients: frozenset[str] = frozenset()
    permissions: frozenset[Permission] = OF_POLARIS


@dataclass(frozen=True, slots=True)
class AuthorizerDecision:
    """The policy for API Gateway, and a refusal's reason for the log (None: admitted). `expires` is when the admitted
    certificate ends; None for a refusal, and for a method that needs no certificate."""

    policy: dict[str, Any]
    refusal: Forbidden | None = None
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class Authorizer:
    """Decides on authorizer events; `clock` returns aware UTC datetimes. The first of `identities` is Polaris;
    operators may follow (Delegation Service proposal, Authentication and Authorization). A certificate belongs to the
    first identity that accepts it."""

    identities: tuple[Identity, ...]
    certificates: CertificateReader
    tokens: TokenVerifier
    clock: Callable[[], datetime]
    binding: TokenBinding = TokenBinding.OPTIONAL

    def decide(self, event: Mapping[str, Any]) -> AuthorizerDecision:
        """Return Allow or Deny (403); raises Unauthorized, answered with 401. KeysUnavailable and
        RevocationListUnavailable (500) mean that nothing was decided."""
        method_arn = event["methodArn"]
        if method_of(method_arn) in OPEN_METHODS and not headers.values(event, "Authorization"):
            return AuthorizerDecision(_policy("Allow", method_arn, _ANONYMOUS, {"permissions": ""}))
        try:
            certificate = self.certificates.presented(event)
            identity = self._identity_of(certificate)
            principal = self.tokens.verify(headers.single(event, "Authorization"))
            require_binding(principal, thumbprint(certificate), self.binding)
            require_client(principal, identity.clients)
            require_scope(principal, identity.scope)
        except Forbidden as refusal:
            denied = _policy("Deny", method_arn, _REFUSED_PRINCIPAL, {"error_code": refusal.code})
            return AuthorizerDecision(denied, refusal)
        context = _context(principal, certificate, identity)
        admitted = _policy("Allow", stage_arn(method_arn), principal.client_id, context)
        return AuthorizerDecision(admitted, expires=certificate.not_valid_after_utc)

    def _identity_of(self, certificate: x509.Certificate) -> Identity:
        """Return the identity that accepts a certificate; raises the refusal of the pin that names its subject."""
        now, refusals = self.clock(), []
        for identity in self.identities:
            for pin in identity.pins:
                try:
                    pin.check(certificate, now)
                except Forbidden as refusal:
                    refusals.append((pin.names(certificate), refusal))
                else:
                    return identity
        raise next((refusal for named, refusal in refusals if named), refusals[0][1])


def stage_arn(method_arn: str) -> str:
    """Return the ARN of all methods of a method's stage (`arn:…:api-id/stage/VERB/path` → `arn:…:api-id/stage/*`)."""
    api, stage, _ = method_arn.split("/", 2)
    return f"{api}/{stage}/*"


def method_of(method_arn: str) -> str:
    """Return the verb and the path of a method's ARN (`arn:…:api-id/stage/GET/v1/health` → `GET/v1/health`)."""
    return method_arn.split("/", 2)[2]


def _context(principal: Principal, certificate: x509.Certificate, identity: Identity) -> dict[str, str]:
    # Only strings and no secrets: API Gateway passes this to the API's Lambda and may log it.
    return {
        "client_id": principal.client_id,
        "subject": principal.subject,
        "scope": " ".join(sorted(principal.scopes)),
        "permissions": " ".join(sorted(identity.permissions)),
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
