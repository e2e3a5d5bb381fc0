"""`operation_parameters.properties` as purge options: known names are checked, unknown ones kept without effect."""

from collections.abc import Mapping
from typing import ClassVar, Literal, cast

from delegation.errors import DelegationError
from delegation.purge.behavior.parameters import DRY_RUN
from delegation.purge.context import PurgeOptions

_CHOICES: dict[str, tuple[str, ...]] = {
    "outside": ("keep", "refuse", "delete"),
    "uncovered": ("refuse", "keep"),
    "shared": ("subtract", "refuse"),
    DRY_RUN: ("false", "true"),
}


class InvalidPurgeProperty(DelegationError):
    """A property of the purge has a value that it cannot have."""

    code: ClassVar[str] = "INVALID_REQUEST"

    def __init__(self, name: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"operation_parameters.properties.{name}: must be one of {', '.join(allowed)}")
        self.name = name


def options_of(properties: Mapping[str, str]) -> PurgeOptions:
    """The options that a request's properties choose; InvalidPurgeProperty names the one that is wrong.

    The proposal's own examples (`skipTrash`, `deleteMarkerFiles`) are accepted: an object store has neither.
    """
    for name, allowed in _CHOICES.items():
        if properties.get(name, allowed[0]) not in allowed:
            raise InvalidPurgeProperty(name, allowed)
    return PurgeOptions(
        outside=cast("Literal['keep', 'refuse', 'delete']", properties.get("outside", "keep")),
        uncovered=cast("Literal['refuse', 'keep']", properties.get("uncovered", "refuse")),
        shared=cast("Literal['subtract', 'refuse']", properties.get("shared", "subtract")),
        dry_run=properties.get(DRY_RUN) == "true",
    )
