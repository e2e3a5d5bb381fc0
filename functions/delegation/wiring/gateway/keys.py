"""Who calls the gateway, and what performs mutations at most once for their keys."""

from datetime import timedelta
from typing import Final
from urllib.parse import unquote
from uuid import uuid4

from delegation.edge.trust.jwks import JwksKeys, https_get
from delegation.edge.trust.tokens import KeySource, StaticKeys, TokenVerifier, TrustedIssuer, public_key
from delegation.gateway.callers import TokenCallers
from delegation.gateway.catalogs import KnownCatalogs
from delegation.gateway.forwarding import Forwarder
from delegation.gateway.keys.service import CatalogMutations, Patience, policy_for
from delegation.gateway.routing import CatalogPaths
from delegation.idempotency.mutations.reservation import BreakingStore, DynamoDbReservationStore, ReservationTable
from delegation.idempotency.mutations.service import Mutations
from delegation.metrics import KEYS_UNAVAILABLE, MetricLines
from delegation.timestamps import utc_now
from delegation.wiring.clients import aws
from delegation.wiring.gateway.settings import CatalogTokenSettings, GatewayEnvironment, GatewayKeySettings
from polaris_common.dynamodb import client_config

_USER_AGENT: Final = "polaris-delegation-gateway"


def verifier(settings: CatalogTokenSettings) -> TokenVerifier | None:
    """Return what verifies the tokens of the catalog's callers, None without a key."""
    keys: KeySource
    if settings.public_key is not None:
        keys = StaticKeys((public_key(settings.public_key),))
    elif settings.jwks_url is not None:
        keys = JwksKeys(settings.jwks_url, get=https_get(settings.jwks_timeout_seconds), clock=utc_now)
    else:
        return None
    issuer = TrustedIssuer(settings.issuer, keys, settings.audience)
    return TokenVerifier((issuer,), clock=utc_now, leeway=timedelta(seconds=settings.leeway_seconds))


def callers(tokens: TokenVerifier | None) -> TokenCallers:
    return TokenCallers(tokens)


def catalog_paths(environment: GatewayEnvironment) -> CatalogPaths:
    """Return how the catalog writes paths; the setting may be encoded, as `/v1/config` advertises it."""
    return CatalogPaths(unquote(environment.namespace_separator))


def mutations_held_for(seconds: float) -> Mutations:
    """Return what performs mutations at most once, each of which may take `seconds`. A write takes at most 3 s, and as
    long again to be read back without an answer: one is made before the mutation and one after it, within the answer's
    time. botocore would check each call's arguments and compose a User-Agent, a third of its cost."""
    settings = GatewayKeySettings.read()
    quick = client_config(connect_timeout=0.5, read_timeout=1, parameter_validation=False, user_agent=_USER_AGENT)
    client = aws("dynamodb", quick)
    table = DynamoDbReservationStore(ReservationTable(client, tries=2), settings.idempotency_table)
    store = BreakingStore(table, opened=count_unavailable)
    policy = policy_for(seconds, settings.keys().lifetime)
    return Mutations(store, policy=policy, clock=utc_now, nonce=lambda: str(uuid4()))


def count_unavailable() -> None:
    """Print the metric of a table of keys that does not answer."""
    MetricLines.of_environment().put({KEYS_UNAVAILABLE: 1})


def keyed_mutations(
    environment: GatewayEnvironment, forwarder: Forwarder, catalogs: KnownCatalogs
) -> CatalogMutations | None:
    """Return what honours keys, None if the settings switch them off."""
    lifetime = GatewayKeySettings.read().keys().advertised
    if lifetime is None:
        return None
    return CatalogMutations(
        mutations_held_for(environment.timeout_seconds),
        forwarder,
        utc_now,
        Patience.within(environment.timeout_seconds),
        environment.realm,
        lifetime,
        catalog_paths(environment),
        catalogs,
    )
