"""Bearer tokens for Polaris: OAuth2 client credentials (RFC 6749 §4.4), cached until shortly before they expire."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Protocol

from pydantic import SecretStr

from delegation.polaris.answers import error_of, json_object
from delegation.polaris.errors import PolarisError, PolarisMisconfigured, PolarisUnauthorized, PolarisUnexpectedAnswer
from delegation.polaris.transport import Transport

DEFAULT_SCOPE = "PRINCIPAL_ROLE:ALL"

# RFC 6749 §5.1 only recommends `expires_in`; without it a token is asked for again well before any broker's usual hour.
_UNSTATED_LIFETIME = timedelta(minutes=5)
_LONGEST_LIFETIME_SECONDS = 86_400
_LONGEST_MARGIN = timedelta(minutes=1)
_REFUSALS: dict[str, type[PolarisError]] = {
    "unauthorized_client": PolarisUnauthorized,
    "invalid_client": PolarisUnauthorized,
    "access_denied": PolarisUnauthorized,
    "invalid_scope": PolarisMisconfigured,
}


class TokenSource(Protocol):
    """Where a request finds its bearer token; safe to share between threads."""

    def token(self) -> str:
        """A token that is not about to expire."""
        ...

    def replace(self, refused: str) -> str:
        """A token newer than `refused`, which Polaris answered with 401."""
        ...


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The service's own principal in Polaris."""

    client_id: str
    client_secret: SecretStr


@dataclass(frozen=True, slots=True)
class _HeldToken:
    token: str = field(repr=False)
    use_until: datetime


class OAuth2TokenSource:
    """Fetches tokens from `token_url`; many threads that need one at once cause a single request.

    `credentials` is asked anew for every token, so that a rotated secret is picked up without a restart.
    Raises PolarisUnauthorized, PolarisMisconfigured (scope, realm), PolarisUnavailable, PolarisUnexpectedAnswer.
    """

    def __init__(
        self,
        token_url: str,
        credentials: Callable[[], ClientCredentials],
        *,
        clock: Callable[[], datetime],
        scope: str = DEFAULT_SCOPE,
        realm: str | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._url = token_url
        self._credentials = credentials
        self._clock = clock
        self._scope = scope
        self._realm = realm
        self._transport = transport or Transport()
        self._lock = Lock()
        self._held: _HeldToken | None = None

    def token(self) -> str:
        usable = self._usable()
        if usable is not None:
            return usable
        with self._lock:
            return self._usable() or self._fetch()

    def replace(self, refused: str) -> str:
        with self._lock:
            usable = self._usable()
            # Somebody else was refused the same token and has replaced it already.
            if usable is not None and usable != refused:
                return usable
            return self._fetch()

    def _usable(self) -> str | None:
        held = self._held
        return held.token if held is not None and self._clock() < held.use_until else None

    def _fetch(self) -> str:
        asked = self._clock()
        credentials = self._credentials()
        secret = credentials.client_secret.get_secret_value()
        response = self._transport.send(
            "POST",
            self._url,
            idempotent=True,  # a second token harms nobody
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
        self._held = _held(json_object(response), asked)
        return self._held.token


def accepting_json(realm: str | None) -> dict[str, str]:
    """The headers that every request to Polaris carries."""
    return {"Accept": "application/json"} | ({} if realm is None else {"Polaris-Realm": realm})


def _held(body: dict[str, object], asked: datetime) -> _HeldToken:
    """A token is used for nine tenths of its life, or until a minute before its end, whichever is later."""
    token, lifetime = body.get("access_token"), body.get("expires_in")
    if not isinstance(token, str) or not token:
        raise PolarisUnexpectedAnswer("Polaris' token endpoint answered without an access_token", status=200)
    life = _UNSTATED_LIFETIME
    if isinstance(lifetime, int) and lifetime > 0:
        life = timedelta(seconds=min(lifetime, _LONGEST_LIFETIME_SECONDS))
    return _HeldToken(token, asked + life - min(_LONGEST_MARGIN, life / 10))


def _refusal(error: PolarisError) -> PolarisError:
    """The same refusal in OAuth2's words: RFC 6749 §5.2 puts a bad client under 400 or 401, a bad scope under 400."""
    kind = _REFUSALS.get(error.error_type or "")
    return kind(str(error), status=error.status, error_type=error.error_type) if kind else error
