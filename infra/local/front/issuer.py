"""The stack's OAuth2 token issuer: issues RS256 tokens for client credentials and publishes its key as a JWKS.

RFC 6749, Sections 4.4 and 5; RFC 7517; RFC 8414; OpenID Connect Discovery.
"""

import hmac
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from pydantic import SecretStr
from werkzeug.wrappers import Request, Response

from infra.local.processes.loopback import WsgiServer

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
            case ("GET", "/.well-known/openid-configuration"):
                response = _json(200, self._discovery())
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

    def _discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "token_endpoint": self.token_url,
            "jwks_uri": self.jwks_url,
            "grant_types_supported": ["client_credentials"],
            "scopes_supported": sorted({scope for client in self._clients.values() for scope in client.scopes}),
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }


def _json(status: int, body: Mapping[str, Any]) -> Response:
    # RFC 6749, Section 5.1: caches must not store a token.
    return Response(json.dumps(body), status, {"Cache-Control": "no-store"}, content_type="application/json")
