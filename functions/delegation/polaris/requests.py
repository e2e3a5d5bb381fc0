"""Requests to a catalog as one principal: paths, tokens, pages and errors, which the clients of its APIs share."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import httpx

from delegation.identifiers import NAMESPACE_SEPARATOR, TableIdentifier, encoded, encoded_query, joined_levels
from delegation.polaris.answers import (
    TOKEN_REFUSED,
    PolarisError,
    PolarisUnauthorized,
    PolarisUnexpectedAnswer,
    error_of,
    json_object,
)
from delegation.polaris.tokens import TokenSource, accepting_json, why_refused
from delegation.polaris.transport import Transport

T = TypeVar("T")
PAGE_SIZE = 1_000
_OF_TABLES: Final = frozenset({"credentials", "metrics", "plan", "sign", "tasks", "unregister"})
"""Below a table in the Iceberg REST specification of 2026-08-21."""


@dataclass(frozen=True, slots=True)
class PolarisPaths:
    """A catalog's configuration from `/v1/config`: the prefix of its paths, encoded, the separator of namespace levels.
    `unknown` are advertised endpoints of single tables that this release does not know. Paths of namespaces raise
    PolarisUnexpectedAnswer for levels that no request can name."""

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
            raise PolarisUnexpectedAnswer(f"no request can name the namespace {namespace!r}: {error}") from None

    def tables_path(self, namespace: tuple[str, ...]) -> str:
        return f"{self.namespace_path(namespace)}/tables"

    def table_path(self, identifier: TableIdentifier) -> str:
        return f"{self.tables_path(identifier.namespace)}/{encoded(identifier.name)}"


def each_named(entries: Iterable[Any], named: Callable[[Any], T]) -> Iterator[T]:
    """Yield what each entry of a listing names; raise the first error of one after all others."""
    failed = list[PolarisUnexpectedAnswer]()
    for entry in entries:
        try:
            one = named(entry)
        except PolarisUnexpectedAnswer as error:
            failed.append(error)
            continue
        yield one
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
        """Obtain a token of the principal unless one is still valid; raises the errors of the token endpoint."""
        self._token.token()

    def catalog(self, name: str) -> PolarisPaths:
        """Return a catalog's paths, which are requested once; raises NoSuchCatalog."""
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
        """Return any answer but those that refuse the token; `within` is Transport's."""
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
            raise PolarisUnauthorized(f"Polaris refused a fresh token of the principal: {reason}", status=401)
        return response


def error_in(response: httpx.Response) -> PolarisError:
    sent = response.request.headers.get("Authorization", "").removeprefix("Bearer ")
    return error_of(response, write=response.request.method != "GET", secrets=[sent])


def mapping_in(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a JSON object in an answer, an empty one if it is absent; raises PolarisUnexpectedAnswer."""
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
    named = {str(one) for one in advertised} if isinstance(advertised, list) else set()
    below = {one: one.partition("/tables/{table}/")[2].partition("/")[0] for one in named}
    return tuple(sorted(one for one, word in below.items() if word and word not in _OF_TABLES))
