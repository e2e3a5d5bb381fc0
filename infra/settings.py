"""The settings of a deployment: the `delegation:*` context of cdk.json or `cdk -c`, validated."""

import ipaddress
import re
import ssl
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from delegation.edge.trust.authorizer import parse_name, parse_serials
from delegation.edge.trust.settings import AuthorizerSettings, readable_by, separated_by
from delegation.edge.trust.tokens import public_key
from delegation.misspellings import misspelled
from delegation.notifications.https import tls
from delegation.polaris.settings import PolarisSettings
from delegation.removal.choice import INLINE_MAX_FILES
from delegation.tasks.life.policy import InvalidProperty
from delegation.wiring.types import policies_of
from infra.environment.functions import FUNCTIONS, check_properties, deployed_functions, notifies
from infra.network_settings import (
    CommaSeparated,
    FormerApplications,
    GatewayDeploymentSettings,
    GradualDeployment,
    NetworkSettings,
    is_an_example,
)
from infra.package.parts import PYTHON_VERSION, Processor

PREFIX = "delegation:"
_PROPERTIES: Final = ("delegation.", "polaris.")
"""What the names of properties begin with."""
_ADDRESSES: Final = (
    "domain_name",
    "token_issuer",
    "token_jwks_url",
    "token_next_issuer",
    "token_next_jwks_url",
    "polaris_url",
    "polaris_token_url",
    "gateway_polaris_url",
    "gateway_domain_name",
    "gateway_token_jwks_url",
)
LOG_RETENTION_DAYS: Final = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653)
"""Retention times that CloudWatch Logs offers: those up to two years, five years and ten."""
NO_PACKAGE: Final = "none"
"""The value of `delegation:package` for templates without code that runs."""
_RESERVED: Final = re.compile(r"(?:^|\.)(?:example|test|invalid|localhost|example\.(?:com|org|net))\.?$")
"""RFC 2606, Sections 2 and 3: domains that belong to nobody."""
_PRIVATE_NAMES: Final = (".internal", ".local", ".home.arpa")
AUTHORIZER: Final = "authorizer"
_FIRST_RELEASE: Final = 8
"""The first Spark-only release of EMR; its images have PYTHON_VERSION."""
_VARIABLE: Final = re.compile(r"DELEGATION_([A-Z0-9_]+)")
_IN_S3: Final = "s3://"
_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?::[A-Za-z_]\w*)?", re.ASCII)
_EVENT_BUS: Final = r"^(?:arn:[^:]+:events:[^:]+:\d{12}:event-bus/)?[/.\-_A-Za-z0-9]{1,256}$"


def _setting(variable: re.Match[str]) -> str:
    """Return the context key of one of the authorizer's variables, `delegation:client-ca` of DELEGATION_CLIENT_CA."""
    return PREFIX + variable[1].lower().replace("_", "-")


def _field(key: str) -> str:
    """Return the field of a context key, `domain_name` of delegation:domain-name."""
    return key.removeprefix(PREFIX).replace("-", "_")


def _refused(key: str, fields: Iterable[str]) -> InitErrorDetails:
    """Return the error for a context key that is no setting, with the place where it belongs."""
    name = key.removeprefix(PREFIX)
    near = misspelled(_field(key), fields)
    if name.startswith(_PROPERTIES):
        text = f"{name} is a property. Put it inside {PREFIX}properties"
    elif "." in name:
        text = f"{key} is not a setting. The property delegation.{name} belongs inside {PREFIX}properties"
    elif near is not None:
        text = f"{key} is not a setting. Did you mean {PREFIX}{near.replace('_', '-')}?"
    else:
        text = f"{key} is not a setting. docs/settings.md lists the settings"
    return InitErrorDetails(type=PydanticCustomError("unknown_setting", "{text}", {"text": text}), input=None)


def _host(address: str) -> str:
    """Return the host of a URL, or the domain itself; an issuer may be a name without either."""
    host = urlsplit(address).hostname if "://" in address else address
    return (host or "").lower()


def _is_private(host: str) -> bool:
    """Return whether a host is an address or a name that only private networks have."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host.endswith(_PRIVATE_NAMES)


def _read_authorities(text: str) -> None:
    try:
        tls(text)
    except (ssl.SSLError, ValueError):
        raise ValueError("must be PEM certificates of authorities") from None


Name = Annotated[str, readable_by(parse_name)]
Names = Annotated[tuple[Name, ...], separated_by(";")]
"""Distinguished names: a list, or text with semicolons, because a name has commas."""
Serials = Annotated[tuple[Annotated[str, readable_by(parse_serials)], ...], separated_by(",")]
PublicKey = Annotated[str, readable_by(public_key)]
Authorities = Annotated[str, readable_by(_read_authorities)]


class Settings(NetworkSettings, GatewayDeploymentSettings):
    """The settings of one deployment; docs/settings.md states what each one means.

    The context key of `log_retention_days` is `delegation:log-retention-days`.
    """

    stage: str = Field("prod", pattern=r"^[a-z][a-z0-9-]{0,19}$")
    realm: str = Field(min_length=1)
    domain_name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]+\.[a-z]{2,}$")
    truststore_key: str = "truststore.pem"
    truststore_version: str | None = None
    client_subject: Name = Field(min_length=1)
    client_issuer: Name = Field(min_length=1)
    client_serials: Serials = ()
    client_crl: str | None = None
    client_ca: str | None = None
    client_next_subject: Name | None = None
    client_next_issuer: Name | None = None
    client_next_serials: Serials = ()
    revocation_lists: CommaSeparated = ()
    revocation_versions: CommaSeparated = ()
    revocation_outdated: str = "refuse"
    revocation_max_age_seconds: int = 3600
    operator_subjects: Names = ()
    operator_issuer: Name | None = None
    operator_next_issuer: str | None = None
    operator_client_ids: CommaSeparated = ()
    operator_scope: str = "manage_tasks"
    operators_may_submit: bool = False
    polaris_may_manage: bool = False
    token_issuer: str = Field(min_length=1)
    token_jwks_url: str | None = Field(None, pattern=r"^https://")
    token_public_key: PublicKey | None = None
    token_next_public_key: PublicKey | None = None
    token_audience: str | None = None
    token_client_id: str | None = None
    token_next_issuer: str | None = None
    token_next_jwks_url: str | None = Field(None, pattern=r"^https://")
    token_next_audience: str | None = None
    token_next_client_id: str | None = None
    token_binding: str = "optional"  # noqa: S105 - no password
    token_scope: str = "execute_tasks"  # noqa: S105 - the name of a scope
    polaris_url: str = Field(pattern=r"^https://")
    polaris_scope: str = "PRINCIPAL_ROLE:ALL"
    polaris_token_url: str | None = Field(None, pattern=r"^https://")
    polaris_secret_rotation_days: int | None = Field(None, ge=1, le=999)
    inline_max_files: int = Field(INLINE_MAX_FILES, ge=0)
    synchronous_budget_seconds: int = Field(25, ge=1, le=28)
    log_retention_days: int = Field(90, ge=1)
    plan_retention_days: int = Field(365, ge=30)
    task_indexes: int = Field(5, ge=1, le=5)
    emr_release_label: str = Field("emr-spark-8.0.0", pattern=r"^emr-spark-\d+\.\d+\.\d+$")
    emr_jars: CommaSeparated = (
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        "org.apache.iceberg:iceberg-aws-bundle:1.11.0",
    )
    emr_max_vcpu: int = Field(64, ge=4)
    emr_max_memory_gb: int = Field(256, ge=16)
    emr_idle_minutes: int = Field(5, ge=1, le=10080)
    emr_max_runs: int = Field(15, ge=1, le=1000)
    emr_queue_minutes: int = Field(360, ge=15, le=720)
    emr_former_application_ids: FormerApplications = ()
    emr_subnet_ids: CommaSeparated = ()
    emr_security_group_ids: CommaSeparated = ()
    reserved_concurrency: CommaSeparated = ()
    behaviors: CommaSeparated = ()
    added_task_types: CommaSeparated = ()
    package: str = "build/package"
    architecture: Processor = Processor.ARM64
    alarm_topic_arn: str | None = Field(None, pattern=r"^arn:[^:]+:sns:[^:]+:\d{12}:[A-Za-z0-9_-]{1,256}$")
    gradual_deployment: GradualDeployment = GradualDeployment.OFF
    probe_secret_arn: str | None = Field(None, pattern=r"^arn:[^:]+:secretsmanager:[^:]+:\d{12}:secret:\S+$")
    runbook_url: str | None = Field(None, pattern=r"^https://\S+$")
    event_bus: str = Field("default", pattern=_EVENT_BUS)
    callback_authorities: Authorities | None = None
    properties: dict[str, str]

    @property
    def notifies(self) -> bool:
        return notifies(self.properties)

    @property
    def has_events(self) -> bool:
        """Whether the end of a task is an event on EventBridge."""
        return policies_of(self.properties).notifications.events

    @property
    def has_callbacks(self) -> bool:
        """Whether a request may pick a callback."""
        return bool(policies_of(self.properties).notifications.callbacks)

    @property
    def has_spark(self) -> bool:
        """Whether Spark jobs run in a network from which they reach Polaris."""
        return self.has_vpc or bool(self.emr_subnet_ids)

    @property
    def unreachable_issuers(self) -> tuple[str, ...]:
        """The hosts whose keys the authorizer cannot fetch: it is in a new VPC, which has no way to the internet.

        Polaris' own host and private names and addresses are reached over a peering or a transit gateway.
        """
        if not self.is_private or self.vpc_id or self.nat_gateways or AUTHORIZER not in self.functions_in_vpc:
            return ()
        hosts = [_host(url) for url in (self.token_jwks_url, self.token_next_jwks_url) if url]
        return tuple(
            issuer for issuer in dict.fromkeys(hosts) if issuer != _host(self.polaris_url) and not _is_private(issuer)
        )

    @property
    def concurrency(self) -> dict[str, int]:
        return {
            name.strip(): int(number)
            for name, _, number in (reserve.partition("=") for reserve in self.reserved_concurrency)
        }

    @property
    def is_deployable(self) -> bool:
        """Whether the templates have code that runs."""
        return self.package != NO_PACKAGE

    def revocation_urls(self, truststore: str) -> tuple[str, ...]:
        """Return the URLs of the revocation lists; `truststore` is the name of the trust store bucket."""
        return tuple(url if url.startswith(_IN_S3) else f"{_IN_S3}{truststore}/{url}" for url in self.revocation_lists)

    @field_validator("functions_in_vpc")
    @classmethod
    def _name_lambdas(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in FUNCTIONS:
                raise ValueError(f"{name!r} is not one of the functions {', '.join(sorted(FUNCTIONS))}")
        return value

    @field_validator("reserved_concurrency")
    @classmethod
    def _limit_lambdas(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for reserve in value:
            name, _, number = reserve.partition("=")
            if name.strip() not in FUNCTIONS or not number.strip().isdecimal() or int(number) < 1:
                raise ValueError(f"{reserve!r} must be a function and a number of 1 or more, such as run_inline=20")
        return value

    @field_validator("log_retention_days")
    @classmethod
    def _is_offered(cls, value: int) -> int:
        if value not in LOG_RETENTION_DAYS:
            raise ValueError(f"is {value}, but CloudWatch Logs offers only {', '.join(map(str, LOG_RETENTION_DAYS))}")
        return value

    @field_validator("emr_release_label")
    @classmethod
    def _image_has_the_python_of_the_package(cls, value: str) -> str:
        if int(value.removeprefix("emr-spark-").partition(".")[0]) < _FIRST_RELEASE:
            raise ValueError(
                f"{value} has no Python {PYTHON_VERSION}, for which the package is built; use emr-spark-8.0.0"
            )
        return value

    @field_validator("behaviors")
    @classmethod
    def _name_functions(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _FUNCTION.fullmatch(name):
                raise ValueError(f"{name!r} must be a module or module:function, such as acme.behaviors:purge_views")
        return value

    @model_validator(mode="after")
    def _no_address_is_an_example(self) -> Self:
        """Refuse the reserved domains and addresses of cdk.json in what is deployed."""
        for name in _ADDRESSES:
            value = getattr(self, name)
            if self.is_deployable and value and _RESERVED.search(_host(value)):
                setting = PREFIX + name.replace("_", "-")
                raise ValueError(
                    f"{setting} still has the example value {value}. Set your own value in cdk.json or with -c"
                )
        for cidr in self.caller_cidrs:
            if self.is_deployable and is_an_example(cidr):
                raise ValueError(
                    f"delegation:caller-cidrs still has the example value {cidr}. Set Polaris' address range"
                )
        return self

    @model_validator(mode="after")
    def _polaris_can_be_called(self) -> Self:
        """Apply the rules of the client of Polaris, which a function would report only in its log."""
        given = {
            "DELEGATION_POLARIS_URL": self.polaris_url,
            "DELEGATION_POLARIS_TOKEN_URL": self.polaris_token_url,
            "DELEGATION_POLARIS_SCOPE": self.polaris_scope,
            "DELEGATION_POLARIS_SECRET_ARN": "created by the data stack",
            "DELEGATION_REALM": self.realm,
        }
        PolarisSettings.model_validate({name: value for name, value in given.items() if value is not None})
        if self.polaris_secret_rotation_days is not None and self.polaris_token_url is not None:
            raise ValueError(
                "delegation:polaris-secret-rotation-days works only if Polaris itself issues the tokens. Remove it, or "
                "remove delegation:polaris-token-url"
            )
        return self

    @model_validator(mode="after")
    def _versions_belong_to_lists(self) -> Self:
        if self.revocation_versions and len(self.revocation_versions) != len(self.revocation_lists):
            raise ValueError(
                "delegation:revocation-versions must have one version for each list of delegation:revocation-lists"
            )
        return self

    @model_validator(mode="after")
    def _callers_can_be_verified(self) -> Self:
        """Apply the authorizer's own rules, which it would otherwise report only in its log, refusing every caller."""
        given = {name: getattr(self, name, None) for name in AuthorizerSettings.model_fields} | {
            "client_serials": ",".join(self.client_serials),
            "client_next_serials": ",".join(self.client_next_serials),
            "revocation_lists": self.revocation_urls("truststore"),
        }
        fields = AuthorizerSettings.model_fields.items()
        try:
            # By variable, so that errors name it.
            AuthorizerSettings.model_validate(
                {field.alias: given[name] for name, field in fields if given[name] is not None}
            )
        except ValidationError as error:
            texts = [": ".join([*map(str, each["loc"][:1]), each["msg"]]) for each in error.errors()]
            raise ValueError(_VARIABLE.sub(_setting, "; ".join(texts))) from None
        return self

    @model_validator(mode="after")
    def _properties_are_of_the_service(self) -> Self:
        try:
            check_properties(self.properties, self.added_task_types)
        except InvalidProperty as error:
            raise ValueError(f"delegation:properties: {error}") from error
        return self

    @model_validator(mode="after")
    def _reserves_are_of_deployed_functions(self) -> Self:
        """Runs after the properties were checked, which decide what is deployed."""
        for name in sorted(self.concurrency.keys() - deployed_functions(self.properties).keys()):
            raise ValueError(
                f"delegation:reserved-concurrency names {name}, which these settings do not deploy: remove it, or set "
                "delegation.notifications.* in delegation:properties"
            )
        return self

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> Self:
        """Return the settings in a context; raise ValidationError that names what is missing, wrong or unknown. Keys of
        the CDK and of other apps are ignored."""
        own = {key: value for key, value in context.items() if key.startswith((PREFIX, *_PROPERTIES))}
        fields = cls.model_fields
        if unknown := [key for key in own if not key.startswith(PREFIX) or _field(key) not in fields]:
            raise ValidationError.from_exception_data(cls.__name__, [_refused(key, fields) for key in unknown])
        return cls.model_validate({_field(key): value for key, value in own.items() if value not in (None, "")})
