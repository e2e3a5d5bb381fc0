"""When and how much policies may run: the operator's settings `delegation.upkeep.*` beside the limits of rules."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Self

from delegation.tasks.life.policy import InvalidProperty
from delegation.timestamps import parse_duration
from delegation.upkeep.errors import ScheduleInvalid
from delegation.upkeep.rules.limits import AT_ONCE, DAILY_BYTES, DAILY_FILES, INTERVAL, WINDOW, WINDOW_LENGTH, ZONE
from delegation.upkeep.schedule.amounts import Budget
from delegation.upkeep.schedule.choice import MOST_AT_ONCE, PolicyTerms
from delegation.upkeep.schedule.windows import Window, zone_named

_SHORTEST: Final = timedelta(minutes=1)
_NONE: Final = "none"
_ALWAYS: Final = "always"


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """Each policy has the same `terms`: its own budget of a day, in one window. A pass begins at each `interval`."""

    terms: PolicyTerms = field(default_factory=PolicyTerms)
    interval: timedelta = timedelta(minutes=15)
    at_once: int = MOST_AT_ONCE

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the settings and ignore all other properties; raise InvalidProperty."""
        interval = _duration(properties, INTERVAL, "15m")
        if interval < _SHORTEST:
            raise InvalidProperty(INTERVAL, "is shorter than a minute")
        zone = properties.get(ZONE, "UTC").strip()
        text = properties.get(WINDOW, _ALWAYS).strip()
        lasts = _duration(properties, WINDOW_LENGTH, "6h")
        try:
            zone_named(zone)
        except ScheduleInvalid as error:
            raise InvalidProperty(ZONE, str(error)) from None
        try:
            window = None if text == _ALWAYS else Window(text, lasts, zone)
        except ScheduleInvalid as error:
            raise InvalidProperty(WINDOW, str(error)) from None
        budget = Budget(files=_budget(properties, DAILY_FILES), bytes=_budget(properties, DAILY_BYTES))
        at_once = _number(properties, AT_ONCE, str(MOST_AT_ONCE))
        if at_once > MOST_AT_ONCE:
            raise InvalidProperty(AT_ONCE, f"is more than {MOST_AT_ONCE}")
        return cls(PolicyTerms(window, budget, zone), interval, at_once)


def _duration(properties: Mapping[str, str], name: str, default: str) -> timedelta:
    try:
        return parse_duration(properties.get(name, default))
    except ValueError as error:
        raise InvalidProperty(name, str(error)) from error


def _budget(properties: Mapping[str, str], name: str) -> int | None:
    return None if properties.get(name, _NONE) == _NONE else _number(properties, name, _NONE)


def _number(properties: Mapping[str, str], name: str, default: str) -> int:
    text = properties.get(name, default)
    if not re.fullmatch(r"[1-9][0-9]{0,17}", text):
        raise InvalidProperty(name, f"{text!r} is not a whole number, 1 or more")
    return int(text)
