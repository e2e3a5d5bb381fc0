"""Purge options from `operation_parameters.properties`: known names are checked, unknown ones have no effect."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import ClassVar, Final, Literal, cast

from delegation.errors import DelegationError
from delegation.operations.purge.behavior.limits import STRICTEST_FIRST, Limits
from delegation.operations.purge.behavior.parameters import PLAN
from delegation.operations.purge.behavior.traits import PRIORITIES, PRIORITY
from delegation.operations.purge.options import EngineChoice, OverlapScan, PurgeOptions
from delegation.tasks.life.request_form import CALLBACK, DRY_RUN

# No setting limits these. The first value is the default; "" lets the service choose.
FREE: Final[Mapping[str, tuple[str, ...]]] = {
    "engine": ("", "inline", "spark"),
    DRY_RUN: ("false", "true"),
    PRIORITY: PRIORITIES,
    # Object stores have no trash, so files cannot be moved there.
    "skipTrash": ("true",),
}
CALLBACK_NAME: Final = "[a-z][a-z0-9-]{0,31}"
PLAN_ID: Final = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]{1,9}/[0-9a-f]{1,64}"
_NO_LIMITS: Final = Limits()


class InvalidPurgeProperty(DelegationError):
    """A property of the purge has a value that is not allowed for it."""

    code: ClassVar[str] = "INVALID_REQUEST"

    def __init__(self, name: str, expected: str) -> None:
        super().__init__(f"operation_parameters.properties.{name}: must be {expected}")
        self.name = name


class PurgePropertyNotAllowed(DelegationError):
    """A property of the purge has a looser value than the operator's settings allow."""

    code: ClassVar[str] = "PROPERTY_NOT_ALLOWED"

    def __init__(self, name: str, value: str, loosest: str) -> None:
        super().__init__(
            f"operation_parameters.properties.{name}: {value} is looser than this service's setting {loosest}; "
            "send that value or a stricter one"
        )
        self.name = name


class CallbackNotAllowed(DelegationError):
    """A request picks a callback that no setting of the service names."""

    code: ClassVar[str] = "PROPERTY_NOT_ALLOWED"

    def __init__(self, name: str, known: Collection[str]) -> None:
        has = f"it has {', '.join(sorted(known))}" if known else "it has none"
        super().__init__(
            f"operation_parameters.properties.{CALLBACK}: this service has no callback {name}; {has}, and the operator "
            f"adds one as delegation.notifications.callback.{name}"
        )
        self.name = CALLBACK


def callback_of(properties: Mapping[str, str], known: Collection[str]) -> str | None:
    """Return the callback that a request picks; raise InvalidPurgeProperty or CallbackNotAllowed."""
    name = properties.get(CALLBACK)
    if name is not None and not re.fullmatch(CALLBACK_NAME, name):
        raise InvalidPurgeProperty(CALLBACK, "a name of lower-case letters, digits and hyphens")
    if name is not None and name not in known:
        raise CallbackNotAllowed(name, known)
    return name


def options_of(properties: Mapping[str, str], limits: Limits = _NO_LIMITS, *, accepted: bool = False) -> PurgeOptions:
    """Read a request's properties; raise InvalidPurgeProperty or PurgePropertyNotAllowed, which name the property.

    In a request that was already `accepted`, a value that is looser than today's settings is replaced by the setting.
    """
    free = {name: _value(properties, name, allowed, allowed[0]) for name, allowed in FREE.items()}
    chosen: dict[str, str] = {}
    for name, allowed in STRICTEST_FIRST.items():
        value = _value(properties, name, allowed, limits.default(name))
        if not limits.allows(name, value):
            if not accepted:
                raise PurgePropertyNotAllowed(name, value, limits.choices[name])
            value = limits.choices[name]
        chosen[name] = value
    plan = properties.get(PLAN)
    if plan is not None and not re.fullmatch(PLAN_ID, plan):
        raise InvalidPurgeProperty(PLAN, "the id of a plan, as listed in a dry run's `plan_segments`")
    dry_run = free[DRY_RUN] == "true"
    if dry_run and plan is not None:
        raise InvalidPurgeProperty(PLAN, f"absent when {DRY_RUN} is true")
    return replace(
        limits.base,
        outside=cast("Literal['keep', 'refuse', 'delete']", chosen["outside"]),
        uncovered=cast("Literal['refuse', 'keep']", chosen["uncovered"]),
        shared=cast("Literal['subtract', 'refuse']", chosen["shared"]),
        overlap_scan=cast("OverlapScan", chosen["overlap-scan"]),
        versioned=cast("Literal['report', 'refuse']", chosen["versioned"]),
        remove_directory_markers=chosen["deleteMarkerFiles"] == "true",
        engine=cast("EngineChoice | None", free["engine"] or None),
        dry_run=dry_run,
        execute_plan=plan,
    )


def _value(properties: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = properties.get(name, default)
    if value not in allowed or (name in properties and not value):
        expected = [one for one in allowed if one]
        raise InvalidPurgeProperty(name, ("one of " if len(expected) > 1 else "") + ", ".join(expected))
    return value
