"""AccessControl tokens as Polaris' internal token broker issues them: RS256 JWTs for client credentials.

Source: Apache Polaris 1.7.0, JWTBroker, TokenRequestValidator and DefaultAuthenticator.
"""

import hmac
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from infra.local.catalog.principals.access import AccessControl, CatalogCaller

ISSUER = "polaris"
ROLE_PREFIX = "PRINCIPAL_ROLE:"
ALL_ROLES = "PRINCIPAL_ROLE:ALL"
_GRANT_TYPES = frozenset({"client_credentials", "urn:ietf:params:oauth:grant-type:token-exchange"})


class TokenBroker:
    """Issues and verifies tokens with a key pair made at construction, like a Polaris without configured keys."""

    def __init__(self, access: AccessControl, *, clock: Callable[[], datetime], lifetime: timedelta) -> None:
        self._access = access
        self._clock = clock
        self._lifetime = lifetime
        self.replace_key()

    def public_key_pem(self) -> str:
        """Return the public key, with which an authorizer verifies the tokens: Polaris publishes no JWKS."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()

    def replace_key(self) -> None:
        """Invalidate every token, as a restart of Polaris with a new key pair does."""
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._claims = lru_cache(maxsize=1_000)(self._verified)

    def token(self, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Return (status, body) for a request to the token endpoint (RFC 6749, Sections 4.4 and 5.2)."""
        if form.get("grant_type") not in _GRANT_TYPES:
            return _refused("unsupported_grant_type", "The grant type is invalid")
        client_id, given, scope = form.get("client_id", ""), form.get("client_secret", ""), form.get("scope", "")
        if not client_id or not given:
            return _refused("invalid_client", "The client is invalid")
        scopes = scope.split(" ")
        if not all(each.startswith(ROLE_PREFIX) and each != ROLE_PREFIX for each in scopes):
            return _refused("invalid_scope", "The scope is invalid")
        principal = self._access.by_client_id(client_id)
        valid = principal.secrets if principal else ("",)
        if principal is None or not any(hmac.compare_digest(each.encode(), given.encode()) for each in valid):
            return 401, {"error": "unauthorized_client", "error_description": "The client is not authorized"}
        now = int(self._clock().timestamp())
        claims = {
            "iss": ISSUER,
            "sub": principal.name,
            "iat": now,
            "exp": now + int(self._lifetime.total_seconds()),
            "jti": str(uuid.uuid4()),
            "active": True,
            "client_id": client_id,
            "principalId": principal.id,
            "scope": scope,
        }
        return 200, {
            "access_token": jwt.encode(claims, self._key, algorithm="RS256"),
            "token_type": "bearer",
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "expires_in": int(self._lifetime.total_seconds()),
        }

    def caller(self, token: str) -> CatalogCaller | None:
        """Return whom `token` was issued to, None if it is invalid or its scope has a role that is not held.

        Polaris issues a token for any role and refuses it only when it is used.
        """
        try:
            claims = self._claims(token)
        except jwt.InvalidTokenError:
            return None
        if claims["exp"] <= self._clock().timestamp() or claims.get("active") is not True:
            return None
        if all(each.name != claims["sub"] for each in self._access.principals.entries()):
            return None
        held, scopes = self._access.held.of(claims["sub"]), str(claims["scope"]).split(" ")
        asked = held if ALL_ROLES in scopes else {each.removeprefix(ROLE_PREFIX) for each in scopes}
        return CatalogCaller(claims["sub"], frozenset(asked)) if asked <= held else None

    def _verified(self, token: str) -> dict[str, Any]:
        # The clock of the tests decides on the expiry, not the machine's.
        claims: dict[str, Any] = jwt.decode(
            token,
            self._key.public_key(),
            algorithms=["RS256"],
            issuer=ISSUER,
            options={"verify_exp": False, "verify_iat": False, "require": ["exp", "sub", "scope"]},
        )
        return claims


def _refused(error: str, description: str) -> tuple[int, dict[str, Any]]:
    return 400, {"error": error, "error_description": description}
