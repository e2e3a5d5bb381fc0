"""The operator's setting `delegation.foreign-locations`: what belongs to others, whatever a catalog states."""

from collections.abc import Mapping
from typing import Final

from delegation.errors import GuardRefused
from delegation.storage.locations import ForeignLocations
from delegation.tasks.life.policy import InvalidProperty

FOREIGN_LOCATIONS: Final = "delegation.foreign-locations"
_NONE: Final = "none"
_MOST: Final = 100


def foreign_locations(properties: Mapping[str, str]) -> ForeignLocations:
    """Return the locations where nothing is deleted; raise InvalidProperty."""
    text = properties.get(FOREIGN_LOCATIONS, _NONE).strip()
    places = [] if text == _NONE else [one.strip() for one in text.split(",")]
    for one in places:
        if not one.endswith("/"):
            raise InvalidProperty(
                FOREIGN_LOCATIONS, f"{one!r} is not a place such as s3://lake/theirs/, which ends in /"
            )
    if len(places) > _MOST:
        raise InvalidProperty(FOREIGN_LOCATIONS, f"names more than {_MOST} places")
    try:
        return ForeignLocations.of(places)
    except GuardRefused as error:
        raise InvalidProperty(FOREIGN_LOCATIONS, str(error)) from None
