"""The operator's settings `delegation.upkeep.*`: bounds of every rule, and when and how much policies may run.

Also parsers of numbers, ages and words in policies and properties. They raise ValueError with the end of a sentence
that does not quote the value.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Final, Self

from delegation.identifiers import TableIdentifier, split_name
from delegation.removal.expiry.requests import LEAST_AGE as EXPIRY_AGE
from delegation.removal.expiry.requests import LEAST_SNAPSHOTS as EXPIRY_SNAPSHOTS
from delegation.removal.expiry.requests import Floor
from delegation.removal.expiry.task_type import PREFIX as EXPIRY_PREFIX
from delegation.removal.orphans.requests import allowed_locations
from delegation.rewrites.terms import CompactionLimits, ManifestLimits
from delegation.tasks.life.policy import InvalidProperty, duration_property
from delegation.timestamps import parse_duration
from delegation.upkeep.errors import ScheduleInvalid
from delegation.upkeep.rules.model import PolicyType
from delegation.upkeep.schedule import MICROS, MOST_AT_ONCE, RUNS_AT_ONCE, Budget, PolicyTerms, Window, zone_of

DAY_MS: Final = 86_400_000
FOREVER_MS: Final = 2**63 - 1
"""Java's Long.MAX_VALUE, Iceberg's default maximum age of a ref: the ref is never removed."""
MOST: Final = 2**31 - 1
"""Java's Integer.MAX_VALUE."""
_MOST_BENEFIT: Final = 10**9
_NUMBER: Final = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,9})?")
_LONG: Final = re.compile(r"[+-]?[0-9]{1,19}")


def number_in(value: object) -> int | Decimal:
    """Return a JSON number, or a number in a string such as `7` or `0.5`, from 0 to Java's largest long."""
    match value:
        case bool():
            number: int | Decimal | None = None
        case int():
            number = value
        case float():
            number = Decimal(repr(value)) if math.isfinite(value) else None
        case str() if _NUMBER.fullmatch(value):
            number = Decimal(value)
        case _:
            number = None
    if number is None:
        raise ValueError("is not a number")
    if not 0 <= number <= FOREVER_MS:
        raise ValueError(f"is not a number from 0 to {FOREVER_MS}")
    return number


def age_in_days(value: object) -> int:
    """Return a number of days in milliseconds, rounded up."""
    milliseconds = math.ceil(number_in(value) * DAY_MS)
    if milliseconds > FOREVER_MS:
        raise ValueError(f"is more than {FOREVER_MS // DAY_MS} days")
    return milliseconds


def age_in_ms(text: str) -> int:
    return _long(text, 0, FOREVER_MS)


def count_in_property(text: str) -> int:
    """Return an Iceberg property of at least 1."""
    return _long(text, 1, MOST)


def size_in_property(text: str) -> int:
    """Return an Iceberg property in bytes."""
    return _long(text, 1, FOREVER_MS)


def whole(least: int, most: int = MOST) -> Callable[[object], int]:
    """Return a parser of whole numbers between two bounds."""

    def read(value: object) -> int:
        number = number_in(value)
        if number != int(number) or not least <= number <= most:
            raise ValueError(f"is not a whole number from {least} to {most}")
        return int(number)

    return read


def word(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"is not one of {', '.join(words)}")
        return value

    return read


def age_in_text(value: object) -> int:
    """Return a duration such as `1h`, `PT30M` or 0 in milliseconds, rounded up."""
    text = str(value) if isinstance(value, str | int) else ""
    try:
        return 0 if text == "0" else -(-parse_duration(text) // timedelta(milliseconds=1))
    except ValueError:
        raise ValueError("is not a duration up to ten years, such as 1h") from None


def benefit(value: object) -> float:
    """Return the number of files that a unit of money must remove."""
    number = float(number_in(value))
    if number >= _MOST_BENEFIT:
        raise ValueError(f"is not a number below {_MOST_BENEFIT}")
    return number


def _long(text: str, least: int, most: int) -> int:
    if not _LONG.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError(f"is not a whole number from {least} to {most}")
    return int(text)


def age_text(milliseconds: int) -> str:
    """Return an age in its largest unit without a fraction, for display."""
    if milliseconds == FOREVER_MS:
        return "forever"
    for unit, length in (("day", DAY_MS), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if milliseconds % length == 0:
            number = milliseconds // length
            return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"
    return f"{milliseconds:,} ms"


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
"""The prefix of a policy's own settings. Its dotted name and a setting's name from OF_TERMS follow."""
OF_TERMS: Final = (WINDOW, WINDOW_LENGTH, ZONE, DAILY_FILES, DAILY_BYTES, DAILY_COST)
_OF_SCHEDULES: Final = frozenset({INTERVAL, *OF_TERMS, AT_ONCE})
"""The settings that `upkeep.rules.limits` reads, besides those of single policies."""
_NONE: Final = "none"
_NAME: Final = re.compile(r"(?:`[^`]*`|[^`,])+")

Place = tuple[str, ...]
"""A catalog, or a catalog and the levels of a namespace in it."""


@dataclass(frozen=True, slots=True)
class UpkeepLimits:
    """The operator's settings `delegation.upkeep.*`. No policy or table property can loosen them.

    Snapshots and refs younger than `least_age_ms` stay, and `least_snapshots` of each branch. Files younger than
    `least_orphan_age_ms` are not orphans. Only `types` are executed; by default none, because Polaris may already hold
    policies. Only tables in `include` are maintained (all if empty), and none in `exclude`. With `dry_run_only`
    everything is planned and nothing is done. `least_age_by` and `least_snapshots_by` name the properties that set the
    two numbers, because limits of every expiry apply too where stricter. `orphan_locations` are where a policy may
    search for orphan files beside a table's location. `compaction` and `manifests` are the limits of rewrites.
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
    compaction: CompactionLimits = field(default_factory=CompactionLimits)
    manifests: ManifestLimits = field(default_factory=ManifestLimits)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the properties that start with PREFIX, and the limits of every expiry and rewrite. Raises
        InvalidProperty."""
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
            compaction=CompactionLimits.from_properties(properties),
            manifests=ManifestLimits.from_properties(properties),
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
    types = {name: PolicyType.named(name) for name in names}
    for name, type_ in types.items():
        if type_ is None:
            known = ", ".join(policy_type.short for policy_type in PolicyType)
            raise InvalidProperty(TYPES, f"{name!r} is not one of {known}; to allow no policy, write only `none`")
    return frozenset(type_ for type_ in types.values() if type_ is not None)


def _places(name: str, text: str) -> tuple[Place, ...]:
    texts = [match[0].strip() for match in _NAME.finditer(text)]
    places = tuple(tuple(split_name(written)) for written in texts if written)
    if not all(places) or "`" in _NAME.sub("", text):
        raise InvalidProperty(name, "is not a comma-separated list of CATALOG or CATALOG.NAMESPACE")
    return places


def _milliseconds(name: str, text: str) -> int:
    return 0 if text.strip() == "0" else duration_property(name, text) // timedelta(milliseconds=1)


def _count(name: str, text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,9}", text) or int(text) > MOST:
        raise InvalidProperty(name, f"{text!r} is not a whole number from 1 to {MOST}")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise InvalidProperty(name, f"{text!r} is neither true nor false")
    return text == "true"


_SHORTEST: Final = timedelta(seconds=5)
"""The sweeper starts a pass, once a minute in a deployment. A shorter interval is for trials."""
_ALWAYS: Final = "always"
_MOST_OWN: Final = 100


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """When and how much policies run. A pass starts every `interval`. Each policy has `terms`, with its own daily
    budget and window, unless `own` has others for its dotted name."""

    terms: PolicyTerms = field(default_factory=PolicyTerms)
    interval: timedelta = timedelta(minutes=15)
    at_once: int = RUNS_AT_ONCE
    own: Mapping[str, PolicyTerms] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the settings and ignore all other properties. Raises InvalidProperty."""
        interval = duration_property(INTERVAL, properties.get(INTERVAL, "15m"))
        if interval < _SHORTEST:
            raise InvalidProperty(INTERVAL, "is shorter than 5 seconds")
        at_once = _number(properties, AT_ONCE, str(RUNS_AT_ONCE))
        if at_once > MOST_AT_ONCE:
            raise InvalidProperty(AT_ONCE, f"is more than {MOST_AT_ONCE}")
        return cls(_terms(properties), interval, at_once, _own_terms(properties))

    def terms_of(self, policies: Collection[str]) -> dict[str, PolicyTerms]:
        return {name: self.own.get(name, self.terms) for name in policies}


def _own_terms(properties: Mapping[str, str]) -> dict[str, PolicyTerms]:
    """Return the terms of policies with their own settings, completed by the terms of all policies."""
    given: dict[str, dict[str, str]] = {}
    for name in sorted(properties):
        if name.startswith(OF_POLICY):
            policy, _, setting = name.removeprefix(OF_POLICY).rpartition(".")
            if not policy or PREFIX + setting not in OF_TERMS:
                known = ", ".join(name.removeprefix(PREFIX) for name in OF_TERMS)
                raise InvalidProperty(name, f"is not {OF_POLICY}POLICY.SETTING, where SETTING is one of {known}")
            given.setdefault(policy, {})[PREFIX + setting] = properties[name]
    if len(given) > _MOST_OWN:
        raise InvalidProperty(OF_POLICY, f"{len(given)} policies have their own settings; at most {_MOST_OWN} may")
    own_terms = {}
    for policy, own in given.items():
        try:
            own_terms[policy] = _terms({**properties, **own})
        except InvalidProperty as error:
            raise InvalidProperty(f"{OF_POLICY}{policy}", str(error)) from None
    return own_terms


def _terms(properties: Mapping[str, str]) -> PolicyTerms:
    zone = properties.get(ZONE, "UTC").strip()
    text = properties.get(WINDOW, _ALWAYS).strip()
    lasts = duration_property(WINDOW_LENGTH, properties.get(WINDOW_LENGTH, "6h"))
    try:
        zone_of(zone)
    except ScheduleInvalid as error:
        raise InvalidProperty(ZONE, str(error)) from None
    try:
        window = None if text == _ALWAYS else Window(text, lasts, zone)
    except ScheduleInvalid as error:
        raise InvalidProperty(WINDOW, str(error)) from None
    budget = Budget(_budget(properties, DAILY_FILES), _budget(properties, DAILY_BYTES), _cost(properties))
    return PolicyTerms(window, budget, zone)


def _cost(properties: Mapping[str, str]) -> int | None:
    """Return the money budget in millionths."""
    text = properties.get(DAILY_COST, _NONE)
    if text == _NONE:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text) or not (micros := int(Decimal(text) * MICROS)):
        raise InvalidProperty(DAILY_COST, f"{text!r} is not an amount of money above 0, such as 2.50")
    return micros


def _budget(properties: Mapping[str, str], name: str) -> int | None:
    return None if properties.get(name, _NONE) == _NONE else _number(properties, name, _NONE)


def _number(properties: Mapping[str, str], name: str, default: str) -> int:
    text = properties.get(name, default)
    if not re.fullmatch(r"[1-9][0-9]{0,17}", text):
        raise InvalidProperty(name, f"{text!r} is not a whole number, 1 or more")
    return int(text)
