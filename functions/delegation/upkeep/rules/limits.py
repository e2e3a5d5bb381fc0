import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self

from delegation.identifiers import TableIdentifier, split_name
from delegation.operations.orphans.behavior.limits import allowed_locations
from delegation.removal.expiry.names import PREFIX as EXPIRY_PREFIX
from delegation.removal.expiry.requests import LEAST_AGE as EXPIRY_AGE
from delegation.removal.expiry.requests import LEAST_SNAPSHOTS as EXPIRY_SNAPSHOTS
from delegation.removal.expiry.requests import Floor
from delegation.tasks.life.policy import InvalidProperty
from delegation.timestamps import parse_duration
from delegation.upkeep.rules.content import PolicyType
from delegation.upkeep.rules.values import DAY_MS, MOST

PREFIX: Final = "delegation.upkeep."
LEAST_AGE: Final = f"{PREFIX}least-age"
LEAST_SNAPSHOTS: Final = f"{PREFIX}least-snapshots"
LEAST_ORPHAN_AGE: Final = f"{PREFIX}least-orphan-age"
TYPES: Final = f"{PREFIX}types"
INCLUDE: Final = f"{PREFIX}include"
EXCLUDE: Final = f"{PREFIX}exclude"
DRY_RUN_ONLY: Final = f"{PREFIX}dry-run-only"
INTERVAL: Final = f"{PREFIX}interval"
WINDOW: Final = f"{PREFIX}window"
WINDOW_LENGTH: Final = f"{PREFIX}window-length"
ZONE: Final = f"{PREFIX}time-zone"
DAILY_FILES: Final = f"{PREFIX}daily-files"
DAILY_BYTES: Final = f"{PREFIX}daily-bytes"
DAILY_COST: Final = f"{PREFIX}daily-cost"
AT_ONCE: Final = f"{PREFIX}at-once"
OF_POLICY: Final = f"{PREFIX}policy."
"""The beginning of the settings of one policy: its dotted name and the name of a setting of OF_TERMS follow."""
OF_TERMS: Final = (WINDOW, WINDOW_LENGTH, ZONE, DAILY_FILES, DAILY_BYTES, DAILY_COST)
_OF_SCHEDULES: Final = frozenset({INTERVAL, *OF_TERMS, AT_ONCE})
"""What `upkeep.execution.settings` reads, beside those of single policies."""
_NONE: Final = "none"
_NAME: Final = re.compile(r"(?:`[^`]*`|[^`,])+")

Place = tuple[str, ...]
"""A catalog, or a catalog and the levels of a namespace in it."""


@dataclass(frozen=True, slots=True)
class UpkeepLimits:
    """The operator's settings `delegation.upkeep.*`, which no policy or table property can loosen.

    Snapshots and refs younger than `least_age_ms` stay, and `least_snapshots` of each branch; files younger than
    `least_orphan_age_ms` are no orphans. Only `types` are executed, none by default: Polaris may hold policies from
    before. Only what is in `include` is maintained (everything if empty), and nothing in `exclude`. With `dry_run_only`
    everything is planned and nothing done. `least_age_by` and `least_snapshots_by` name the properties of the two
    numbers: limits of every expiry apply too, where stricter. `orphan_locations` are where a policy may search for
    orphan files beside a table's location.
    """

    types: frozenset[PolicyType] = frozenset()
    least_age_ms: int = DAY_MS
    least_snapshots: int = 1
    least_orphan_age_ms: int = 3 * DAY_MS
    least_age_by: str = LEAST_AGE
    least_snapshots_by: str = LEAST_SNAPSHOTS
    include: tuple[Place, ...] = ()
    exclude: tuple[Place, ...] = ()
    dry_run_only: bool = False
    orphan_locations: tuple[str, ...] = ()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the properties that begin with PREFIX, and the limits of every expiry. Raises InvalidProperty."""
        own = {
            name: value
            for name, value in properties.items()
            if name.startswith(PREFIX) and name not in _OF_SCHEDULES and not name.startswith(OF_POLICY)
        }
        floor = Floor.from_properties(properties)
        ages = {
            LEAST_AGE: _milliseconds(LEAST_AGE, own.pop(LEAST_AGE, "1d")),
            EXPIRY_PREFIX + EXPIRY_AGE: floor.age // timedelta(milliseconds=1),
        }
        counts = {
            LEAST_SNAPSHOTS: _count(LEAST_SNAPSHOTS, own.pop(LEAST_SNAPSHOTS, "1")),
            EXPIRY_PREFIX + EXPIRY_SNAPSHOTS: floor.snapshots,
        }
        age_by, snapshots_by = max(ages, key=ages.__getitem__), max(counts, key=counts.__getitem__)
        limits = cls(
            types=_types(own.pop(TYPES, _NONE)),
            least_age_ms=ages[age_by],
            least_snapshots=counts[snapshots_by],
            least_age_by=age_by,
            least_snapshots_by=snapshots_by,
            least_orphan_age_ms=_milliseconds(LEAST_ORPHAN_AGE, own.pop(LEAST_ORPHAN_AGE, "3d")),
            include=_places(INCLUDE, own.pop(INCLUDE, "")),
            exclude=_places(EXCLUDE, own.pop(EXCLUDE, "")),
            dry_run_only=_flag(DRY_RUN_ONLY, own.pop(DRY_RUN_ONLY, "false")),
            orphan_locations=allowed_locations(properties),
        )
        for name in own:
            raise InvalidProperty(name, "is not a property of this service")
        return limits

    def prevented(self, type_: PolicyType, table: TableIdentifier) -> str | None:
        """Return the property that prevents a type for a table, None without one."""
        if type_ not in self.types:
            return TYPES
        path = (table.catalog, *table.namespace)
        if any(path[: len(place)] == place for place in self.exclude):
            return EXCLUDE
        if self.include and not any(path[: len(place)] == place for place in self.include):
            return INCLUDE
        return None


def _types(text: str) -> frozenset[PolicyType]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == [_NONE]:
        return frozenset()
    found = {name: PolicyType.named(name) for name in names}
    for name, type_ in found.items():
        if type_ is None:
            known = ", ".join(one.short for one in PolicyType)
            raise InvalidProperty(TYPES, f"{name!r} is not one of {known}; `none` alone allows none")
    return frozenset(type_ for type_ in found.values() if type_ is not None)


def _places(name: str, text: str) -> tuple[Place, ...]:
    texts = [found[0].strip() for found in _NAME.finditer(text)]
    places = tuple(tuple(split_name(one)) for one in texts if one)
    if not all(places) or "`" in _NAME.sub("", text):
        raise InvalidProperty(name, "is not a list of CATALOG or CATALOG.NAMESPACE with commas between them")
    return places


def _milliseconds(name: str, text: str) -> int:
    if text.strip() == "0":
        return 0
    try:
        return parse_duration(text) // timedelta(milliseconds=1)
    except ValueError as error:
        raise InvalidProperty(name, str(error)) from error


def _count(name: str, text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,9}", text) or int(text) > MOST:
        raise InvalidProperty(name, f"{text!r} is not a whole number from 1 to {MOST}")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise InvalidProperty(name, f"{text!r} is neither true nor false")
    return text == "true"
