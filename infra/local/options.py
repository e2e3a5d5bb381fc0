"""What a person decides about a local stack."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from delegation.operations.purge.behavior.limits import policies_of
from delegation.tasks.life.policy import InvalidProperty
from infra.environment import default_properties
from infra.local.errors import CannotStartError


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """Options of `delegation local up`; without any, everything is the stack's own and on free ports.

    - `state_dir`: stack.json, certificates and logs; one stack at a time uses it.
    - `port`: of the HTTPS front, 0 for a free one.
    - `polaris_*`: a real Polaris instead of the stand-in, and a principal there that owns the tables and may purge.
    - `warehouse`: the catalog's name, as in Polaris.
    - `s3_endpoint`, `dynamodb_endpoint`: instead of the stack's own; keys are then those of the usual AWS variables.
    - `inline_max_files`: tables with more files are purged by Spark.
    - `sweep_seconds`: how often the sweeper is called.
    - `properties`: of the proposal (delegation-service.txt, "Task Retry"), instead of their values in cdk.json.
    """

    state_dir: Path = Path(".local")
    port: int = 0
    polaris_url: str | None = None
    polaris_client_id: str | None = None
    polaris_client_secret: SecretStr | None = None
    warehouse: str = "lake"
    s3_endpoint: str | None = None
    dynamodb_endpoint: str | None = None
    inline_max_files: int | None = None
    sweep_seconds: float = 60.0
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        polaris = (self.polaris_url, self.polaris_client_id, self.polaris_client_secret)
        if any(polaris) and not all(polaris):
            raise CannotStartError(
                "Polaris", "--polaris-url, --polaris-client-id and --polaris-client-secret go together"
            )
        try:
            policies_of(self.all_properties())
        except InvalidProperty as exc:
            # Said here, for the functions would only say so in their logs.
            raise CannotStartError("the stack", str(exc)) from exc

    def all_properties(self) -> dict[str, str]:
        """The properties of cdk.json with those given in their place."""
        return {**default_properties(), **self.properties}
