"""The certificates, OAuth2 client and principals of one stack, created at every start."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from pydantic import SecretStr

from delegation.cli.deployment.authority import CA, Authority
from infra.local.catalog.principals.access import LocalPrincipal
from infra.local.catalog.principals.privileges import GATEWAY_SERVICE, OWNER, SERVICE
from infra.local.front.issuer import OPERATOR_SCOPE, SCOPE, OAuth2Client, TokenIssuer
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


CLIENT_ID = "polaris"
OPERATOR_ID = "operator"
TOKEN_AUDIENCE = "polaris-delegation-service"  # noqa: S105 - a name, not a token


@dataclass(frozen=True, slots=True)
class Identities:
    """Polaris as the service's caller (`certificate`, `oauth2`), an operator; in Polaris `root` and two principals."""

    authority: CertificateAuthority
    server: KeyPair
    certificate: KeyPair
    issuer: TokenIssuer
    oauth2: OAuth2Client
    operator_certificate: KeyPair
    operator: OAuth2Client
    root: SecretStr
    owner: LocalPrincipal
    service: LocalPrincipal

    @classmethod
    def create(cls, folder: Path, *, drops_tables: bool = False) -> Self:
        """Write certificates into `folder`; the issuer has its port but does not serve yet.

        With `drops_tables` the service may drop and restore tables, as the gateway needs.
        """
        authority = CertificateAuthority.create(folder)
        oauth2 = OAuth2Client(CLIENT_ID, _secret())
        operator = OAuth2Client(OPERATOR_ID, _secret(), frozenset({OPERATOR_SCOPE}))
        return cls(
            authority=authority,
            server=authority.issue_server(),
            certificate=authority.issue_client(CLIENT_ID),
            issuer=TokenIssuer([oauth2, operator], audience=TOKEN_AUDIENCE),
            oauth2=oauth2,
            operator_certificate=authority.issue_client(OPERATOR_ID, name="operator"),
            operator=operator,
            root=_secret(),
            owner=LocalPrincipal("owner", "owner", _secret(), OWNER),
            service=LocalPrincipal("delegation", "delegation", _secret(), GATEWAY_SERVICE if drops_tables else SERVICE),
        )

    def of_callers(self) -> dict[str, Any]:
        """Return the fields of stack.json with which Polaris and operators call the API."""
        return {
            "ca_cert": self.authority.files.cert,
            "client_cert": self.certificate.cert,
            "client_key": self.certificate.key,
            "token_url": self.issuer.token_url,
            "client_id": self.oauth2.client_id,
            "client_secret": self.oauth2.client_secret,
            "scope": self.scope,
            "operator_cert": self.operator_certificate.cert,
            "operator_key": self.operator_certificate.key,
            "operator_client_id": self.operator.client_id,
            "operator_client_secret": self.operator.client_secret,
            "operator_scope": OPERATOR_SCOPE,
        }

    @property
    def subject(self) -> str:
        """The distinguished name that the authorizer requires of a client certificate."""
        return subject_of(self.certificate.cert)

    @property
    def operator_subject(self) -> str:
        return subject_of(self.operator_certificate.cert)

    @property
    def scope(self) -> str:
        return SCOPE


def _secret() -> SecretStr:
    return SecretStr(secrets.token_urlsafe(32))
