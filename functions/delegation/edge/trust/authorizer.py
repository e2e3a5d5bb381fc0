"""The decision of the Lambda REQUEST authorizer: a pinned client certificate (Delegation Service proposal,
Transport-Level Authentication (Mutual TLS)), then a token with the required scope. API Gateway or an ALB has verified
the chain against the private CA; here the certificate must be the Polaris instance's, valid and not revoked. Names are
compared as parsed, whatever their escaping. Policies must not be cached: API Gateway's cache key is the token alone, so
a cached policy would admit it with any other certificate of the CA."""

import base64
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import unquote

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from delegation.edge import headers
from delegation.edge.errors import CertificateRefused, Forbidden
from delegation.edge.trust.permissions import OF_POLARIS, OPEN_METHODS, Permission
from delegation.edge.trust.revocation import RevocationCheck
from delegation.edge.trust.tokens import (
    Principal,
    TokenBinding,
    TokenVerifier,
    require_binding,
    require_client,
    require_scope,
)

LEAF_HEADER: Final = "X-Amzn-Mtls-Clientcert-Leaf"
SERIAL_HEADER: Final = "X-Amzn-Mtls-Clientcert-Serial-Number"
CHAIN_HEADER: Final = "X-Amzn-Mtls-Clientcert"
"""Sent by an ALB that passes certificates on without verifying them."""
_SERIAL: Final = re.compile(r"[0-9a-f]{1,40}", re.ASCII)
# Attribute types in use for which RFC 4514 has no short name.
_NAMES: Final[Mapping[str, x509.ObjectIdentifier]] = {
    "E": NameOID.EMAIL_ADDRESS,
    "emailAddress": NameOID.EMAIL_ADDRESS,
    "serialNumber": NameOID.SERIAL_NUMBER,
}


class CertificateSource(StrEnum):
    """Where TLS ends; a setting, because headers of a request can be forged."""

    APIGATEWAY = "apigateway"
    ALB = "alb"


def parse_name(text: str) -> x509.Name:
    """Parse a distinguished name (RFC 4514, such as `CN=polaris,O=Example`). Raises ValueError."""
    try:
        name = x509.Name.from_rfc4514_string(text, dict(_NAMES))
    except ValueError:
        raise ValueError("must be a distinguished name in the form of RFC 4514, such as CN=polaris,O=Example") from None
    if not len(name):
        raise ValueError("a distinguished name must not be empty")
    return name


def parse_serials(text: str) -> frozenset[int]:
    """Parse hexadecimal serial numbers separated by commas, with optional colons. Raises ValueError."""
    parts = [part.strip().lower().replace(":", "") for part in text.split(",")] if text.strip() else []
    if not all(_SERIAL.fullmatch(part) for part in parts):
        raise ValueError("serial numbers are hexadecimal, separated by commas, such as 0a:1b,2c3d")
    return frozenset(int(part, 16) for part in parts)


@dataclass(frozen=True, slots=True)
class CertificateReader:
    """Where TLS ends; `endpoints` are the VPC endpoints through which only an ALB reaches the API."""

    source: CertificateSource = CertificateSource.APIGATEWAY
    endpoints: frozenset[str] = frozenset()

    def presented(self, event: Mapping[str, Any]) -> x509.Certificate:
        """Return the client certificate of a REQUEST authorizer event. Raises CertificateRefused without one."""
        behind_alb = self.source is CertificateSource.ALB
        pem = _from_alb(event, self.endpoints) if behind_alb else _from_api_gateway(event)
        if not pem:
            raise CertificateRefused("the request has no client certificate")
        try:
            certificate = x509.load_pem_x509_certificate(pem.encode())
        except ValueError:
            raise CertificateRefused("the client certificate cannot be read") from None
        if behind_alb:
            _check_serial_header(event, certificate)
        return certificate


@dataclass(frozen=True, slots=True)
class CertificatePin:
    """The one admitted identity. `serials` are the only certificate numbers; None also admits renewed ones.
    `revocation` is None if no list is configured; API Gateway checks none, an ALB those of its trust store."""

    subject: x509.Name
    issuer: x509.Name
    serials: Collection[int] | None = None
    revocation: RevocationCheck | None = None

    def names(self, certificate: x509.Certificate) -> bool:
        """Return whether subject and issuer are the pinned ones. Raises CertificateRefused if they cannot be read."""
        try:
            return (certificate.subject, certificate.issuer) == (self.subject, self.issuer)
        except ValueError:
            raise CertificateRefused("the client certificate's subject or issuer cannot be decoded") from None

    def check(self, certificate: x509.Certificate, now: datetime) -> None:
        """Raise CertificateRefused unless the certificate is the pinned one, valid at `now` and not revoked. Raises
        RevocationListUnavailable if that is unknown now."""
        if not self.names(certificate):
            raise CertificateRefused(
                "the client certificate has another subject or issuer than the admitted ones "
                "(delegation:client-subject, delegation:operator-subjects)"
            )
        if self.serials is not None and certificate.serial_number not in self.serials:
            raise CertificateRefused(
                "the client certificate's serial number is not admitted (delegation:client-serials)"
            )
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise CertificateRefused("the client certificate is expired or not yet valid")
        if self.revocation is not None:
            self.revocation.check(certificate, now)


def load_authorities(text: str) -> tuple[x509.Certificate, ...]:
    """Parse the certificates of certificate authorities, one or several in PEM. Raises ValueError."""
    try:
        return tuple(x509.load_pem_x509_certificates(text.encode()))
    except ValueError:
        raise ValueError("must be the PEM certificates of the authorities that issue client certificates") from None


def thumbprint(certificate: x509.Certificate) -> str:
    """Return a certificate's SHA-256 thumbprint in the form of a bound token, `x5t#S256` (RFC 8705, Section 3.1)."""
    return base64.urlsafe_b64encode(certificate.fingerprint(hashes.SHA256())).rstrip(b"=").decode()


def _from_api_gateway(event: Mapping[str, Any]) -> str | None:
    pem: str | None = (_identity(event).get("clientCert") or {}).get("clientCertPem")
    return pem


def _from_alb(event: Mapping[str, Any], endpoints: Collection[str]) -> str | None:
    """Return the certificate that an ALB verified, from its headers (Application Load Balancers guide, "Mutual TLS").
    Headers are not signed, so they are read only from the VPC endpoint that nothing but the ALB reaches. API Gateway
    itself writes the endpoint's id (API Gateway guide, "Variables for data models", `identity.vpceId`)."""
    if _identity(event).get("vpceId") not in endpoints:
        raise CertificateRefused("the request did not come through a VPC endpoint of DELEGATION_CLIENT_VPC_ENDPOINTS")
    if headers.values(event, CHAIN_HEADER):
        raise CertificateRefused(
            "the load balancer does not verify client certificates. Set its listener to verify them"
        )
    encoded = headers.single(event, LEAF_HEADER)
    # Not unquote_plus: `+` is not encoded here (Application Load Balancers guide, "HTTP headers and mutual TLS").
    return None if encoded is None else unquote(encoded)


def _check_serial_header(event: Mapping[str, Any], certificate: x509.Certificate) -> None:
    """Refuse headers of different origins: an ALB that verifies sends serial number and certificate together."""
    stated = (headers.single(event, SERIAL_HEADER) or "").lower().replace(":", "")
    if not _SERIAL.fullmatch(stated) or int(stated, 16) != certificate.serial_number:
        raise CertificateRefused(
            "the serial number in the load balancer's headers is missing, or is not that of the client certificate"
        )


def _identity(event: Mapping[str, Any]) -> Mapping[str, Any]:
    identity: Mapping[str, Any] = (event.get("requestContext") or {}).get("identity") or {}
    return identity


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
        """Return Allow or Deny (403). Raises Unauthorized, answered with 401. KeysUnavailable and
        RevocationListUnavailable (500) mean that nothing was decided."""
        method_arn = event["methodArn"]
        # `arn:…:api-id/stage/GET/v1/health` is `GET/v1/health`
        if method_arn.split("/", 2)[2] in OPEN_METHODS and not headers.values(event, "Authorization"):
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
        """Return the identity that accepts a certificate. Raises the refusal of the pin that names its subject."""
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
