"""The settings of the gateway in front of the catalog, which is off by default."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from delegation.edge.trust.tokens import public_key
from infra.network_settings import CommaSeparated

_NEEDED = ("gateway_polaris_url", "gateway_vpc_endpoint", "gateway_domain_name", "gateway_certificate_arn")
_OF_THE_LISTENER = ("gateway_listener_arn", "gateway_vpc_id", "gateway_endpoint_addresses")


class GatewayDeploymentSettings(BaseModel):
    """The part of Settings about the gateway (docs/gateway-rule.md).

    - `gateway`: whether the stack of the gateway, its table and its role exist.
    - `gateway_polaris_url`: the catalog's base at an address that does not lead through the rule.
    - `gateway_base_path`: the catalog's base in the paths of the load balancer.
    - `gateway_vpc_endpoint`: the `execute-api` VPC endpoint that alone may call the API.
    - `gateway_domain_name`, `gateway_certificate_arn`: the catalog's name as clients use it, and its certificate.
    - `gateway_listener_arn`: the load balancer's listener that gets the rule; with it `gateway_vpc_id` and
      `gateway_endpoint_addresses`, the private addresses of the VPC endpoint. Without it the rule is yours to add.
      `gateway_listener_priority` is the first of five.
    - `gateway_timeout_seconds`: how long the catalog may take for a mutation, and so the longest hold on a key.
    - `gateway_namespace_separator`: what joins the levels of a namespace in the catalog's paths, percent-encoded.
    - `gateway_purge_requests`: drops with purge are taken over (`drop`), refused, or passed on to the catalog.
    - `gateway_subnet_ids`, `gateway_security_group_ids`: the function's network, if the catalog is reached only there.
    - `gateway_token_*`: how the tokens of the catalog's callers are verified, by its broker's public key or a JWKS;
      with neither, keys are not honoured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    gateway: bool = False
    gateway_polaris_url: str | None = Field(None, pattern=r"^https?://")
    gateway_base_path: str = Field("/api/catalog", pattern=r"^(/[A-Za-z0-9._~-]+)+$")
    gateway_vpc_endpoint: str | None = Field(None, pattern=r"^vpce-[0-9a-f]+$")
    gateway_domain_name: str | None = Field(None, pattern=r"^[a-z0-9][a-z0-9.-]+\.[a-z]{2,}$")
    gateway_certificate_arn: str | None = Field(None, pattern=r"^arn:")
    gateway_listener_arn: str | None = Field(None, pattern=r"^arn:")
    gateway_listener_priority: int = Field(10, ge=1, le=49_996)
    gateway_vpc_id: str | None = Field(None, pattern=r"^vpc-[0-9a-f]+$")
    gateway_endpoint_addresses: CommaSeparated = ()
    gateway_subnet_ids: CommaSeparated = ()
    gateway_security_group_ids: CommaSeparated = ()
    gateway_timeout_seconds: int = Field(12, ge=1, le=25)
    gateway_namespace_separator: str = Field("%1F", pattern=r"^\S+$")
    gateway_purge_requests: Literal["drop", "refuse", "pass"] = "drop"
    gateway_token_issuer: str = "polaris"  # noqa: S105 - the name of an issuer
    gateway_token_public_key: str | None = None
    gateway_token_jwks_url: str | None = Field(None, pattern=r"^https://")
    gateway_token_audience: str | None = None

    @model_validator(mode="after")
    def _gateway_is_whole(self) -> Self:
        """Require what the gateway cannot work without, and both or none of what belongs together."""
        missing = [name for name in _NEEDED if self.gateway and not getattr(self, name)]
        if self.gateway_listener_arn:
            missing += [name for name in _OF_THE_LISTENER if not getattr(self, name)]
        if bool(self.gateway_subnet_ids) != bool(self.gateway_security_group_ids):
            raise ValueError("delegation:gateway-subnet-ids and delegation:gateway-security-group-ids belong together")
        if missing:
            names = ", ".join(f"delegation:{name.replace('_', '-')}" for name in missing)
            raise ValueError(f"the gateway needs {names}; set them, or set delegation:gateway to false")
        if self.gateway_token_public_key and self.gateway_token_jwks_url:
            raise ValueError(
                "delegation:gateway-token-public-key and delegation:gateway-token-jwks-url exclude each other"
            )
        if self.gateway_token_public_key:
            public_key(self.gateway_token_public_key)
        return self
