"""Bearer tokens for Polaris: OAuth2 client credentials (RFC 6749, Section 4.4), cached until they nearly expire."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Protocol

from pydantic import SecretStr

from delegation.polaris.answers import (
    PolarisError,
    PolarisMisconfigured,
    PolarisUnauthorized,
    PolarisUnexpectedAnswer,
    error_of,
    json_object,
)
from delegation.polaris.transport import Transport
from polaris_common.errors import ErrorScope

DEFAULT_SCOPE = "PRINCIPAL_ROLE:ALL"
_ROLE = "PRINCIPAL_ROLE:"

# `expires_in` is optional (RFC 6749, Section 5.1); without it a token is replaced well before the usual hour.
_DEFAULT_LIFETIME = timedelta(minutes=5)
_LONGEST_LIFETIME_SECONDS = 86_400
_LONGEST_MARGIN = timedelta(minutes=1)
_REFUSALS: dict[str, type[PolarisError]] = {
    "unauthorized_client": PolarisUnauthorized,
    "invalid_client": PolarisUnauthorized,
    "access_denied": PolarisUnauthorized,
    "invalid_scope": PolarisMisconfigured,
}


class TokenSource(Protocol):
    """Provides bearer tokens of a scope; thread-safe."""

    @property
    def scope(self) -> str:
        """The scope that tokens are requested for, `PRINCIPAL_ROLE:` and a role, or several."""
        ...

    def token(self) -> str: ...

    def replace(self, refused: str) -> str:
        """Return another token than `refused`, which was answered with 401."""
        ...


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """An OAuth2 client: for the service, its principal in Polaris."""

    client_id: str
    client_secret: SecretStr


@dataclass(frozen=True, slots=True)
class _CachedToken:
    token: str = field(repr=False)
    use_until: datetime


class OAuth2TokenSource:
    """Fetches tokens from `token_url`, one request at a time for all threads. `credentials` is called for every new
    token, so a rotated secret needs no restart; `pending` after a refusal, for the credentials of a rotation that has
    not ended. Raises PolarisUnauthorized, PolarisMisconfigured (scope, realm), PolarisUnavailable,
    PolarisUnexpectedAnswer."""

    def __init__(
        self,
        token_url: str,
        credentials: Callable[[], ClientCredentials],
        *,
        clock: Callable[[], datetime],
        scope: str = DEFAULT_SCOPE,
        realm: str | None = None,
        transport: Transport | None = None,
        pending: Callable[[], ClientCredentials | None] = lambda: None,
    ) -> None:
        self._url = token_url
        self._credentials = credentials
        self._pending = pending
        self._clock = clock
        self._scope = scope
        self._realm = realm
        self._transport = transport or Transport()
        self._lock = Lock()
        self._cached: _CachedToken | None = None

    @property
    def scope(self) -> str:
        return self._scope

    def token(self) -> str:
        usable = self._usable()
        if usable is not None:
            return usable
        with self._lock:
            return self._usable() or self._fetch()

    def replace(self, refused: str) -> str:
        with self._lock:
            usable = self._usable()
            # Another thread has already replaced the refused token.
            if usable is not None and usable != refused:
                return usable
            return self._fetch()

    def _usable(self) -> str | None:
        cached = self._cached
        return cached.token if cached is not None and self._clock() < cached.use_until else None

    def _fetch(self) -> str:
        try:
            return self._fetch_with_any()
        except PolarisError as error:
            error.scope = ErrorScope.CATALOG  # without a token nothing is answered, whatever it is about
            raise

    def _fetch_with_any(self) -> str:
        try:
            return self._fetch_with(self._credentials())
        except PolarisUnauthorized:
            pending = self._pending()
            if pending is None:
                raise
            return self._fetch_with(pending)

    def _fetch_with(self, credentials: ClientCredentials) -> str:
        requested_at = self._clock()
        secret = credentials.client_secret.get_secret_value()
        response = self._transport.send(
            "POST",
            self._url,
            idempotent=True,  # a second token does no harm
            headers=accepting_json(self._realm),
            form={
                "grant_type": "client_credentials",
                "client_id": credentials.client_id,
                "client_secret": secret,
                "scope": self._scope,
            },
        )
        if response.status_code != 200:
            raise _refusal(error_of(response, secrets=[secret]))
        self._cached = _token_of(json_object(response), requested_at)
        return self._cached.token


def subject_of(token: str) -> str:
    """Return a token's principal, from `sub`; raises PolarisUnexpectedAnswer. The signature is not verified: the issuer
    just sent the token."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, RecursionError, ValueError):
        claims = None  # the parser's error would quote the token
    match claims:
        case {"sub": str(name)} if name:
            return name
        case _:
            raise PolarisUnexpectedAnswer(
                "Polaris' token does not name its principal: it is not a JWT with `sub`", status=200
            )


def why_refused(scope: str) -> str:
    """Return why Polaris may refuse a fresh token: it issues one for any role and checks at its use which are held."""
    roles = [each.removeprefix(_ROLE) for each in scope.split() if each.startswith(_ROLE) and each != DEFAULT_SCOPE]
    if not roles:
        return "the principal was deleted, or the token endpoint belongs to another Polaris or another key"
    return (
        f"the principal probably does not hold {' or '.join(roles)} of the scope; "
        f"assign the principal role to it, or use the scope {DEFAULT_SCOPE}"
    )


def accepting_json(realm: str | None) -> dict[str, str]:
    """Return the headers of every request to Polaris."""
    return {"Accept": "application/json"} | ({} if realm is None else {"Polaris-Realm": realm})


def _token_of(body: dict[str, object], requested_at: datetime) -> _CachedToken:
    """Return a token to be used for nine tenths of its lifetime, or until a minute before its end if that is later."""
    token, lifetime = body.get("access_token"), body.get("expires_in")
    if not isinstance(token, str) or not token:
        raise PolarisUnexpectedAnswer("Polaris' token endpoint answered without an access_token", status=200)
    life = _DEFAULT_LIFETIME
    if isinstance(lifetime, int) and lifetime > 0:
        life = timedelta(seconds=min(lifetime, _LONGEST_LIFETIME_SECONDS))
    return _CachedToken(token, requested_at + life - min(_LONGEST_MARGIN, life / 10))


def _refusal(error: PolarisError) -> PolarisError:
    """Return the error for an OAuth2 error code (RFC 6749, Section 5.2), which a status alone does not identify."""
    kind = _REFUSALS.get(error.error_type or "")
    return kind(str(error), status=error.status, error_type=error.error_type) if kind else error
