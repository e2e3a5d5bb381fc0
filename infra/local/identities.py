"""The certificates, OAuth2 client and principals of one stack, created at every start, and its token issuer.

RFC 6749, Sections 4.4 and 5; RFC 7517.
"""

import hmac
import json
import secrets
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from pydantic import SecretStr
from werkzeug.wrappers import Request, Response

from delegation.cli.deployment.authority import CA, Authority
from infra.local.catalog.access import LocalPrincipal
from infra.local.catalog.privileges import GATEWAY_SERVICE, OWNER, SERVICE
from infra.local.processes.programs import LOOPBACK, WsgiServer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


SCOPE = "execute_tasks"
OPERATOR_SCOPE = "manage_tasks"


@dataclass(frozen=True, slots=True)
class OAuth2Client:
    """A caller of the delegation service and the scopes that it may request."""

    client_id: str
    client_secret: SecretStr
    scopes: frozenset[str] = frozenset({SCOPE})


class TokenIssuer(WsgiServer):
    """Issues access tokens that `clients` can use for `lifetime_seconds`, signed with a key pair made at construction.

    If `audience` is given, the tokens contain it; those of Polaris contain none.
    """

    def __init__(
        self,
        clients: Iterable[OAuth2Client],
        *,
        port: int = 0,
        lifetime_seconds: int = 3600,
        audience: str | None = None,
    ) -> None:
        super().__init__(self, port=port)
        self._clients = {client.client_id: client for client in clients}
        self._lifetime = lifetime_seconds
        self._audience = audience
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._key_id = uuid.uuid4().hex

    @property
    def issuer(self) -> str:
        """The `iss` of the tokens: the base URL of this server."""
        return self.url

    @property
    def token_url(self) -> str:
        return f"{self.issuer}/oauth/tokens"

    @property
    def jwks_url(self) -> str:
        return f"{self.issuer}/.well-known/jwks.json"

    def issue(self, client_id: str, scope: str, *, now: int | None = None, **claims: Any) -> str:
        """Return a signed token; tests pass `now` and `claims` to get expired or otherwise invalid ones."""
        issued = int(time.time()) if now is None else now
        payload: dict[str, Any] = {
            "iss": self.issuer,
            "sub": client_id,
            "client_id": client_id,
            "scope": scope,
            "iat": issued,
            "exp": issued + self._lifetime,
            "jti": str(uuid.uuid4()),
        }
        if self._audience is not None:
            payload["aud"] = self._audience
        return jwt.encode(payload | claims, self._key, algorithm="RS256", headers={"kid": self._key_id})

    def jwks(self) -> dict[str, Any]:
        key: dict[str, Any] = json.loads(RSAAlgorithm.to_jwk(self._key.public_key()))
        # PyJWT adds key_ops, which RFC 7517, Section 4.3 advises against together with `use`.
        public = {name: key[name] for name in ("kty", "n", "e")}
        return {"keys": [{**public, "use": "sig", "alg": "RS256", "kid": self._key_id}]}

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        request = Request(environ)
        match (request.method, request.path):
            case ("POST", "/oauth/tokens"):
                response = self._token(request)
            case ("GET", "/.well-known/jwks.json"):
                response = _json(200, self.jwks())
            case _:
                response = _json(404, {"error": "not_found"})
        return response(environ, start_response)

    def _token(self, request: Request) -> Response:
        form, basic = request.form, request.authorization
        if form.get("grant_type") != "client_credentials":
            return _json(400, {"error": "unsupported_grant_type"})
        client_id = (basic.username if basic else form.get("client_id")) or ""
        secret = (basic.password if basic else form.get("client_secret")) or ""
        client = self._clients.get(client_id)
        expected = client.client_secret.get_secret_value() if client else ""
        if client is None or not hmac.compare_digest(expected.encode(), secret.encode()):
            return _json(401, {"error": "invalid_client"})
        scopes = set((form.get("scope") or SCOPE).split())
        if not scopes <= client.scopes:
            return _json(400, {"error": "invalid_scope"})
        scope = " ".join(sorted(scopes))
        body = {"token_type": "Bearer", "expires_in": self._lifetime, "scope": scope}
        return _json(200, {"access_token": self.issue(client_id, scope), **body})


def _json(status: int, body: Mapping[str, Any]) -> Response:
    # RFC 6749, Section 5.1: caches must not store a token.
    return Response(json.dumps(body), status, {"Cache-Control": "no-store"}, content_type="application/json")


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
            "scope": SCOPE,
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


def _secret() -> SecretStr:
    return SecretStr(secrets.token_urlsafe(32))
