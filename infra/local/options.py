"""The options of a local stack."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import SecretStr

from delegation.edge.trust.tokens import public_key
from delegation.polaris.requests import DEFAULT_SCOPE
from delegation.tasks.life.policy import InvalidProperty
from infra.environment.context import default_properties
from infra.environment.functions import check_properties
from infra.local.errors import CannotStartError
from infra.local.given_polaris import GivenPolaris, GivenPrincipal


def _option(text: str, *flag: str, **settings: Any) -> Any:
    return typer.Option(*flag, show_default=False, help=text, **settings)


def _secret(text: str, variable: str) -> Any:
    return _option(text, envvar=variable, parser=SecretStr, metavar="TEXT")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """The options of `delegation local up`; every part is started unless one is given.

    - `state_dir`: only one stack can use a folder at a time.
    - `polaris_public_key`: without it the gateway honours no keys of a given Polaris.
    """

    polaris_url: Annotated[str | None, _option("URL of a real Polaris (…/api/catalog).")] = None
    polaris_client_id: Annotated[str | None, _option("Client id of a principal that owns the tables.")] = None
    polaris_client_secret: Annotated[
        SecretStr | None, _secret("Client secret of that principal.", "DELEGATION_POLARIS_CLIENT_SECRET")
    ] = None
    polaris_service_client_id: Annotated[
        str | None, _option("Client id of the service's principal. Default: the owner's.")
    ] = None
    polaris_service_client_secret: Annotated[
        SecretStr | None,
        _secret("Client secret of the service's principal.", "DELEGATION_POLARIS_SERVICE_CLIENT_SECRET"),
    ] = None
    polaris_scope: Annotated[str, typer.Option(help="Scope of the principals' tokens.")] = DEFAULT_SCOPE
    polaris_service_scope: Annotated[
        str | None, _option("Scope of the service's tokens. Default: --polaris-scope.")
    ] = None
    polaris_realm: Annotated[str, typer.Option(help="The realm in Polaris.")] = "POLARIS"
    warehouse: Annotated[str, typer.Option(help="The catalog's name in Polaris.")] = "lake"
    catalog: Annotated[
        Literal["memory", "persistence"],
        typer.Option(
            help="Where the local Polaris (a stand-in) keeps its catalog: memory, or persistence (docs/persistence.md)."
        ),
    ] = "memory"
    s3_endpoint: Annotated[str | None, _option("Your own S3 endpoint. The AWS_* variables set the keys.")] = None
    dynamodb_endpoint: Annotated[
        str | None, _option("Your own DynamoDB endpoint. The AWS_* variables set the keys.")
    ] = None
    port: Annotated[int, typer.Option(help="Port of the HTTPS endpoint; 0 picks a free port.", min=0, max=65535)] = 0
    state_dir: Annotated[Path, typer.Option(help="Folder for stack.json, certificates and logs.")] = Path(".local")
    versioned: Annotated[
        bool,
        typer.Option("--versioned", help="Enable versioning of the tables' bucket."),
    ] = False
    inline_max_files: Annotated[int | None, _option("Spark purges tables with more than N files.", min=0)] = None
    gateway: Annotated[bool, typer.Option("--gateway", help="Start the gateway too (docs/gateway-rule.md).")] = False
    polaris_public_key: Annotated[
        Path | None, _option("Public key (PEM file) that verifies a real Polaris' tokens, for --gateway.")
    ] = None
    properties: Mapping[str, str] = field(default_factory=dict)
    """Those that differ from cdk.json (Delegation Service proposal, "Task Retry")."""
    sweep_seconds: Annotated[float, typer.Option(help="Seconds between two runs of the sweeper.", min=1)] = 60

    def __post_init__(self) -> None:
        polaris = (self.polaris_url, self.polaris_client_id, self.polaris_client_secret)
        if any(polaris) and not all(polaris):
            raise CannotStartError(
                "Polaris", "--polaris-url, --polaris-client-id and --polaris-client-secret must be given together"
            )
        if self.polaris_url and self.catalog != "memory":
            raise CannotStartError(
                "Polaris", "--catalog configures the stand-in, so it cannot be given with --polaris-url"
            )
        service = (self.polaris_service_client_id, self.polaris_service_client_secret)
        if any(service) and not (all(service) and self.polaris_url):
            raise CannotStartError(
                "Polaris",
                "--polaris-service-client-id and --polaris-service-client-secret must be given together, and only with "
                "--polaris-url",
            )
        if self.polaris_public_key is not None and not (self.gateway and self.polaris_url):
            raise CannotStartError("the gateway", "--polaris-public-key needs --gateway and --polaris-url")
        try:
            check_properties(self.all_properties())
        except InvalidProperty as exc:
            raise CannotStartError("the stack", str(exc)) from exc

    def given_polaris(self) -> GivenPolaris | None:
        """Return the Polaris of the options, None for the stand-in."""
        if not (self.polaris_url and self.polaris_client_id and self.polaris_client_secret):
            return None
        owner = GivenPrincipal(
            "owner",
            self.polaris_client_id,
            self.polaris_client_secret,
            self.polaris_scope,
            "--polaris-client-id and --polaris-client-secret",
        )
        service = replace(owner, role="service", scope=self.polaris_service_scope or self.polaris_scope)
        if self.polaris_service_client_id and self.polaris_service_client_secret:
            service = replace(
                service,
                client_id=self.polaris_service_client_id,
                client_secret=self.polaris_service_client_secret,
                options="--polaris-service-client-id and --polaris-service-client-secret",
            )
        return GivenPolaris(self.polaris_url, self.warehouse, self.polaris_realm, owner, service)

    def public_key(self) -> str | None:
        """Return the PEM that verifies a given Polaris' tokens; raises CannotStartError if the file has none."""
        if self.polaris_public_key is None:
            return None
        try:
            text = self.polaris_public_key.read_text(encoding="utf-8")
            public_key(text)
        except (OSError, ValueError) as exc:
            raise CannotStartError("the gateway", f"{self.polaris_public_key} is not a public key in PEM") from exc
        return text

    def all_properties(self) -> dict[str, str]:
        """Return the properties of cdk.json, overridden by the given ones."""
        return {**default_properties(), **self.properties}
