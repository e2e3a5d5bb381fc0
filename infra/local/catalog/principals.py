"""Principals with catalog-wide privileges, and their OAuth2 tokens, as issued by Polaris' internal token broker."""

import hmac
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from pydantic import SecretStr

from infra.local.catalog.errors import forbidden

SCOPE_PREFIX = "PRINCIPAL_ROLE:"


class Privilege(Enum):
    """The privileges of Polaris that this catalog distinguishes."""

    NAMESPACE_LIST = "NAMESPACE_LIST"
    NAMESPACE_CREATE = "NAMESPACE_CREATE"
    NAMESPACE_DROP = "NAMESPACE_DROP"
    NAMESPACE_WRITE_PROPERTIES = "NAMESPACE_WRITE_PROPERTIES"
    TABLE_LIST = "TABLE_LIST"
    TABLE_CREATE = "TABLE_CREATE"
    TABLE_DROP = "TABLE_DROP"
    TABLE_READ_PROPERTIES = "TABLE_READ_PROPERTIES"
    TABLE_READ_DATA = "TABLE_READ_DATA"
    TABLE_WRITE_DATA = "TABLE_WRITE_DATA"


OWNER = frozenset(Privilege)
SERVICE = frozenset(
    {
        Privilege.NAMESPACE_LIST,
        Privilege.TABLE_LIST,
        Privilege.TABLE_READ_PROPERTIES,
        Privilege.TABLE_WRITE_DATA,
        Privilege.TABLE_DROP,
    }
)
READER = frozenset(
    {Privilege.NAMESPACE_LIST, Privilege.TABLE_LIST, Privilege.TABLE_READ_PROPERTIES, Privilege.TABLE_READ_DATA}
)


@dataclass(frozen=True, slots=True)
class LocalPrincipal:
    """A client of the catalog."""

    name: str
    client_id: str
    client_secret: SecretStr
    privileges: frozenset[Privilege]


@dataclass(frozen=True, slots=True)
class _Token:
    client_id: str
    expires_at: datetime


class Principals:
    """The principals, their grants and valid tokens; thread-safe. A revoked grant applies from the next request on."""

    def __init__(
        self, principals: Iterable[LocalPrincipal], *, clock: Callable[[], datetime], token_lifetime: timedelta
    ) -> None:
        self._by_id = {principal.client_id: principal for principal in principals}
        self._granted = {principal.name: set(principal.privileges) for principal in self._by_id.values()}
        self._tokens: dict[str, _Token] = {}
        self._clock = clock
        self._lifetime = token_lifetime
        self._lock = threading.Lock()

    def token(self, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Return (status, body) for a request to the token endpoint (RFC 6749, Sections 4.4 and 5.2)."""
        if form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        principal = self._by_id.get(form.get("client_id", ""))
        expected = principal.client_secret.get_secret_value() if principal else ""
        given = form.get("client_secret", "")
        if principal is None or not hmac.compare_digest(expected.encode(), given.encode()):
            return 401, {"error": "unauthorized_client", "error_description": "The client is not authorized"}
        if not form.get("scope", "").startswith(SCOPE_PREFIX):
            return 400, {"error": "invalid_scope", "error_description": "The scope is invalid"}
        token = secrets.token_urlsafe(32)
        now = self._clock()
        with self._lock:
            self._tokens = {value: held for value, held in self._tokens.items() if held.expires_at > now}
            self._tokens[token] = _Token(principal.client_id, now + self._lifetime)
        lifetime = int(self._lifetime.total_seconds())
        return 200, {"access_token": token, "token_type": "bearer", "expires_in": lifetime, "scope": form["scope"]}

    def of_token(self, token: str) -> LocalPrincipal | None:
        """Return the principal that `token` was issued to, None if it is unknown or expired."""
        with self._lock:
            held = self._tokens.get(token)
        return self._by_id[held.client_id] if held is not None and self._clock() < held.expires_at else None

    def revoke_tokens(self) -> None:
        """Invalidate every token, as a restart of Polaris with a new key pair does."""
        with self._lock:
            self._tokens.clear()

    def grant(self, name: str, privilege: Privilege) -> None:
        with self._lock:
            self._granted[name].add(privilege)

    def revoke(self, name: str, privilege: Privilege) -> None:
        with self._lock:
            self._granted[name].discard(privilege)

    def has(self, principal: LocalPrincipal, *privileges: Privilege) -> bool:
        """Return whether `principal` has any of `privileges`."""
        with self._lock:
            return not self._granted[principal.name].isdisjoint(privileges)

    def require(self, principal: LocalPrincipal, operation: str, *privileges: Privilege) -> None:
        """Raise RestError 403 unless `principal` has any of `privileges`; `operation` is Polaris' operation name."""
        if not self.has(principal, *privileges):
            raise forbidden(principal.name, operation)
