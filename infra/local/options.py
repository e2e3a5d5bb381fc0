"""The options of a local stack."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from delegation.edge.trust.tokens import public_key
from delegation.gateway.drop.settings import DropSettings
from delegation.idempotency.settings import KeySettings
from delegation.polaris.requests import DEFAULT_SCOPE
from delegation.tasks.life.policy import InvalidProperty, require_known_types
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.wiring.types import TYPES, policies_of
from infra.environment.context import default_properties
from infra.local.errors import CannotStartError
from infra.local.given_polaris import GivenPolaris, GivenPrincipal

DEFAULT_REALM = "POLARIS"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """Options of `delegation local up`, whose help describes them; every part is started unless one is given.

    - `state_dir`: only one stack can use a folder at a time.
    - `polaris_realm`: the service's own too. `polaris_public_key`: without it the gateway honours no keys.
    - `properties`: those that differ from cdk.json (Delegation Service proposal, "Task Retry").
    """

    state_dir: Path = Path(".local")
    port: int = 0
    polaris_url: str | None = None
    polaris_client_id: str | None = None
    polaris_client_secret: SecretStr | None = None
    polaris_service_client_id: str | None = None
    polaris_service_client_secret: SecretStr | None = None
    polaris_scope: str = DEFAULT_SCOPE
    polaris_service_scope: str | None = None
    polaris_realm: str = DEFAULT_REALM
    warehouse: str = "lake"
    catalog: Literal["memory", "persistence"] = "memory"
    s3_endpoint: str | None = None
    dynamodb_endpoint: str | None = None
    versioned: bool = False
    inline_max_files: int | None = None
    gateway: bool = False
    polaris_public_key: Path | None = None
    sweep_seconds: float = 60.0
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        polaris = (self.polaris_url, self.polaris_client_id, self.polaris_client_secret)
        if any(polaris) and not all(polaris):
            raise CannotStartError(
                "Polaris", "--polaris-url, --polaris-client-id and --polaris-client-secret must be given together"
            )
        if self.polaris_url and self.catalog != "memory":
            raise CannotStartError("Polaris", "--catalog is of the stand-in, so it cannot be given with --polaris-url")
        service = (self.polaris_service_client_id, self.polaris_service_client_secret)
        if any(service) and not (all(service) and self.polaris_url):
            raise CannotStartError(
                "Polaris",
                "--polaris-service-client-id and --polaris-service-client-secret must be given together, and only with "
                "--polaris-url",
            )
        if self.polaris_public_key is not None and not (self.gateway and self.polaris_url):
            raise CannotStartError("the gateway", "--polaris-public-key is only for --gateway with --polaris-url")
        try:
            policies_of(self.all_properties())
            KeySettings.from_properties(self.all_properties())
            DropSettings.from_properties(self.all_properties())
            UpkeepSettings.from_properties(self.all_properties())
            UpkeepLimits.from_properties(self.all_properties())
            require_known_types(self.all_properties(), TYPES)
        except InvalidProperty as exc:
            # Checked before the start, because a function would report it only in its log.
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
            raise CannotStartError("the gateway", f"{self.polaris_public_key} is no public key in PEM") from exc
        return text

    def all_properties(self) -> dict[str, str]:
        """Return the properties of cdk.json, overridden by the given ones."""
        return {**default_properties(), **self.properties}
