"""The settings of a deployment's network, and those of the gateway in front of the catalog."""

import ipaddress
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from delegation.edge.trust.settings import separated_by
from delegation.edge.trust.tokens import public_key

_EXAMPLES: Final = tuple(ipaddress.IPv4Network(text) for text in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"))
"""RFC 5737, "IPv4 Address Blocks Reserved for Documentation"."""
_WIDEST: Final = 8
"""The prefix of the widest private network, 10.0.0.0/8 (RFC 1918, Section 3)."""


CommaSeparated = Annotated[tuple[str, ...], separated_by(",")]
"""A list, or text with commas, because context given on the command line is text."""


FormerApplications = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[0-9a-z]{1,64}$")], ...], separated_by(","), Field(max_length=4)
]
"""Ids of EMR Serverless applications (API Reference, GetApplication)."""


class NetworkProfile(StrEnum):
    """How callers reach the API."""

    PRIVATE = "private"
    REGIONAL = "regional"


class AwsEndpoints(StrEnum):
    """Who provides the way from the VPC to AWS' services."""

    CREATE = "create"
    EXISTING = "existing"


class VpcLayout(StrEnum):
    """Which ranges of a created VPC its subnets have; a choice for ever, because CloudFormation cannot move subnets."""

    ROOM_FOR_PUBLIC = "room-for-public"
    PRIVATE_ONLY = "private-only"


class GradualDeployment(StrEnum):
    """How a deployment moves callers to new code; with all but `off` it goes back when an alarm is raised."""

    OFF = "off"
    ALL_AT_ONCE = "all-at-once"
    CANARY = "canary-10-percent-5-minutes"
    LINEAR = "linear-10-percent-every-1-minute"


class CustomerKeyUse(StrEnum):
    """What the customer managed key encrypts besides tables, plans and secrets."""

    QUEUES = "queues"
    LOGS = "logs"
    TOPICS = "topics"


def _address_range(text: str) -> str:
    """Return a range of IPv4 addresses as security groups write it; raises ValueError."""
    network = ipaddress.IPv4Network(text)
    if network.prefixlen < _WIDEST:
        raise ValueError(f"{text} is larger than the largest private network. Name Polaris' own range")
    return str(network)


_Group = Annotated[str, Field(pattern=r"^sg-[0-9a-f]+$")]
_Subnet = Annotated[str, Field(pattern=r"^subnet-[0-9a-f]+$")]
_RouteTable = Annotated[str, Field(pattern=r"^rtb-[0-9a-f]+$")]
_Range = Annotated[str, AfterValidator(_address_range)]


class NetworkSettings(BaseModel):
    """The settings of the network, some of `infra.settings.Settings`; docs/settings.md states what each one means."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    network: NetworkProfile = NetworkProfile.PRIVATE
    vpc_id: str | None = Field(None, pattern=r"^vpc-[0-9a-f]+$")
    vpc_cidr: _Range = "10.64.0.0/20"
    subnet_ids: Annotated[tuple[_Subnet, ...], separated_by(",")] = ()
    route_table_ids: Annotated[tuple[_RouteTable, ...], separated_by(",")] = ()
    aws_endpoints: AwsEndpoints | None = None
    nat_gateways: int = Field(0, ge=0, le=3)
    vpc_layout: VpcLayout = VpcLayout.ROOM_FOR_PUBLIC
    caller_security_group_ids: Annotated[tuple[_Group, ...], separated_by(",")] = ()
    caller_cidrs: Annotated[tuple[_Range, ...], separated_by(",")] = ()
    functions_in_vpc: CommaSeparated = ("authorizer",)
    certificate_arn: str | None = Field(None, pattern=r"^arn:[^:]+:acm:")
    certificate_authority_arn: str | None = Field(None, pattern=r"^arn:[^:]+:acm-pca:")
    ownership_certificate_arn: str | None = Field(None, pattern=r"^arn:[^:]+:acm:")
    hosted_zone_id: str | None = Field(None, pattern=r"^Z[A-Z0-9]+$")
    rate_limit: int = Field(30_000, ge=10, le=2_000_000_000)
    kms_key_arn: str | None = Field(None, pattern=r"^arn:[^:]+:kms:[^:]+:\d{12}:key/[\w-]+$")
    customer_key_for: Annotated[tuple[CustomerKeyUse, ...], separated_by(",")] = ()
    bootstrap_key_arn: str | None = Field(None, pattern=r"^arn:[^:]+:kms:[^:]+:\d{12}:key/[\w-]+$")
    account_log_role: str = Field("create", pattern=r"^(create|existing)$")

    @property
    def is_private(self) -> bool:
        return self.network is NetworkProfile.PRIVATE

    @property
    def has_vpc(self) -> bool:
        """Whether functions and Spark jobs run in a VPC."""
        return self.is_private or self.vpc_id is not None

    @property
    def creates_endpoints(self) -> bool:
        """Whether this deployment creates the VPC endpoints of AWS' services."""
        if self.aws_endpoints is not None:
            return self.aws_endpoints is AwsEndpoints.CREATE
        return self.vpc_id is None

    def has_customer_key_for(self, use: CustomerKeyUse) -> bool:
        return use in self.customer_key_for

    @field_validator("vpc_cidr")
    @classmethod
    def _has_room_for_endpoints_and_workers(cls, value: str) -> str:
        if not 16 <= ipaddress.ip_network(value).prefixlen <= 22:
            raise ValueError("must have a prefix of 16 to 22: each Spark worker takes an address of a subnet")
        return value

    @model_validator(mode="after")
    def _vpc_is_whole(self) -> Self:
        if (self.vpc_id is None) != (not self.subnet_ids):
            raise ValueError("set both delegation:vpc-id and delegation:subnet-ids, or neither")
        if self.vpc_id is not None and len(set(self.subnet_ids)) < 2:
            raise ValueError("delegation:subnet-ids must name subnets in two or more availability zones")
        if self.nat_gateways and self.vpc_layout is VpcLayout.PRIVATE_ONLY:
            raise ValueError(
                "delegation:nat-gateways needs public subnets, but delegation:vpc-layout = private-only leaves no "
                "range for them. Use an existing VPC (delegation:vpc-id)"
            )
        if self.vpc_id is None and self.route_table_ids:
            raise ValueError("delegation:route-table-ids needs delegation:vpc-id")
        if self.vpc_id is not None and self.creates_endpoints and not self.route_table_ids:
            raise ValueError(
                "delegation:aws-endpoints = create needs delegation:route-table-ids: set the route tables of "
                "delegation:subnet-ids"
            )
        return self

    @model_validator(mode="after")
    def _callers_are_named(self) -> Self:
        named = bool(self.caller_cidrs or self.caller_security_group_ids)
        if self.is_private and not named:
            raise ValueError(
                "nothing can reach the private API. Set delegation:caller-security-group-ids or "
                "delegation:caller-cidrs "
                "to Polaris' security group or address range"
            )
        if self.caller_security_group_ids and self.vpc_id is None:
            raise ValueError(
                "delegation:caller-security-group-ids needs delegation:vpc-id. If Polaris is in another VPC, set "
                "delegation:caller-cidrs"
            )
        return self

    @model_validator(mode="after")
    def _certificate_has_one_source(self) -> Self:
        if self.certificate_arn and self.certificate_authority_arn:
            raise ValueError("set only one of delegation:certificate-arn and delegation:certificate-authority-arn")
        if self.certificate_authority_arn and not self.is_private and not self.ownership_certificate_arn:
            raise ValueError(
                "delegation:certificate-authority-arn needs delegation:ownership-certificate-arn in the regional "
                "profile, because API Gateway requires a public certificate in addition to a private one"
            )
        return self


def is_an_example(address_range: str) -> bool:
    """Return whether a range is in the blocks that are reserved for documentation."""
    network = ipaddress.IPv4Network(address_range)
    return any(network.subnet_of(block) for block in _EXAMPLES)


_NEEDED = ("gateway_polaris_url", "gateway_vpc_endpoint", "gateway_domain_name", "gateway_certificate_arn")
_OF_THE_LISTENER = ("gateway_listener_arn", "gateway_vpc_id", "gateway_endpoint_addresses")


class GatewayDeploymentSettings(BaseModel):
    """The part of Settings about the gateway (docs/gateway-rule.md, docs/settings.md)."""

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
            raise ValueError(
                "set both delegation:gateway-subnet-ids and delegation:gateway-security-group-ids, or neither"
            )
        if missing:
            names = ", ".join(f"delegation:{name.replace('_', '-')}" for name in missing)
            raise ValueError(f"the gateway needs {names}. Set them, or set delegation:gateway to false")
        if self.gateway_token_public_key and self.gateway_token_jwks_url:
            raise ValueError(
                "set only one of delegation:gateway-token-public-key and delegation:gateway-token-jwks-url"
            )
        if self.gateway_token_public_key:
            public_key(self.gateway_token_public_key)
        return self
