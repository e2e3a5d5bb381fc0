"""The operator's limits, from the running deployment or from a deployment's files."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from delegation.cli.calls import option
from delegation.cli.connection import Connection
from delegation.cli.deployment.config import PROPERTIES, as_text, context_of
from delegation.cli.errors import CommandError
from delegation.removal.requests import foreign_locations
from delegation.storage.locations import ForeignLocations
from delegation.upkeep.rules.limits import TYPES, UpkeepLimits
from delegation.upkeep.rules.model import PolicyType
from polaris_common.errors import DelegationError

CdkOption = Annotated[
    Path, typer.Option("--cdk", metavar="FILE", help="The cdk.json with the operator's limits, if it exists.")
]
InsteadOption = Annotated[
    Path | None,
    option("--cdk", "A cdk.json with other limits than the running deployment's.", "FILE"),
]
StageFileOption = Annotated[Path | None, option("--stage-file", "The stage's settings file, as for cdk.", "FILE")]
DEFAULT_CDK = Path("cdk.json")


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """The operator's properties and limits with their source (None: defaults), and the policy file's catalogs."""

    properties: Mapping[str, str]
    limits: UpkeepLimits
    source: str | None
    note: str
    file_catalogs: tuple[str, ...] = ()

    def require_file_for(self, catalog: str, given: Path | None) -> None:
        """Raise CommandError if the deployment has a catalog's policies in a file that the command does not know."""
        if given is None and catalog in self.file_catalogs:
            raise CommandError(
                f"for the catalog {catalog}, the deployment executes the policies of its policy file, not Polaris'",
                "Name the policy file of the deployment's package with --policy-file FILE.",
                code="POLICY_FILE_UNKNOWN",
            )


def given_properties(cdk: Path, stage_file: Path | None) -> tuple[str, dict[str, str]] | None:
    """Return the service's properties and their file, None without one. Raises SettingsInvalid."""
    given = [path for path in (cdk, stage_file) if path is not None and (path != DEFAULT_CDK or path.is_file())]
    layers = {str(path): context_of(path) for path in given}
    last: tuple[str, Mapping[str, Any]] | None = None
    for name, context in layers.items():
        if context.get(PROPERTIES):
            last = name, context[PROPERTIES]
    return last and (last[0], {name: as_text(value) for name, value in last[1].items()})


def given_foreign(cdk: Path, stage_file: Path | None) -> ForeignLocations:
    """Return the foreign locations by a deployment's files. Raises SettingsInvalid, InvalidProperty."""
    given = given_properties(cdk, stage_file)
    return foreign_locations(given[1] if given else {})


def known_limits(connection: Connection, cdk: Path | None, stage_file: Path | None) -> KnownLimits:
    """Return the limits of named files, else of the running deployment, else of a cdk.json. Raises SettingsInvalid."""
    why = ""
    if cdk is None and stage_file is None:
        try:
            return _of_deployment(connection)
        except DelegationError as error:
            why = f" They could not be read from the running deployment: {str(error).splitlines()[0]}."
    given = given_properties(cdk or DEFAULT_CDK, stage_file)
    if given is None:
        text = f"The operator's limits are not known here.{why} A deployment executes only the policy types in {TYPES}."
        return KnownLimits({}, replace(UpkeepLimits(), types=frozenset(PolicyType)), None, text)
    source, properties = given
    text = f"The operator's limits come from {source}.{why}"
    return KnownLimits(properties, UpkeepLimits.from_properties(properties), source, text)


def _of_deployment(connection: Connection) -> KnownLimits:
    if connection.uses_stack() and connection.named_polaris() is not None:
        raise CommandError("edge_url (DELEGATION_EDGE_URL) is not set", "Set it.", code="NOT_CONNECTED")
    client = connection.operator_client().without_repeats()
    health = client.health()
    shown = health.maintenance
    if shown is None:
        raise CommandError(f"release {health.version} does not return its limits", "Name --cdk.", code="NOT_CONNECTED")
    if shown.error_code is not None:
        raise CommandError("its policy file cannot be read", "Build the package again.", code=shown.error_code)
    source = client.operations.base_url
    text = f"The operator's limits come from the running deployment, {source}."
    limits = UpkeepLimits.from_properties(shown.properties)
    return KnownLimits(shown.properties, limits, source, text, shown.policy_file or ())
