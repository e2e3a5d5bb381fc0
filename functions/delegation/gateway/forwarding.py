"""Forwards requests to the catalog; finds who sends them, which catalogs exist, and which keep keys."""

import base64
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import uuid4

from delegation.edge.errors import Unauthorized
from delegation.edge.trust.tokens import Principal, TokenVerifier
from delegation.gateway.messages import (
    CatalogAnswer,
    CatalogOutcomeUnknown,
    CatalogRequest,
    GatewayError,
    Headers,
    Upstream,
    error_answer,
    json_answer,
    request_loops,
)
from delegation.gateway.routing import KEY_HEADER, Target, check_target
from delegation.identifiers import encoded_query

FORWARDED_BY: Final = "X-Delegation-Gateway"
"""The header that the gateway adds to what it forwards. A request that arrives with it is in a loop."""
_HOP_BY_HOP: Final = frozenset({
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
})  # fmt: skip
"""RFC 9110, Section 7.6.1."""
_OF_ONE_CONNECTION: Final = _HOP_BY_HOP | {"host", "content-length", "expect"}
"""Headers that the next connection sets. `X-Forwarded-*` stay as the load balancer wrote them."""


class Forwarder:
    """Sends requests to the catalog, each for at most `timeout` seconds."""

    def __init__(self, upstream: Upstream, *, timeout: float) -> None:
        self._upstream = upstream
        self.timeout = timeout

    def forward(self, request: CatalogRequest, *, timeout: float | None = None) -> CatalogAnswer:
        """Send a request once. Raises UnsafePath, CatalogUnavailable and CatalogOutcomeUnknown."""
        refuse_loop(request)
        check_target(request.path, request.query)  # also what the gateway makes of names
        sent = CatalogRequest(
            request.method,
            request.path,
            request.query,
            (*end_to_end(request.headers), (FORWARDED_BY, str(uuid4()))),
            request.body,
        )
        answer = self._upstream.send(sent, timeout=self.timeout if timeout is None else timeout)
        return CatalogAnswer(answer.status, end_to_end(answer.headers), answer.body)


def refuse_loop(request: CatalogRequest) -> None:
    """Raise GatewayError (REQUEST_LOOPS) for a request that a gateway has forwarded."""
    if request.header(FORWARDED_BY) is not None:
        raise request_loops()


def end_to_end(headers: Headers) -> Headers:
    lower = [name.lower() for name, _ in headers]
    dropped = _OF_ONE_CONNECTION
    if "connection" in lower:
        values = [value for name, (_, value) in zip(lower, headers, strict=True) if name == "connection"]
        dropped |= {each.strip().lower() for value in values for each in value.split(",")}
    return tuple([pair for name, pair in zip(lower, headers, strict=True) if name not in dropped])


def without(headers: Headers, *names: str) -> Headers:
    dropped = {name.lower() for name in names}
    return tuple((name, value) for name, value in headers if name.lower() not in dropped)


REALM_HEADER: Final = "Polaris-Realm"
_ROLE: Final = "PRINCIPAL_ROLE:"
_ALL: Final = "ALL"


@dataclass(frozen=True, slots=True)
class GatewayCaller:
    """The caller of a request, for whom the service uses its `authorization` header. `principal` and `roles` (principal
    roles) come from a verified token; `principal` is None if the gateway has no key to verify tokens with. `realm` is
    the realm header's value. `claimed` is the name in an unverified token: never act on it or show data for it."""

    principal: str | None
    authorization: str | None = field(default=None, repr=False)
    realm: str | None = None
    roles: frozenset[str] = frozenset()
    claimed: str | None = None


class TokenCallers:
    """Callers by their tokens: `sub` (Polaris' principal name), else `client_id`. Without `tokens` none is verified."""

    def __init__(self, tokens: TokenVerifier | None, *, realm_header: str = REALM_HEADER) -> None:
        self._tokens = tokens
        self._realm_header = realm_header

    def caller(self, request: CatalogRequest) -> GatewayCaller:
        """Return the caller; its principal is None if the token proves none. Raises KeysUnavailable, and GatewayError
        (HEADER_REPEATED) for two tokens or realms."""
        authorization, realm = (_only(request, name) for name in ("Authorization", self._realm_header))
        verified = self._verified(authorization)
        if verified is None:
            return GatewayCaller(None, authorization, realm, claimed=_claimed(authorization))
        principal = verified.subject or verified.client_id
        if not _is_text(principal):
            return GatewayCaller(None, authorization, realm)
        named = {each.removeprefix(_ROLE) for each in verified.scopes if each.startswith(_ROLE)}
        return GatewayCaller(principal, authorization, realm, frozenset(named - {_ALL}))

    def _verified(self, authorization: str | None) -> Principal | None:
        if self._tokens is None:
            return None
        try:
            return self._tokens.verify(authorization)
        except Unauthorized:
            return None


def _claimed(authorization: str | None) -> str | None:
    """Return the name in a JSON Web Token, unverified; None for a token of another form."""
    parts = (authorization or "").rpartition(" ")[2].split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    named = (claims.get("sub") or claims.get("client_id")) if isinstance(claims, dict) else None
    return named if isinstance(named, str) and _is_text(named) else None


def _is_text(name: str) -> bool:
    """Return whether a name has no lone surrogate: JSON can escape one, but it cannot be stored or sent."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _only(request: CatalogRequest, name: str) -> str | None:
    given = [value for known, value in request.headers if known.lower() == name.lower()]
    if len(given) > 1:
        raise GatewayError(
            (
                f"{name}: was sent {len(given)} times, and servers differ in which value they use. Nothing was done. "
                "Send the header once"
            ),
            code="HEADER_REPEATED",
            status=400,
        )
    return given[0] if given else None


_MOST: Final = 1_000
_OF_THE_REQUEST: Final = ("content-type", "content-encoding", "accept-encoding", "if-none-match", KEY_HEADER)


class KnownCatalogs:
    """Sends `GET /v1/config` for a catalog as the caller, and remembers existing catalogs for `seconds`."""

    def __init__(
        self, forwarder: Forwarder, *, seconds: float = 300.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._forwarder = forwarder
        self._seconds = seconds
        self._monotonic = monotonic
        self._known: OrderedDict[tuple[str, str], tuple[float, bool]] = OrderedDict()

    def refusal(self, request: CatalogRequest, target: Target, realm: str | None) -> CatalogAnswer | None:
        """Return the answer of `GET /v1/config` if it does not know the request's catalog, else None. A server without
        prefixes has one catalog. Raises CatalogOutcomeUnknown if the catalog did not answer: an earlier call may have
        had an effect."""
        if not target.prefix:
            return None
        known, now = (realm or "", target.prefix), self._monotonic()
        if known in self._known and self._known[known][0] > now:
            return None
        answer = self._configuration(request, target.catalog)
        if answer.status in {400, 404}:
            return answer
        if answer.status == 200 and _has_prefix(answer, target.catalog):
            self._known[known] = (now + self._seconds, _keeps_keys(answer))
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
            return None
        if answer.status == 200:
            message = (
                f"the catalog's configuration does not have the prefix {target.catalog} of the request's path. Nothing "
                "was done. Correct the warehouse or the prefix in the client"
            )
            return error_answer(404, "NotFoundException", message)
        if answer.status in {401, 403, 419}:
            return None  # the catalog refuses the request itself
        raise CatalogOutcomeUnknown(
            f"the catalog answered {answer.status} to GET /v1/config. Nothing more was done. Repeat the request"
        )

    def keeps_keys(self, target: Target, realm: str | None) -> bool:
        """Return whether the last configuration states how long the catalog itself remembers keys."""
        return self._known.get((realm or "", target.prefix), (0.0, False))[1]

    def _configuration(self, request: CatalogRequest, catalog: str) -> CatalogAnswer:
        headers = (*without(request.headers, *_OF_THE_REQUEST), ("Accept-Encoding", "identity"))
        query = encoded_query([("warehouse", catalog)])
        return self._forwarder.forward(CatalogRequest("GET", "v1/config", query, headers))


def _has_prefix(answer: CatalogAnswer, catalog: str) -> bool:
    """Return whether a configuration leads to the catalog: it names the catalog's prefix, or none."""
    overrides = (answer.document or {}).get("overrides")
    return isinstance(overrides, dict) and overrides.get("prefix", catalog) == catalog


def _keeps_keys(answer: CatalogAnswer) -> bool:
    """Return whether a configuration has Iceberg's `idempotency-key-lifetime`."""
    return isinstance((answer.document or {}).get(LIFETIME), str)


SUPPORTED: Final = "idempotency-key-supported"
LIFETIME: Final = "idempotency-key-lifetime"


def readable(request: CatalogRequest) -> CatalogRequest:
    """Return the request with headers for a readable answer: uncompressed, and in full despite the client's cache."""
    headers = without(request.headers, "accept-encoding", "if-none-match", "if-modified-since", "range")
    return CatalogRequest(
        request.method, request.path, request.query, (*headers, ("Accept-Encoding", "identity")), request.body
    )


def advertised(answer: CatalogAnswer, lifetime: timedelta | None) -> CatalogAnswer:
    """Return the catalog's configuration with both forms of the key lifetime; without `lifetime` keys are not honored.
    The catalog's own settings stay. An answer that is no CatalogConfig stays too."""
    is_readable = answer.status == 200 and answer.header("Content-Encoding") in {None, "", "identity"}
    document = answer.document if is_readable else None
    if document is None:
        return answer
    given = document.get("properties")
    properties = dict(given) if isinstance(given, dict) else {}
    properties[SUPPORTED] = "false" if lifetime is None else "true"
    if lifetime is not None:
        properties[LIFETIME] = document[LIFETIME] = duration_text(lifetime)
    changed = json_answer(answer.status, {**document, "properties": properties})
    kept = without(answer.headers, "content-type", "content-encoding", "etag")
    return CatalogAnswer(answer.status, (*kept, *changed.headers), changed.body)


def duration_text(duration: timedelta) -> str:
    """Return whole seconds in ISO 8601, such as `PT30M`, which Java's Duration parses."""
    seconds = int(duration.total_seconds())
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    parts = [f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M"), (rest, "S")) if number]
    return "PT" + ("".join(parts) or "0S")
