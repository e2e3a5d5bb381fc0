"""The gateway as a Lambda serves it."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from delegation.gateway.app import Gateway, GatewayRules, PurgingDrops
from delegation.gateway.callers import GatewayCaller
from delegation.gateway.events import answer_event
from delegation.gateway.forwarding import Forwarder
from delegation.gateway.http_upstream import HttpUpstream
from delegation.gateway.keys.service import CatalogMutations
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.identifiers import TableIdentifier
from delegation.wiring.gateway.keys import callers, catalog_paths, keyed_mutations, verifier
from delegation.wiring.gateway.settings import CatalogTokenSettings, GatewayEnvironment
from delegation.wiring.settings import TombstoneEnvironment

EventHandler = Callable[[Mapping[str, Any]], dict[str, Any]]


def gateway() -> EventHandler:
    """Return what answers events of the gateway's API; pydantic's ValidationError names a setting that is wrong."""
    environment = GatewayEnvironment.read()
    forwarder = Forwarder(HttpUpstream(environment.catalog_url), timeout=environment.timeout_seconds)
    tokens = verifier(CatalogTokenSettings.read())
    keys = None if tokens is None else keyed_mutations(environment, forwarder)
    drops_here = TombstoneEnvironment.read().tombstones_table is not None
    served = Gateway(
        forwarder,
        callers(tokens),
        keys=keys,
        drops=DropsOnDemand(lambda: purging_drops(forwarder, environment.realm, keys)) if drops_here else None,
        rules=GatewayRules(paths=catalog_paths(environment)),
    )
    return partial(answer_event, serve=served.answer, base_path=environment.base_path)


class DropsOnDemand:
    """PurgingDrops that are made at the first drop: most functions never see one, and it loads the guards of purges."""

    def __init__(self, make: Callable[[], PurgingDrops]) -> None:
        self._made = cache(make)

    def drop(self, request: CatalogRequest, caller: GatewayCaller, identifier: TableIdentifier) -> CatalogAnswer:
        """See PurgingDrops.drop."""
        return self._made().drop(request, caller, identifier)


def purging_drops(forwarder: Forwarder, realm: str, keys: CatalogMutations | None) -> PurgingDrops:
    """Return what drops tables with their files, under keys where these are honoured."""
    from delegation.gateway.keyed_drops import KeyedDrops  # noqa: PLC0415
    from delegation.wiring.gateway.drop import table_drops  # noqa: PLC0415

    drops = table_drops(forwarder, realm)
    return drops if keys is None else KeyedDrops(drops, keys.mutations, realm)
