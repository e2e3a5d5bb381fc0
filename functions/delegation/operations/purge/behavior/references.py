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
_LOADS: Final = "reference-loads-per-second"
_NONE: Final = frozenset({"0", "0s", "PT0S"})
_MOST_LOADS: Final = 100_000
REFERENCE_SETTINGS: Final = frozenset({_MAX_AGE, _INTERVAL, _CATALOGS, _LOADS})
"""Their names after `delegation.purge.`."""


@dataclass(frozen=True, slots=True)
class ReferenceSettings:
    """How the index is refreshed, and which catalogs are checked besides the task's own.

    `refresh_interval` is how often the recurring task refreshes it. A purge makes a pass of its own or waits for one
    that began after its moment, unless the last one is `max_age` old at most: 0 is never. A pass loads
    `loads_per_second` tables at most.
    """

    max_age: timedelta = timedelta(0)
    refresh_interval: timedelta = timedelta(hours=1)
    catalogs: tuple[str, ...] = ()
    loads_per_second: int = 500

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the settings among the service's properties; raise InvalidProperty."""
        settings = cls()
        ages = {_MAX_AGE: settings.max_age, _INTERVAL: settings.refresh_interval}
        for name, default in ages.items():
            full = f"delegation.purge.{name}"
            text = properties.get(full, "").strip()
            if name == _MAX_AGE and text in _NONE:
                continue
            try:
                ages[name] = parse_duration(text) if full in properties else default
            except ValueError as error:
                raise InvalidProperty(full, str(error)) from error
        listed = properties.get(f"delegation.purge.{_CATALOGS}")
        catalogs = () if listed is None else tuple(name.strip() for name in listed.split(","))
        if not all(catalogs):
            raise InvalidProperty(f"delegation.purge.{_CATALOGS}", f"{listed!r} has an empty name")
        loads = properties.get(f"delegation.purge.{_LOADS}", str(settings.loads_per_second)).strip()
        if not (loads.isascii() and loads.isdigit() and 0 < int(loads) <= _MOST_LOADS):
            raise InvalidProperty(f"delegation.purge.{_LOADS}", f"{loads!r} is not a number from 1 to {_MOST_LOADS}")
        return cls(ages[_MAX_AGE], ages[_INTERVAL], catalogs, int(loads))

    def of(self, catalog: str) -> tuple[str, ...]:
        """Return every catalog that a purge of a table in `catalog` checks, its own first."""
        return (catalog, *(name for name in self.catalogs if name != catalog))
