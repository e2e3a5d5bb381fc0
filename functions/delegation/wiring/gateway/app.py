"""The gateway as a Lambda serves it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from delegation.gateway.app import Gateway, GatewayRules
from delegation.gateway.events import answer_event
from delegation.gateway.forwarding import Forwarder
from delegation.gateway.http_upstream import HttpUpstream
from delegation.wiring.gateway.keys import callers, catalog_paths, keyed_mutations, verifier
from delegation.wiring.gateway.settings import CatalogTokenSettings, GatewayEnvironment

EventHandler = Callable[[Mapping[str, Any]], dict[str, Any]]


def gateway() -> EventHandler:
    """Return what answers events of the gateway's API; pydantic's ValidationError names a setting that is wrong."""
    environment = GatewayEnvironment.read()
    forwarder = Forwarder(HttpUpstream(environment.catalog_url), timeout=environment.timeout_seconds)
    tokens = verifier(CatalogTokenSettings.read())
    served = Gateway(
        forwarder,
        callers(tokens),
        keys=None if tokens is None else keyed_mutations(environment, forwarder),
        rules=GatewayRules(paths=catalog_paths(environment)),
    )
    return partial(answer_event, serve=served.answer, base_path=environment.base_path)
