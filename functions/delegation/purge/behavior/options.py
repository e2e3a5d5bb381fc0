"""`operation_parameters.properties` as purge options: known names are checked, unknown ones kept without effect."""

import re
from collections.abc import Mapping
from typing import ClassVar, Final, Literal, cast

from delegation.errors import DelegationError
from delegation.purge.behavior.parameters import DRY_RUN
from delegation.purge.context import Engine, OverlapScan, PurgeOptions

PLAN: Final = "plan"
# The first is what holds when the property is absent; "" stands for a choice left to the service.
_CHOICES: dict[str, tuple[str, ...]] = {
    "outside": ("keep", "refuse", "delete"),
    "uncovered": ("refuse", "keep"),
    "shared": ("subtract", "refuse"),
    "overlap-scan": ("namespace", "catalog"),
    "engine": ("", "inline", "spark"),
    DRY_RUN: ("false", "true"),
    # An object store has no trash to move files to.
    "skipTrash": ("true",),
}
_PLAN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]{1,9}/[0-9a-f]{1,64}")


class InvalidPurgeProperty(DelegationError):
    """A property of the purge has a value that it cannot have."""

    code: ClassVar[str] = "INVALID_REQUEST"

    def __init__(self, name: str, expected: str) -> None:
        super().__init__(f"operation_parameters.properties.{name}: must be {expected}")
        self.name = name


def options_of(properties: Mapping[str, str]) -> PurgeOptions:
    """The options that a request's properties choose; InvalidPurgeProperty names the one that is wrong."""
    chosen = {name: _choice(properties, name) for name in _CHOICES}
    plan = properties.get(PLAN)
    if plan is not None and not _PLAN_ID.fullmatch(plan):
        raise InvalidPurgeProperty(PLAN, "the id of a plan, such as a dry run's `plan_segments` name it")
    dry_run = chosen[DRY_RUN] == "true"
    if dry_run and plan is not None:
        raise InvalidPurgeProperty(PLAN, f"absent when {DRY_RUN} is true")
    return PurgeOptions(
        outside=cast("Literal['keep', 'refuse', 'delete']", chosen["outside"]),
        uncovered=cast("Literal['refuse', 'keep']", chosen["uncovered"]),
        shared=cast("Literal['subtract', 'refuse']", chosen["shared"]),
        overlap_scan=cast("OverlapScan", chosen["overlap-scan"]),
        engine=cast("Engine | None", chosen["engine"] or None),
        dry_run=dry_run,
        execute_plan=plan,
    )


def _choice(properties: Mapping[str, str], name: str) -> str:
    allowed = _CHOICES[name]
    value = properties.get(name, allowed[0])
    if value not in allowed or (name in properties and not value):
        raise InvalidPurgeProperty(name, "one of " + ", ".join(one for one in allowed if one))
    return value
