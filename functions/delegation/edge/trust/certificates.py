"""Who is on the other end of the TLS connection: one pinned certificate identity (delegation-service.txt §8.2).

The TLS front (API Gateway or an ALB) has verified the chain against the private CA; here the certificate has to be the
one Polaris instance's, in date and not revoked. Everything is read from the certificate itself, never from the front's
rendering of it: names are compared as parsed names, so escaping and string types play no part.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import unquote

from cryptography import x509
from cryptography.x509.oid import NameOID

from delegation.edge import headers
from delegation.edge.errors import CertificateRefused

LEAF_HEADER: Final = "X-Amzn-Mtls-Clientcert-Leaf"
_SERIAL: Final = re.compile(r"[0-9a-f]{1,40}", re.ASCII)
# Attribute types that certificates use and RFC 4514's table of short names lacks.
_NAMES: Final[Mapping[str, x509.ObjectIdentifier]] = {
    "E": NameOID.EMAIL_ADDRESS,
    "emailAddress": NameOID.EMAIL_ADDRESS,
    "serialNumber": NameOID.SERIAL_NUMBER,
}


class CertificateSource(StrEnum):
    """Which front terminates TLS. A setting, never deduced from a request: a caller could send the other's headers."""

    APIGATEWAY = "apigateway"
    ALB = "alb"


def parse_name(text: str) -> x509.Name:
    """A distinguished name in RFC 4514's form (`CN=polaris,O=Example`); ValueError unless it has an attribute."""
    try:
        name = x509.Name.from_rfc4514_string(text, dict(_NAMES))
    except ValueError:
        raise ValueError("must be a distinguished name in the form of RFC 4514, such as CN=polaris,O=Example") from None
    if not len(name):
        raise ValueError("a distinguished name must not be empty")
    return name


def parse_serials(text: str) -> frozenset[int]:
    """Serial numbers in hexadecimal, colons optional, separated by commas; ValueError for anything else."""
    parts = [part.strip().lower().replace(":", "") for part in text.split(",")] if text.strip() else []
    if not all(_SERIAL.fullmatch(part) for part in parts):
        raise ValueError("serial numbers are hexadecimal, separated by commas, such as 0a:1b,2c3d")
    return frozenset(int(part, 16) for part in parts)


def presented_certificate(event: Mapping[str, Any], source: CertificateSource) -> x509.Certificate:
    """The client certificate of a REQUEST authorizer event, as `source` hands it on; CertificateRefused without one.

    API Gateway: `requestContext.identity.clientCert.clientCertPem`. ALB in verify mode: a URL-encoded PEM in
    X-Amzn-Mtls-Clientcert-Leaf, trustworthy only behind the network rule of DESIGN §6.
    """
    pem = _from_alb(event) if source is CertificateSource.ALB else _from_api_gateway(event)
    if not pem:
        raise CertificateRefused("no client certificate came with the request")
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        raise CertificateRefused("the client certificate cannot be read") from None


@dataclass(frozen=True, slots=True)
class CertificatePin:
    """The one identity that is admitted; `serials` narrows it to certificates by number, None admits renewals.

    `revoked` is a certificate revocation list of the pinned issuer (RFC 5280 §5), None when the front checks one.
    """

    subject: x509.Name
    issuer: x509.Name
    serials: Collection[int] | None = None
    revoked: x509.CertificateRevocationList | None = None

    def check(self, certificate: x509.Certificate, now: datetime) -> None:
        """CertificateRefused unless the certificate is the pinned identity's, in date at `now` and not revoked."""
        try:
            subject, issuer = certificate.subject, certificate.issuer
        except ValueError:
            raise CertificateRefused("the client certificate's names cannot be read") from None
        if subject != self.subject or issuer != self.issuer:
            raise CertificateRefused("the client certificate is not the one that is pinned")
        if self.serials is not None and certificate.serial_number not in self.serials:
            raise CertificateRefused("the client certificate's serial number is not among those pinned")
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise CertificateRefused("the client certificate is out of date")
        if self.revoked is not None:
            self._check_revocation(certificate, self.revoked, now)

    def _check_revocation(
        self, certificate: x509.Certificate, revoked: x509.CertificateRevocationList, now: datetime
    ) -> None:
        # A list of another issuer, or one that should have been replaced, proves nothing: closed, not open.
        if revoked.issuer != self.issuer:
            raise CertificateRefused("the revocation list is not the pinned issuer's")
        if revoked.next_update_utc is not None and revoked.next_update_utc < now:
            raise CertificateRefused("the revocation list is out of date")
        if revoked.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
            raise CertificateRefused("the client certificate is revoked")


def load_revocation_list(data: bytes) -> x509.CertificateRevocationList:
    """A certificate revocation list in PEM or DER; ValueError for anything else."""
    if data.lstrip().startswith(b"-----BEGIN"):
        return x509.load_pem_x509_crl(data)
    return x509.load_der_x509_crl(data)


def _from_api_gateway(event: Mapping[str, Any]) -> str | None:
    identity = (event.get("requestContext") or {}).get("identity") or {}
    pem: str | None = (identity.get("clientCert") or {}).get("clientCertPem")
    return pem


def _from_alb(event: Mapping[str, Any]) -> str | None:
    encoded = headers.single(event, LEAF_HEADER)
    # "+" is a character of base64 here, not a space: `+=/` are left bare (ELB guide, "HTTP headers and mutual TLS").
    return None if encoded is None else unquote(encoded)
