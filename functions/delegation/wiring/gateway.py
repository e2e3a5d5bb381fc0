"""The gateway in front of an unmodified catalog, as a Lambda serves it."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import unquote
from uuid import uuid4

from pydantic import AfterValidator, Field, model_validator

from delegation.edge.trust.tokens import (
    JwksKeys,
    KeySource,
    StaticKeys,
    TokenVerifier,
    TrustedIssuer,
    https_get,
    public_key,
)
from delegation.environment import EnvironmentSettings
from delegation.gateway.app import Gateway, GatewayRules, PurgingDrops, answer_event
from delegation.gateway.forwarding import Forwarder, KnownCatalogs, TokenCallers
from delegation.gateway.http import HttpUpstream
from delegation.gateway.keys.service import CatalogMutations, Patience, policy_for
from delegation.gateway.routing import CatalogPaths
from delegation.idempotency.mutations import Mutations
from delegation.idempotency.reservations import BreakingStore, DynamoDbReservationStore, ReservationTable
from delegation.metrics import KEYS_UNAVAILABLE, MetricLines
from delegation.timestamps import utc_now
from delegation.wiring.clients import aws
from delegation.wiring.settings import IdempotencySettings, TombstoneEnvironment
from polaris_common.dynamodb import client_config

if TYPE_CHECKING:
    from delegation.gateway.drop.caller import OwnersTombstones


def _readable(text: str) -> str:
    public_key(text)
    return text


class GatewayEnvironment(EnvironmentSettings):
    """Where the catalog is, and where it appears to be. `catalog_url` is its base at an address that bypasses the load
    balancer's rule, `base_path` its base in the load balancer's paths. A mutation may take `timeout_seconds` of the
    catalog. `namespace_separator` joins namespace levels in paths, percent-encoded or not. `purge_requests`: drops with
    purge are handled (which needs the tombstone table), refused, or forwarded unchanged."""

    catalog_url: str = Field(alias="DELEGATION_POLARIS_URL", pattern=r"^https?://[^/\s]+\S*$")
    base_path: str = Field("/api/catalog", alias="DELEGATION_GATEWAY_BASE_PATH", pattern=r"^(/[^/\s]+)*$")
    realm: str = Field("POLARIS", alias="DELEGATION_REALM", min_length=1)
    timeout_seconds: float = Field(12.0, alias="DELEGATION_GATEWAY_TIMEOUT_SECONDS", ge=1, le=25)
    namespace_separator: str = Field("\x1f", alias="DELEGATION_GATEWAY_NAMESPACE_SEPARATOR", min_length=1)
    purge_requests: Literal["drop", "refuse", "pass"] = Field("drop", alias="DELEGATION_GATEWAY_PURGE_REQUESTS")


class CatalogTokenSettings(EnvironmentSettings):
    """How the tokens of the catalog's callers are verified; without a key, idempotency keys are not honored.
    `public_key` is that of Polaris' own token broker in PEM, `jwks_url` that of an external issuer."""

    issuer: str = Field("polaris", alias="DELEGATION_TOKEN_ISSUER", min_length=1)
    public_key: Annotated[str, AfterValidator(_readable)] | None = Field(None, alias="DELEGATION_TOKEN_PUBLIC_KEY")
    jwks_url: str | None = Field(None, alias="DELEGATION_TOKEN_JWKS_URL", pattern=r"^https?://[^/\s]+\S*$")
    audience: str | None = Field(None, alias="DELEGATION_TOKEN_AUDIENCE")
    leeway_seconds: int = Field(30, alias="DELEGATION_TOKEN_LEEWAY_SECONDS", ge=0, le=300)
    jwks_timeout_seconds: float = Field(3.0, alias="DELEGATION_TOKEN_JWKS_TIMEOUT_SECONDS", gt=0, le=8)

    @model_validator(mode="after")
    def _one_key_source(self) -> Self:
        if self.public_key is not None and self.jwks_url is not None:
            raise ValueError("set only one of DELEGATION_TOKEN_PUBLIC_KEY and DELEGATION_TOKEN_JWKS_URL")
        return self


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


def catalog_paths(environment: GatewayEnvironment) -> CatalogPaths:
    """Return how the catalog writes paths; the setting may be encoded, as `/v1/config` advertises it."""
    return CatalogPaths(unquote(environment.namespace_separator))


def mutations_held_for(seconds: float) -> Mutations:
    """Return what performs mutations at most once, each of which may take `seconds`. A write takes at most 3 s, and as
    long again to be read back without an answer: one is made before the mutation and one after it, within the answer's
    time. botocore's argument checks and User-Agent would cost a third of each call."""
    settings = IdempotencySettings.read()
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
    """Return what honors keys, None if the settings disable them."""
    lifetime = IdempotencySettings.read().keys().advertised
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


EventHandler = Callable[[Mapping[str, Any]], dict[str, Any]]


def gateway() -> EventHandler:
    """Return what answers events of the gateway's API. ValidationError names a wrong setting."""
    environment = GatewayEnvironment.read()
    forwarder = Forwarder(HttpUpstream(environment.catalog_url), timeout=environment.timeout_seconds)
    tokens = verifier(CatalogTokenSettings.read())
    catalogs = KnownCatalogs(forwarder)
    keys = None if tokens is None else keyed_mutations(environment, forwarder, catalogs)
    # Loaded by the first request that needs it: that takes longer than most requests.
    make = cache(partial(_drops, forwarder, environment.realm, honours_keys=keys is not None))
    drops = environment.purge_requests == "drop" and TombstoneEnvironment.read().tombstones_table is not None
    served = Gateway(
        forwarder,
        TokenCallers(tokens),
        keys=keys,
        drops=make if drops else None,
        tombstones=cache(partial(_owners, forwarder, environment)) if drops else None,
        catalogs=catalogs,
        rules=GatewayRules(refuses_purges=environment.purge_requests == "refuse", paths=catalog_paths(environment)),
    )
    return partial(answer_event, serve=served.answer, base_path=environment.base_path)


def _owners(forwarder: Forwarder, environment: GatewayEnvironment) -> "OwnersTombstones":
    from delegation.wiring.drops import owners_tombstones  # noqa: PLC0415

    return owners_tombstones(forwarder, environment.realm, catalog_paths(environment))


def _drops(forwarder: Forwarder, realm: str, *, honours_keys: bool) -> PurgingDrops:
    from delegation.gateway.drop.keyed import KeyedDrops  # noqa: PLC0415
    from delegation.wiring.drops import table_drops  # noqa: PLC0415

    drops = table_drops(forwarder, realm)
    if not honours_keys:
        return drops
    # A drop that waits for its purge extends its hold on the key, so the duplicates of a killed drop wait no longer
    # than those of any mutation.
    mutations = mutations_held_for(forwarder.timeout)
    return KeyedDrops(drops, mutations, realm, forwarder.forward, Patience.within(forwarder.timeout), utc_now)
