"""The certificates of one machine's mutual TLS, issued as `delegation certs` issues them.

Source: Delegation Service proposal, Transport-Level Authentication.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from cryptography import x509

from delegation.cli.deployment.authority import CA, Authority
from infra.local.processes.programs import LOOPBACK

ORGANIZATION = "Polaris Delegation Service local stack"
SERVER_NAMES = ("localhost", LOOPBACK)
_LIFETIME = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """PEM files of a certificate and its private key; only the owner can read the key file."""

    cert: Path
    key: Path

    @classmethod
    def of(cls, folder: Path, name: str) -> Self:
        """Return the files of a name."""
        return cls(folder / f"{name}.pem", folder / f"{name}.key")


class CertificateAuthority:
    """Issues certificates into its folder, which also has the authority's `ca.pem` and `ca.key`."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self.files = KeyPair.of(authority.folder, CA)

    @classmethod
    def create(cls, folder: Path, *, name: str = "Local CA", now: datetime | None = None) -> Self:
        """Create an authority; replace the files of a former one in the folder."""
        for former in (folder / f"{CA}.pem", folder / f"{CA}.key"):
            former.unlink(missing_ok=True)
        return cls(Authority.create(folder, name=name, **_issued(now)))

    @property
    def subject(self) -> str:
        """The authority's distinguished name (RFC 4514), the issuer of its certificates."""
        return self._authority.certificate.subject.rfc4514_string()

    def issue_server(self, *, name: str = "server", hosts: Sequence[str] = SERVER_NAMES) -> KeyPair:
        """Issue a server certificate for `hosts` (DNS names, IP addresses) as `{name}.pem` and `{name}.key`."""
        self._authority.issue_server(name, hosts, **_issued(None))
        return KeyPair.of(self._authority.folder, name)

    def issue_client(self, common_name: str, *, name: str = "client", now: datetime | None = None) -> KeyPair:
        """Issue a client certificate for the identity `common_name` as `{name}.pem` and `{name}.key`."""
        self._authority.issue_client(name, common_name=common_name, **_issued(now))
        return KeyPair.of(self._authority.folder, name)


def subject_of(certificate: Path) -> str:
    """Return the distinguished name (RFC 4514) in a PEM certificate."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).subject.rfc4514_string()


def _issued(now: datetime | None) -> dict[str, Any]:
    return {"organization": ORGANIZATION, "lifetime": _LIFETIME, "now": now or datetime.now(UTC)}
