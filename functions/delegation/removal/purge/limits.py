"""The table of a purge's options, and what the operator's settings `delegation.purge.*` make of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Self

from delegation.removal.details import PRIORITIES, PRIORITY
from delegation.removal.purge.options import PurgeOptions
from delegation.removal.purge.task_type import PREFIX
from delegation.removal.requests import PLAN, PLAN_OPTION
from delegation.tasks.life.policy import InvalidProperty, duration_property
from delegation.tasks.submission.options import (
    CALLBACK_OPTION,
    DRY_RUN,
    DRY_RUN_OPTION,
    Option,
    OptionTable,
    SetBy,
    SetLimits,
)

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
        for name in ages:
            full = f"delegation.purge.{name}"
            text = properties.get(full, "").strip()
            if full in properties and not (name == _MAX_AGE and text in _NONE):
                ages[name] = duration_property(full, text)
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


def _limited(name: str, values: tuple[str, ...], loosest: str, meaning: str) -> Option:
    """Return an option of callers whose loosest value the operator sets. Deleting more is looser, checking less too."""
    return Option(name=name, by=SetBy.BOTH, values=values, loosest=loosest, meaning=meaning)


def _fixed(name: str, values: tuple[str, ...], meaning: str) -> Option:
    """Return an option of the operator alone: it protects other tables, or leaves files that nothing names."""
    return Option(name=name, by=SetBy.OPERATOR, values=values, meaning=meaning)


OPTIONS: Final = OptionTable(
    PREFIX,
    (
        Option(
            name="outside",
            by=SetBy.BOTH,
            values=("refuse", "keep", "delete"),
            setting="outside-loosest",
            loosest="keep",
            default="refuse",
            default_setting="outside",
            meaning="The loosest value of `outside` that a request may choose.",
            default_meaning="What a silent request does with files outside the table's locations: `refuse`, `keep`, "
            "`delete`.",
        ),
        _limited(
            "uncovered", ("refuse", "keep"), "refuse", "What a purge does with files that no vended credential covers."
        ),
        _limited(
            "shared",
            ("refuse", "subtract"),
            "subtract",
            "What a purge does with files that another table references too.",
        ),
        _limited(
            "overlap-scan",
            ("catalog", "namespace"),
            "namespace",
            "How far a purge looks for tables whose locations overlap.",
        ),
        _limited("versioned", ("refuse", "report"), "report", "What a purge does in a versioned bucket."),
        Option(
            name="deleteMarkerFiles",
            by=SetBy.BOTH,
            values=("false", "true"),
            setting="delete-marker-files",
            loosest="true",
            default="false",  # directory markers are deleted only when a request chooses that
            meaning="Whether a request may have directory markers deleted.",
        ),
        Option(name="engine", by=SetBy.CALLER, values=("", "inline", "spark")),
        DRY_RUN_OPTION,
        Option(name=PRIORITY, by=SetBy.CALLER, values=PRIORITIES),
        # Object stores have no trash, so files cannot be moved there.
        Option(name="skipTrash", by=SetBy.CALLER, values=("true",)),
        PLAN_OPTION,
        CALLBACK_OPTION,
        _fixed("gc-disabled", ("refuse", "ignore"), "What a purge does with a table whose `gc.enabled` is not true."),
        _fixed("delete-probe", ("true", "false"), "Whether the permission to delete is probed before the plan."),
        _fixed(
            "experimental-format",
            ("false", "true"),
            "Whether tables of a format version that is not final are purged.",
        ),
        _fixed(
            "references",
            ("index", "location", "namespace"),
            "Where a purge looks for other tables' references: `index`, `location` or `namespace`.",
        ),
        _fixed(
            "damaged",
            ("refuse", "keep"),
            "What a purge does with a table with lost or corrupt manifests: `refuse` or `keep`.",
        ),
        _fixed("unsupported", ("refuse", "keep"), "What a purge does with files in another storage or encrypted ones."),
        _fixed(
            "ambiguous",
            ("refuse", "keep"),
            "What a purge does with paths that two readers would understand differently.",
        ),
        _fixed(
            "neighbour",
            ("refuse", "report"),
            "What a purge does if another table cannot be read: `refuse` or `report`.",
        ),
    ),
    others=REFERENCE_SETTINGS,
    exclusive=((PLAN, DRY_RUN),),
)


_NAMES: Final = {"deleteMarkerFiles": "remove_directory_markers", "delete-probe": "probe"}
_FIELDS: Final = {
    by: {one.name: _NAMES.get(one.name, one.name.replace("-", "_")) for one in OPTIONS.by(by)} for by in SetBy
}
_FLAGS: Final = frozenset(one.name for one in OPTIONS.options if set(one.values) == {"true", "false"})


def fields_of(by: SetBy, chosen: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of PurgeOptions that these options are, with the values chosen."""
    return {one: chosen[name] == "true" if name in _FLAGS else chosen[name] for name, one in _FIELDS[by].items()}


@dataclass(frozen=True, slots=True)
class Limits:
    """What requests may choose, and in `base` what only the operator sets."""

    requests: SetLimits = field(default_factory=OPTIONS.limits)
    base: PurgeOptions = field(default_factory=PurgeOptions)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the properties that begin with PREFIX and ignore all others; raise InvalidProperty."""
        found = OPTIONS.limits(properties)
        return cls(found, PurgeOptions(**fields_of(SetBy.OPERATOR, found.fixed)))
