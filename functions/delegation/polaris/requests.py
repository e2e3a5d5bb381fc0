"""Requests to a catalog as one principal: paths, tokens, pages and errors, shared by the clients of its APIs."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote

import httpx
from pydantic import SecretStr

from delegation.identifiers import NAMESPACE_SEPARATOR, TableIdentifier, encoded, encoded_query, joined_levels
from delegation.polaris.answers import (
    TOKEN_REFUSED,
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
        """The scope that tokens are requested for: `PRINCIPAL_ROLE:` and a role, or several."""
        ...

    def token(self) -> str: ...

    def replace(self, refused: str) -> str:
        """Return another token than `refused`, which got a 401."""
        ...


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """An OAuth2 client; for the service, its principal in Polaris."""

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
            error.scope = ErrorScope.CATALOG  # without a token every request fails, whatever it is about
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
    """Return a token's principal, from `sub`. The signature is not verified: the issuer just sent the token. Raises
    PolarisUnexpectedAnswer."""
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
    """Return why Polaris may refuse a fresh token: it issues one for any role and checks only its use."""
    roles = [each.removeprefix(_ROLE) for each in scope.split() if each.startswith(_ROLE) and each != DEFAULT_SCOPE]
    if not roles:
        return "the principal was deleted, or the token endpoint belongs to another Polaris, or signs with another key"
    return (
        f"the principal probably lacks {' or '.join(roles)}, which the scope names. "
        f"Assign the role to the principal, or use the scope {DEFAULT_SCOPE}"
    )


def accepting_json(realm: str | None) -> dict[str, str]:
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


T = TypeVar("T")
PAGE_SIZE = 1_000
_OF_TABLES: Final = frozenset({"credentials", "metrics", "plan", "sign", "tasks", "unregister"})
"""Paths below a table in the Iceberg REST specification of 2026-08-21."""


@dataclass(frozen=True, slots=True)
class PolarisPaths:
    """A catalog's configuration from `/v1/config`: the prefix of its paths, encoded, and the separator of namespace
    levels. `unknown` are advertised endpoints of single tables that this release does not know. Paths of namespaces
    raise PolarisUnexpectedAnswer for levels that no request can name."""

    prefix: str
    separator: str
    unknown: tuple[str, ...] = ()

    @property
    def prefixed(self) -> str:
        return f"v1/{self.prefix}/" if self.prefix else "v1/"

    @property
    def namespaces_path(self) -> str:
        return f"{self.prefixed}namespaces"

    def namespace_path(self, namespace: tuple[str, ...]) -> str:
        return f"{self.namespaces_path}/{encoded(self.joined(namespace))}"

    def joined(self, namespace: tuple[str, ...]) -> str:
        try:
            return joined_levels(namespace, self.separator)
        except ValueError as error:
            raise PolarisUnexpectedAnswer(
                f"the namespace {namespace!r} cannot be named in a request: {error}"
            ) from None

    def tables_path(self, namespace: tuple[str, ...]) -> str:
        return f"{self.namespace_path(namespace)}/tables"

    def table_path(self, identifier: TableIdentifier) -> str:
        return f"{self.tables_path(identifier.namespace)}/{encoded(identifier.name)}"


def each_named(entries: Iterable[Any], named: Callable[[Any], T]) -> Iterator[T]:
    """Yield the name of each entry of a listing; raise the first error only after all valid names."""
    failed = list[PolarisUnexpectedAnswer]()
    for entry in entries:
        try:
            item = named(entry)
        except PolarisUnexpectedAnswer as error:
            failed.append(error)
            continue
        yield item
    if failed:
        raise failed[0]


class CatalogRequests:
    """Sends requests below a catalog's `uri` as the token's principal; thread-safe. GETs are retried after transient
    failures, and any request once with a fresh token after a 401. Methods raise PolarisUnavailable,
    PolarisUnauthorized, PolarisForbidden, PolarisMisconfigured and PolarisUnexpectedAnswer."""

    def __init__(self, base_url: str, token: TokenSource, *, realm: str | None, transport: Transport) -> None:
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._headers = accepting_json(realm)
        self._transport = transport
        self._catalogs: dict[str, PolarisPaths] = {}
        self._lock = Lock()

    def sign_in(self) -> None:
        """Obtain a token of the principal unless one is still valid. Raises the errors of the token endpoint."""
        self._token.token()

    def catalog(self, name: str) -> PolarisPaths:
        """Return a catalog's paths, which are requested once. Raises NoSuchCatalog."""
        with self._lock:
            known = self._catalogs.get(name)
        if known is None:
            known = _catalog_of(name, self.get("v1/config", {"warehouse": name}))
            with self._lock:
                self._catalogs[name] = known
        return known

    def pages(
        self,
        path: str,
        params: dict[str, str],
        field: str,
        before: Callable[[], None] = lambda: None,
        size: int = PAGE_SIZE,
    ) -> Iterator[Any]:
        """Yield the entries of a listing; the empty token requests pages, which a server need not support."""
        token = ""
        while True:
            before()
            body = self.get(path, {**params, "pageToken": token, "pageSize": str(size)})
            entries, following = body.get(field), body.get("next-page-token")
            if not isinstance(entries, list) or following == token or not isinstance(following, str | None):
                raise PolarisUnexpectedAnswer(f"Polaris returned an unusable page of {field}", status=200)
            yield from entries
            if not following:
                return
            token = following

    def get(
        self,
        path: str,
        params: dict[str, str],
        headers: Mapping[str, str] | None = None,
        *,
        within: float | None = None,
    ) -> dict[str, Any]:
        """Return the JSON object of a 200; any other answer is raised."""
        response = self.send("GET", path, params, headers or {}, within=within)
        if response.status_code != 200:
            raise error_in(response)
        return json_object(response)

    def send(
        self,
        method: str,
        path: str,
        params: dict[str, str],
        headers: Mapping[str, str],
        document: Mapping[str, Any] | None = None,
        *,
        within: float | None = None,
    ) -> httpx.Response:
        """Return any answer except a refusal of the token; `within` is Transport's."""
        query = encoded_query(params.items())

        def once(token: str) -> httpx.Response:
            return self._transport.send(
                method,
                f"{self._base_url}/{path}{query and '?'}{query}",
                idempotent=method == "GET",
                headers={**self._headers, **headers, "Authorization": f"Bearer {token}"},
                document=document,
                within=within,
            )

        token = self._token.token()
        response = once(token)
        if response.status_code in TOKEN_REFUSED:
            # The request had no effect, so even a DELETE may be repeated.
            token = self._token.replace(token)
            response = once(token)
        if response.status_code in TOKEN_REFUSED:
            reason = why_refused(self._token.scope)
            raise PolarisUnauthorized(f"Polaris refused the principal's new token: {reason}", status=401)
        return response


def error_in(response: httpx.Response) -> PolarisError:
    sent = response.request.headers.get("Authorization", "").removeprefix("Bearer ")
    return error_of(response, write=response.request.method != "GET", secrets=[sent])


def mapping_in(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a JSON object in an answer, an empty one if it is absent. Raises PolarisUnexpectedAnswer."""
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise PolarisUnexpectedAnswer(f"Polaris answered with a `{name}` that is not a JSON object", status=200)
    return value


def _catalog_of(name: str, body: Mapping[str, Any]) -> PolarisPaths:
    """Read a CatalogConfig (Iceberg REST specification): overrides win, the separator is percent-encoded. Polaris'
    prefix is the catalog's name; other servers' may have several segments."""
    merged = {**mapping_in(body, "defaults"), **mapping_in(body, "overrides")}
    separator = merged.get("namespace-separator")
    prefix = str(merged.get("prefix") or "")
    segments = [name] if prefix == name else prefix.strip("/").split("/")
    return PolarisPaths(
        prefix="/".join(map(encoded, segments)),
        separator=unquote(separator) if isinstance(separator, str) and separator else NAMESPACE_SEPARATOR,
        unknown=_unknown_of(body.get("endpoints")),
    )


def _unknown_of(advertised: object) -> tuple[str, ...]:
    named = {str(endpoint) for endpoint in advertised} if isinstance(advertised, list) else set()
    below = {endpoint: endpoint.partition("/tables/{table}/")[2].partition("/")[0] for endpoint in named}
    return tuple(sorted(endpoint for endpoint, word in below.items() if word and word not in _OF_TABLES))
