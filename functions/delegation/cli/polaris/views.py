"""Whether anybody can drop a view of a catalog: Polaris 1.7 refuses it unless it may delete the metadata of views."""

from collections.abc import Mapping
from typing import Final

from delegation.cli.polaris.setup import SetupKind, SetupStep
from delegation.polaris.management import PolarisManagement

PURGES_VIEWS: Final = "polaris.config.purge-view-metadata-on-drop"
MAY_PURGE: Final = "polaris.config.drop-with-purge.enabled"


def are_droppable(properties: Mapping[str, str]) -> bool:
    """Whether a catalog with these properties lets views be dropped; the first is on by default, the second off."""
    return properties.get(PURGES_VIEWS, "true").lower() == "false" or properties.get(MAY_PURGE, "").lower() == "true"


def steps_to_drop_views(polaris: PolarisManagement, catalog: str) -> list[SetupStep]:
    """Return the step that lets views be dropped, none if they can be; their metadata files then stay."""
    if are_droppable(polaris.properties_of(catalog)):
        return []
    return [SetupStep(SetupKind.VIEWS, f"set {PURGES_VIEWS} = false for catalog {catalog}")]


def apply_to_views(polaris: PolarisManagement, catalog: str) -> None:
    """Let views of a catalog be dropped."""
    polaris.set_property(catalog, PURGES_VIEWS, "false")
