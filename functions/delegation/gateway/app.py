"""The gateway: answers requests to the catalog by their routes, as events of a REST API's Lambda proxy integration.
Source: API Gateway Developer Guide, "Lambda proxy integrations in API Gateway". `requestContext.path` is still encoded;
query parameters come decoded."""

import base64
import gzip
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from delegation.gateway.forwarding import (
    Forwarder,
    GatewayCaller,
    KnownCatalogs,
    TokenCallers,
    advertised,
    readable,
    refuse_loop,
)
from delegation.gateway.keys.service import CatalogMutations, key_of
from delegation.gateway.messages import (
    CatalogAnswer,
    CatalogAnswerTooLarge,
    CatalogRequest,
    Headers,
    NotTheCatalog,
    UnsafePath,
    answer_of,
    body_too_large,
    key_not_kept,
    purge_not_offered,
)
from delegation.gateway.routing import (
    DEFAULT_PATHS,
    KEY_HEADER,
    CatalogPaths,
    ConfigDiscovery,
    DropWithPurge,
    KeyedMutation,
    OwnTombstones,
    UnknownMutation,
    check_target,
    route_of,
)
from delegation.identifiers import TableIdentifier, encoded, encoded_query
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.gateway.drop.caller import OwnersTombstones


logger = logging.getLogger(__name__)
LARGEST_BODY: Final = 4_400_000
"""Bytes. A Lambda's event has at most 6 MB (AWS Lambda Developer Guide, "Lambda quotas"), and Base64 adds a third."""


class PurgingDrops(Protocol):
    def drop(self, request: CatalogRequest, caller: GatewayCaller, identifier: TableIdentifier) -> CatalogAnswer:
        """Answer `DELETE` of a table with `purgeRequested`. Raises DelegationErrors, answered as Iceberg's
        ErrorModel."""


@dataclass(frozen=True, slots=True)
class GatewayRules:
    """What the gateway accepts: bodies up to `largest_body` bytes. `refuses_purges` decides if there are no drops."""

    largest_body: int = LARGEST_BODY
    refuses_purges: bool = False
    paths: CatalogPaths = DEFAULT_PATHS


class Gateway:
    """Answers requests to the catalog; each part may be None. Without `keys` no Idempotency-Key is honored (it needs
    verified callers), without `drops` nothing is purged, without `catalogs` the catalog's existence is not checked,
    without `tombstones` callers cannot restore. `drops` and `tombstones` are called only for requests that need
    them."""

    def __init__(
        self,
        forwarder: Forwarder,
        callers: TokenCallers,
        *,
        keys: CatalogMutations | None = None,
        drops: Callable[[], PurgingDrops] | None = None,
        tombstones: "Callable[[], OwnersTombstones] | None" = None,
        catalogs: KnownCatalogs | None = None,
        rules: GatewayRules | None = None,
    ) -> None:
        self._forwarder = forwarder
        self._callers = callers
        self._keys = keys
        self._drops = drops
        self._tombstones = tombstones
        self._catalogs = catalogs
        self._rules = rules or GatewayRules()

    def answer(self, request: CatalogRequest) -> CatalogAnswer:
        try:
            refuse_loop(request)
            check_target(request.path, request.query)
            if request.header(KEY_HEADER) is not None:
                key_of(request)  # a malformed key is refused, whatever the request is
            if len(request.body) > self._rules.largest_body:
                raise body_too_large(len(request.body), self._rules.largest_body)
            return self._answer(request)
        except DelegationError as error:
            answer = answer_of(error, is_repeatable=self._keys is not None and request.header(KEY_HEADER) is not None)
            level = logging.INFO if answer.status < 500 else logging.WARNING
            logger.log(level, "%s %s", error.code, error, extra={"action": "gateway", "status": answer.status})
            return answer

    def _answer(self, request: CatalogRequest) -> CatalogAnswer:
        match route_of(request, self._rules.paths):
            case ConfigDiscovery():
                lifetime = None if self._keys is None else self._keys.lifetime
                return advertised(self._forwarder.forward(readable(request)), lifetime)
            case OwnTombstones(None) if self._tombstones is not None:
                return self._tombstones().list(request, self._callers.caller(request))
            case OwnTombstones(str(tombstone_id)) if self._tombstones is not None:
                return self._tombstones().restore(request, self._callers.caller(request), tombstone_id)
            case DropWithPurge() as drop:
                return self._purge(request, drop)
            case UnknownMutation() if self._keys is not None:
                raise key_not_kept(request.method)
            case KeyedMutation() as mutation if self._keys is not None:
                return self._keys.perform(request, self._callers.caller(request), mutation)
            case _:
                return self._forwarder.forward(request)

    def _purge(self, request: CatalogRequest, drop: DropWithPurge) -> CatalogAnswer:
        if self._drops is not None:
            caller = self._callers.caller(request)
            # Records and files are written only for an existing catalog.
            refused = None if self._catalogs is None else self._catalogs.refusal(request, drop.target, caller.realm)
            if refused is None:
                return self._drops().drop(request, caller, drop.identifier)
            return refused if self._keys is None else self._keys.refusal(request, caller, refused)
        if self._rules.refuses_purges:
            raise purge_not_offered()
        if self._keys is not None and request.header(KEY_HEADER) is not None:
            return self._keys.perform(request, self._callers.caller(request), KeyedMutation(drop.target))
        return self._forwarder.forward(request)


LARGEST_ANSWER: Final = 6_000_000
"""Bytes of an answer as JSON. A Lambda returns at most 6 MB (AWS Lambda Developer Guide, "Lambda quotas")."""
_ENCODING: Final = "Content-Encoding"
_REPLACED: Final = encoded("\N{REPLACEMENT CHARACTER}")

Serve = Callable[[CatalogRequest], CatalogAnswer]


def answer_event(event: Mapping[str, Any], serve: Serve, base_path: str) -> dict[str, Any]:
    try:
        request = request_of(event, base_path)
    except (NotTheCatalog, UnsafePath) as error:
        return event_of(answer_of(error), ())
    answer = serve(request)
    try:
        return event_of(answer, request.headers)
    except CatalogAnswerTooLarge as error:
        return event_of(answer_of(error), ())


def request_of(event: Mapping[str, Any], base_path: str) -> CatalogRequest:
    """Return the event's request. Raises NotTheCatalog and UnsafePath."""
    body = event.get("body") or ""
    return CatalogRequest(
        str(event["httpMethod"]).upper(),
        _path(event, base_path.rstrip("/")),
        _query(event.get("multiValueQueryStringParameters") or {}),
        _pairs(event.get("multiValueHeaders") or {}),
        base64.b64decode(body) if event.get("isBase64Encoded") else body.encode(),
    )


def _query(parameters: Mapping[str, Any]) -> str:
    """Encode the query again: a blank as %20, which every server decodes, and `=` after each name. Raises UnsafePath
    for bytes that are not UTF-8: the event has replaced them."""
    query = encoded_query((name, str(value)) for name, values in parameters.items() for value in values)
    if _REPLACED in query:
        raise UnsafePath("bytes that are not UTF-8")
    return query


def _path(event: Mapping[str, Any], base: str) -> str:
    """Return the path below the base; the stage or a base path mapping may precede it."""
    path = str((event.get("requestContext") or {}).get("path") or event["path"])
    shorter = "/" + path.lstrip("/").partition("/")[2]
    for each in (path, shorter):
        if each.startswith(f"{base}/"):
            return each.removeprefix(f"{base}/")
    raise NotTheCatalog(
        f"the request's path does not begin with {base}/, the catalog's base path at this gateway "
        "(DELEGATION_GATEWAY_BASE_PATH). Nothing was done. Correct the catalog's address in the client"
    )


def event_of(answer: CatalogAnswer, asked: Headers) -> dict[str, Any]:
    """Return the answer as an event, compressed if it is otherwise too large; `asked` are the request's headers. Raises
    CatalogAnswerTooLarge."""
    made = _event_of(answer)
    if _size(made) > LARGEST_ANSWER and answer.header(_ENCODING) is None and _accepts_gzip(asked):
        headers = (*answer.headers, (_ENCODING, "gzip"))
        made = _event_of(CatalogAnswer(answer.status, headers, gzip.compress(answer.body, mtime=0)))
    if _size(made) > LARGEST_ANSWER:
        raise CatalogAnswerTooLarge(answer.status, len(answer.body), LARGEST_ANSWER)
    return made


def _event_of(answer: CatalogAnswer) -> dict[str, Any]:
    headers: dict[str, list[str]] = {}
    for name, value in answer.headers:
        headers.setdefault(name, []).append(value)
    try:
        text, is_encoded = answer.body.decode(), False
    except UnicodeDecodeError:
        text, is_encoded = base64.b64encode(answer.body).decode(), True
    return {"statusCode": answer.status, "multiValueHeaders": headers, "body": text, "isBase64Encoded": is_encoded}


def _size(event: Mapping[str, Any]) -> int:
    """Return the bytes of an event; measures only a body that may be too large."""
    body = event["body"]
    return len(body) if len(body) < LARGEST_ANSWER // 6 else len(json.dumps(event).encode())


def _accepts_gzip(headers: Headers) -> bool:
    accepted = [value for name, value in headers if name.lower() == "accept-encoding"]
    codings = [each.strip().lower().replace(" ", "") for value in accepted for each in value.split(",")]
    return any(each.partition(";")[0] == "gzip" and not each.endswith(";q=0") for each in codings)


def _pairs(headers: Mapping[str, Any]) -> Headers:
    return tuple((name, value) for name, values in headers.items() for value in values or ())
