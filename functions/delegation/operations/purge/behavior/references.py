"""The operator's settings for the reference index, `delegation.purge.reference-*`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self

from delegation.tasks.life.policy import InvalidProperty
from delegation.timestamps import parse_duration

_MAX_AGE: Final = "reference-max-age"
_INTERVAL: Final = "reference-refresh-interval"
_CATALOGS: Final = "reference-catalogs"
REFERENCE_SETTINGS: Final = frozenset({_MAX_AGE, _INTERVAL, _CATALOGS})
"""Their names after `delegation.purge.`."""


@dataclass(frozen=True, slots=True)
class ReferenceSettings:
    """How old the index may be when a purge relies on it, and which catalogs are checked besides the task's own.

    `refresh_interval` is how often the recurring task refreshes it; a purge that finds it older than `max_age` does so
    itself.
    """

    max_age: timedelta = timedelta(minutes=15)
    refresh_interval: timedelta = timedelta(hours=1)
    catalogs: tuple[str, ...] = ()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the settings among the service's properties; raise InvalidProperty."""
        settings = cls()
        ages = {_MAX_AGE: settings.max_age, _INTERVAL: settings.refresh_interval}
        for name, default in ages.items():
            full = f"delegation.purge.{name}"
            try:
                ages[name] = parse_duration(properties[full]) if full in properties else default
            except ValueError as error:
                raise InvalidProperty(full, str(error)) from error
        listed = properties.get(f"delegation.purge.{_CATALOGS}")
        catalogs = () if listed is None else tuple(name.strip() for name in listed.split(","))
        if not all(catalogs):
            raise InvalidProperty(f"delegation.purge.{_CATALOGS}", f"{listed!r} has an empty name")
        return cls(ages[_MAX_AGE], ages[_INTERVAL], catalogs)

    def of(self, catalog: str) -> tuple[str, ...]:
        """Return every catalog that a purge of a table in `catalog` checks, its own first."""
        return (catalog, *(name for name in self.catalogs if name != catalog))
