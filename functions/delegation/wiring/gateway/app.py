"""The gateway as a Lambda serves it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from delegation.gateway.app import Gateway, GatewayRules, PurgingDrops, TombstonesOfCallers
from delegation.gateway.callers import GatewayCaller
from delegation.gateway.catalogs import KnownCatalogs
from delegation.gateway.events import answer_event
from delegation.gateway.forwarding import Forwarder
from delegation.gateway.http import HttpUpstream
from delegation.gateway.keys.service import Patience
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.identifiers import TableIdentifier
from delegation.timestamps import utc_now
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
        tombstones=TombstonesWhenNeeded(cache(partial(_owners, forwarder, environment))) if drops else None,
        catalogs=catalogs,
        rules=GatewayRules(refuses_purges=environment.purge_requests == "refuse", paths=catalog_paths(environment)),
    )
    return partial(answer_event, serve=served.answer, base_path=environment.base_path)


@dataclass(frozen=True, slots=True)
class DropsWhenNeeded(PurgingDrops):
    """Drops that are made for the first one: loading what they need takes longer than most requests."""

    make: Callable[[], PurgingDrops]

    def drop(self, request: CatalogRequest, caller: GatewayCaller, identifier: TableIdentifier) -> CatalogAnswer:
        return self.make().drop(request, caller, identifier)


@dataclass(frozen=True, slots=True)
class TombstonesWhenNeeded(TombstonesOfCallers):
    """The callers' tombstones, made for the first request as drops are."""

    make: Callable[[], TombstonesOfCallers]

    def list(self, request: CatalogRequest, caller: GatewayCaller) -> CatalogAnswer:
        return self.make().list(request, caller)

    def restore(self, request: CatalogRequest, caller: GatewayCaller, tombstone_id: str) -> CatalogAnswer:
        return self.make().restore(request, caller, tombstone_id)


def _owners(forwarder: Forwarder, environment: GatewayEnvironment) -> TombstonesOfCallers:
    from delegation.wiring.gateway.drop import owners_tombstones  # noqa: PLC0415

    return owners_tombstones(forwarder, environment.realm, catalog_paths(environment))


def _drops(forwarder: Forwarder, realm: str, *, honours_keys: bool) -> PurgingDrops:
    from delegation.gateway.drop.keyed import KeyedDrops  # noqa: PLC0415
    from delegation.wiring.gateway.drop import table_drops  # noqa: PLC0415

    drops = table_drops(forwarder, realm)
    if not honours_keys:
        return drops
    # A drop that waits for its purge extends its hold on the key, so that the duplicates of one that was killed do not
    # wait longer than those of any mutation.
    mutations = mutations_held_for(forwarder.timeout)
    return KeyedDrops(drops, mutations, realm, forwarder.forward, Patience.within(forwarder.timeout), utc_now)
