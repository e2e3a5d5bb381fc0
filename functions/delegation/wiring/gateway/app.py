"""The gateway as a Lambda serves it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from delegation.gateway.app import Gateway, GatewayRules, PurgingDrops
from delegation.gateway.callers import GatewayCaller
from delegation.gateway.catalogs import KnownCatalogs
from delegation.gateway.events import answer_event
from delegation.gateway.forwarding import Forwarder
from delegation.gateway.http_upstream import HttpUpstream
from delegation.gateway.keys.service import LONGEST_ANSWER_SECONDS
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.identifiers import TableIdentifier
from delegation.wiring.gateway.keys import callers, catalog_paths, keyed_mutations, mutations_held_for, verifier
from delegation.wiring.gateway.settings import CatalogTokenSettings, GatewayEnvironment
from delegation.wiring.settings import TombstoneEnvironment

EventHandler = Callable[[Mapping[str, Any]], dict[str, Any]]


def gateway() -> EventHandler:
    """Return what answers events of the gateway's API; pydantic's ValidationError names a setting that is wrong."""
    environment = GatewayEnvironment.read()
    forwarder = Forwarder(HttpUpstream(environment.catalog_url), timeout=environment.timeout_seconds)
    tokens = verifier(CatalogTokenSettings.read())
    catalogs = KnownCatalogs(forwarder)
    keys = None if tokens is None else keyed_mutations(environment, forwarder, catalogs)
    make = cache(partial(_drops, forwarder, environment.realm, honours_keys=keys is not None))
    drops = environment.purge_requests == "drop" and TombstoneEnvironment.read().tombstones_table is not None
    served = Gateway(
        forwarder,
        callers(tokens),
        keys=keys,
        drops=DropsWhenNeeded(make) if drops else None,
        catalogs=catalogs,
        rules=GatewayRules(refuses_purges=environment.purge_requests == "refuse", paths=catalog_paths(environment)),
    )
    return partial(answer_event, serve=served.answer, base_path=environment.base_path)


@dataclass(frozen=True, slots=True)
class DropsWhenNeeded(PurgingDrops):
    """Drops that are made for the first one: loading what they need takes longer than most requests."""

    make: Callable[[], PurgingDrops]

    def drop(self, request: CatalogRequest, caller: GatewayCaller, identifier: TableIdentifier) -> CatalogAnswer:
        """See PurgingDrops.drop."""
        return self.make().drop(request, caller, identifier)


def _drops(forwarder: Forwarder, realm: str, *, honours_keys: bool) -> PurgingDrops:
    from delegation.gateway.keyed_drops import KeyedDrops  # noqa: PLC0415
    from delegation.wiring.gateway.drop import table_drops  # noqa: PLC0415

    drops = table_drops(forwarder, realm)
    # A drop that waits for its purge holds its key until API Gateway's time-out.
    return KeyedDrops(drops, mutations_held_for(LONGEST_ANSWER_SECONDS), realm) if honours_keys else drops
