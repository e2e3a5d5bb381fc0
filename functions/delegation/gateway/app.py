"""The gateway: answers requests to the catalog, each by its route."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from delegation.gateway.answers import answer_of
from delegation.gateway.callers import GatewayCaller, TokenCallers
from delegation.gateway.catalogs import KnownCatalogs, advertised, readable
from delegation.gateway.errors import body_too_large, key_not_kept, purge_not_offered
from delegation.gateway.forwarding import Forwarder, refuse_loop
from delegation.gateway.keys.service import CatalogMutations, key_of
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
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
from delegation.identifiers import TableIdentifier
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.gateway.drop.owners import OwnersTombstones

logger = logging.getLogger(__name__)
LARGEST_BODY: Final = 4_400_000
"""Bytes: an event of a Lambda has at most 6 MB (AWS Lambda Developer Guide, "Lambda quotas"), and Base64 lengthens."""


class PurgingDrops(Protocol):
    def drop(self, request: CatalogRequest, caller: GatewayCaller, identifier: TableIdentifier) -> CatalogAnswer:
        """Answer `DELETE` of a table with `purgeRequested`. Raises DelegationErrors, which become Iceberg's
        ErrorModel."""


@dataclass(frozen=True, slots=True)
class GatewayRules:
    """What the gateway accepts: bodies up to `largest_body` bytes; `refuses_purges` decides when it has no drops."""

    largest_body: int = LARGEST_BODY
    refuses_purges: bool = False
    paths: CatalogPaths = DEFAULT_PATHS


class Gateway:
    """Answers requests to the catalog; each part may be None. Without `keys` no Idempotency-Key is honored (it needs
    verified callers), without `drops` nothing is purged, without `catalogs` no catalog's existence is checked, without
    `tombstones` callers cannot restore. `drops` and `tombstones` are called by the requests that need them."""

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
                key_of(request)  # one that is malformed is refused, whatever the request is
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
            case OwnTombstones(str(found)) if self._tombstones is not None:
                return self._tombstones().restore(request, self._callers.caller(request), found)
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
            # What makes records and files of its own begins only for a catalog that exists.
            refused = None if self._catalogs is None else self._catalogs.refusal(request, drop.target, caller.realm)
            if refused is None:
                return self._drops().drop(request, caller, drop.identifier)
            return refused if self._keys is None else self._keys.refusal(request, caller, refused)
        if self._rules.refuses_purges:
            raise purge_not_offered()
        if self._keys is not None and request.header(KEY_HEADER) is not None:
            return self._keys.perform(request, self._callers.caller(request), KeyedMutation(drop.target))
        return self._forwarder.forward(request)
