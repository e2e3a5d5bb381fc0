from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from delegation.edge.trust.tokens import public_key
from delegation.environment import EnvironmentSettings
from delegation.wiring.settings import IdempotencySettings


def _readable(text: str) -> str:
    public_key(text)
    return text


class GatewayEnvironment(EnvironmentSettings):
    """Where the catalog is, and where it appears to be. `catalog_url` is its base at an address that bypasses the load
    balancer's rule, `base_path` its base in the load balancer's paths. A mutation may take `timeout_seconds` of the
    catalog. `namespace_separator` joins namespace levels in paths, percent-encoded or not. `purge_requests`: drops with
    purge are taken over (which needs the tombstone table), refused, or forwarded unchanged."""

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
            raise ValueError("DELEGATION_TOKEN_PUBLIC_KEY and DELEGATION_TOKEN_JWKS_URL exclude each other")
        return self


class GatewayKeySettings(IdempotencySettings):
    """The table of idempotency records, and how keys are treated (`polaris.idempotency.*`)."""
