"""The pinned client certificate (Delegation Service proposal, Transport-Level Authentication (Mutual TLS)).

API Gateway or an ALB has verified the chain against the private CA; here the certificate must be the one of the Polaris
instance, valid and not revoked. Names are compared as parsed from the certificate, whatever their escaping.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from delegation.edge import headers
from delegation.edge.errors import CertificateRefused

LEAF_HEADER: Final = "X-Amzn-Mtls-Clientcert-Leaf"
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
    """Parse a distinguished name (RFC 4514, such as `CN=polaris,O=Example`); raises ValueError."""
    try:
        name = x509.Name.from_rfc4514_string(text, dict(_NAMES))
    except ValueError:
        raise ValueError("must be a distinguished name in the form of RFC 4514, such as CN=polaris,O=Example") from None
    if not len(name):
        raise ValueError("a distinguished name must not be empty")
    return name


def parse_serials(text: str) -> frozenset[int]:
    """Parse hexadecimal serial numbers separated by commas, with optional colons; raises ValueError."""
    parts = [part.strip().lower().replace(":", "") for part in text.split(",")] if text.strip() else []
    if not all(_SERIAL.fullmatch(part) for part in parts):
        raise ValueError("serial numbers are hexadecimal, separated by commas, such as 0a:1b,2c3d")
    return frozenset(int(part, 16) for part in parts)


def presented_certificate(event: Mapping[str, Any], source: CertificateSource) -> x509.Certificate:
    """Return the client certificate of a REQUEST authorizer event; raises CertificateRefused without one.

    An ALB's header can be trusted only if nothing but the ALB can reach the API (docs/architecture.md, Trust).
    """
    pem = _from_alb(event) if source is CertificateSource.ALB else _from_api_gateway(event)
    if not pem:
        raise CertificateRefused("the request has no client certificate")
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        raise CertificateRefused("the client certificate cannot be read") from None


@dataclass(frozen=True, slots=True)
class CertificatePin:
    """The one admitted identity; with `serials` only the certificates of these numbers, with None also renewed ones.

    `revoked` is the pinned issuer's revocation list (RFC 5280, Section 5), None if API Gateway or the ALB checks one.
    `authority` is that issuer's certificate, whose key must have signed the list.
    """

    subject: x509.Name
    issuer: x509.Name
    serials: Collection[int] | None = None
    revoked: x509.CertificateRevocationList | None = None
    authority: x509.Certificate | None = None

    def names(self, certificate: x509.Certificate) -> bool:
        """Return whether subject and issuer are the pinned ones; raises CertificateRefused if they cannot be read."""
        try:
            return (certificate.subject, certificate.issuer) == (self.subject, self.issuer)
        except ValueError:
            raise CertificateRefused("the client certificate's names cannot be read") from None

    def check(self, certificate: x509.Certificate, now: datetime) -> None:
        """Raise CertificateRefused unless the certificate is the pinned one, valid at `now` and not revoked."""
        if not self.names(certificate):
            raise CertificateRefused("the client certificate is not the pinned one")
        if self.serials is not None and certificate.serial_number not in self.serials:
            raise CertificateRefused("the client certificate's serial number is not a pinned one")
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise CertificateRefused("the client certificate is expired or not yet valid")
        if self.revoked is not None:
            self._check_revocation(certificate, self.revoked, now)

    def _check_revocation(
        self, certificate: x509.Certificate, revoked: x509.CertificateRevocationList, now: datetime
    ) -> None:
        # A list that is outdated, of another issuer or not signed proves nothing, so the certificate is refused.
        if revoked.issuer != self.issuer:
            raise CertificateRefused("the revocation list is not the pinned issuer's")
        if not is_signed_by(revoked, self.authority, self.issuer):
            raise CertificateRefused("the revocation list is not signed by the pinned issuer (delegation:client-ca)")
        if revoked.last_update_utc > now:
            raise CertificateRefused("the revocation list is not yet valid")
        if revoked.next_update_utc is not None and revoked.next_update_utc < now:
            raise CertificateRefused("the revocation list is out of date")
        if revoked.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
            raise CertificateRefused("the client certificate is revoked")


def is_signed_by(
    revoked: x509.CertificateRevocationList, authority: x509.Certificate | None, issuer: x509.Name
) -> bool:
    """Whether the key of the issuer's certificate, which may sign lists, signed the list (RFC 5280, Section 6.3.3)."""
    if authority is None or authority.subject != issuer:
        return False
    try:
        usage = authority.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        usage = None
    try:
        # Of a certificate without the extension any use is permitted (RFC 5280, Section 4.2.1.3).
        return (usage is None or usage.crl_sign) and revoked.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return False


def load_authority(text: str) -> x509.Certificate:
    """Parse the certificate of a certificate authority in PEM; raises ValueError."""
    try:
        return x509.load_pem_x509_certificate(text.encode())
    except ValueError:
        raise ValueError("must be the PEM certificate of the authority that issues client certificates") from None


def load_revocation_list(data: bytes) -> x509.CertificateRevocationList:
    """Parse a certificate revocation list in PEM or DER; raises ValueError."""
    if data.lstrip().startswith(b"-----BEGIN"):
        return x509.load_pem_x509_crl(data)
    return x509.load_der_x509_crl(data)


def _from_api_gateway(event: Mapping[str, Any]) -> str | None:
    identity = (event.get("requestContext") or {}).get("identity") or {}
    pem: str | None = (identity.get("clientCert") or {}).get("clientCertPem")
    return pem


def _from_alb(event: Mapping[str, Any]) -> str | None:
    encoded = headers.single(event, LEAF_HEADER)
    # Not unquote_plus: `+` is not encoded here (Application Load Balancers guide, "HTTP headers and mutual TLS").
    return None if encoded is None else unquote(encoded)
