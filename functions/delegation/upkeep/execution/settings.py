"""When and how much policies may run: the operator's settings `delegation.upkeep.*`."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Final, Self

from delegation.tasks.life.policy import InvalidProperty
from delegation.timestamps import parse_duration
from delegation.upkeep.errors import ScheduleInvalid
from delegation.upkeep.rules.limits import (
    AT_ONCE,
    DAILY_BYTES,
    DAILY_COST,
    DAILY_FILES,
    INTERVAL,
    OF_POLICY,
    OF_TERMS,
    PREFIX,
    WINDOW,
    WINDOW_LENGTH,
    ZONE,
)
from delegation.upkeep.schedule.amounts import MICROS, Budget
from delegation.upkeep.schedule.choice import MOST_AT_ONCE, RUNS_AT_ONCE, PolicyTerms
from delegation.upkeep.schedule.windows import Window, zone_of

_SHORTEST: Final = timedelta(seconds=5)
"""The sweeper begins a pass, in a deployment once a minute: a shorter interval than that is for trials."""
_NONE: Final = "none"
_ALWAYS: Final = "always"
_MOST_OWN: Final = 100


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """When and how much policies run; a pass begins at each `interval`. Each policy has `terms`, its own budget of a
    day in one window, unless `own` has others for its dotted name."""

    terms: PolicyTerms = field(default_factory=PolicyTerms)
    interval: timedelta = timedelta(minutes=15)
    at_once: int = RUNS_AT_ONCE
    own: Mapping[str, PolicyTerms] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the settings, ignore all other properties. Raises InvalidProperty."""
        interval = _duration(properties, INTERVAL, "15m")
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
                known = ", ".join(one.removeprefix(PREFIX) for one in OF_TERMS)
                raise InvalidProperty(name, f"is not {OF_POLICY}POLICY.SETTING, where SETTING is one of {known}")
            given.setdefault(policy, {})[PREFIX + setting] = properties[name]
    if len(given) > _MOST_OWN:
        raise InvalidProperty(OF_POLICY, f"{len(given)} policies have settings of their own, more than {_MOST_OWN}")
    found = {}
    for policy, own in given.items():
        try:
            found[policy] = _terms({**properties, **own})
        except InvalidProperty as error:
            raise InvalidProperty(f"{OF_POLICY}{policy}", str(error)) from None
    return found


def _terms(properties: Mapping[str, str]) -> PolicyTerms:
    zone = properties.get(ZONE, "UTC").strip()
    text = properties.get(WINDOW, _ALWAYS).strip()
    lasts = _duration(properties, WINDOW_LENGTH, "6h")
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
