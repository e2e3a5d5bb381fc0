"""The operator's limits as far as a command knows them: those of a deployment's files."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from delegation.cli.config.service import PROPERTIES, as_text, context_of
from delegation.operations.behaviors.foreign import foreign_locations
from delegation.storage.locations import ForeignLocations
from delegation.upkeep.rules.limits import TYPES, UpkeepLimits
from delegation.upkeep.rules.types import PolicyType

CdkOption = Annotated[
    Path, typer.Option("--cdk", metavar="FILE", help="The cdk.json with the operator's limits, if it exists.")
]
StageFileOption = Annotated[
    Path | None,
    typer.Option("--stage-file", metavar="FILE", show_default=False, help="The file of the stage, as for cdk."),
]


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """The limits, and the file that they are from; without one the defaults, with every type allowed."""

    limits: UpkeepLimits
    source: str | None


def given_properties(cdk: Path, stage_file: Path | None) -> tuple[str, dict[str, str]] | None:
    """Return the service's properties and the file that they are from, None without one; raises SettingsInvalid."""
    layers = {str(path): context_of(path) for path in (cdk, stage_file) if path is not None and _is_given(path, cdk)}
    found: tuple[str, Mapping[str, Any]] | None = None
    for name, context in layers.items():
        if context.get(PROPERTIES):
            found = name, context[PROPERTIES]
    return found and (found[0], {name: as_text(value) for name, value in found[1].items()})


def given_foreign(cdk: Path, stage_file: Path | None) -> ForeignLocations:
    """Return the locations of others by a deployment's files; raises SettingsInvalid, InvalidProperty."""
    found = given_properties(cdk, stage_file)
    return foreign_locations(found[1] if found else {})


def known_limits(cdk: Path, stage_file: Path | None) -> KnownLimits:
    """Read the limits; raises SettingsInvalid, InvalidProperty."""
    found = given_properties(cdk, stage_file)
    if found is None:
        return KnownLimits(replace(UpkeepLimits(), types=frozenset(PolicyType)), None)
    source, properties = found
    return KnownLimits(UpkeepLimits.from_properties(properties), source)


def _is_given(path: Path, cdk: Path) -> bool:
    return path != cdk or path.is_file()


def note_of(known: KnownLimits) -> str:
    """Return a sentence about where the limits are from."""
    if known.source is None:
        return f"The operator's limits are not known here: no --cdk file. A deployment executes what its {TYPES} names."
    return f"The operator's limits are those of {known.source}."
