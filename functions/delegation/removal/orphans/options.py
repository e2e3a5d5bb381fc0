"""Options of a removal from `operation_parameters.properties`. Requests with unknown names were refused earlier."""

from collections.abc import Mapping
from typing import Final

from delegation.errors import GuardRefused
from delegation.removal.orphans.context import OrphanOptions
from delegation.removal.orphans.place import AGE, Equal, MismatchMode, checked_age
from delegation.removal.orphans.requests import (
    EQUAL_AUTHORITIES,
    EQUAL_SCHEMES,
    FILE_AGE,
    LOCATION,
    LOCATIONS,
    MISMATCH,
    OPTIONS,
    QUARANTINE,
    OrphanLimits,
)
from delegation.removal.orphans.task_type import PREFIX
from delegation.removal.requests import PLAN
from delegation.storage.locations import Root
from delegation.tasks.options import DRY_RUN, PLACE, InvalidOption
from delegation.timestamps import parse_duration
from polaris_common.errors import DelegationError, printable

_NO_LIMITS: Final = OrphanLimits()
_OF_THE_PLAN: Final = (LOCATION, FILE_AGE, EQUAL_SCHEMES, EQUAL_AUTHORITIES, MISMATCH)


def options_of(
    properties: Mapping[str, str], limits: OrphanLimits = _NO_LIMITS, *, accepted: bool = False
) -> OrphanOptions:
    """Read the properties of a request. An `accepted` one is bounded by the current limits. Raises InvalidOption, which
    names the property, DelegationError (PROPERTY_NOT_ALLOWED), and AgeTooShort."""
    if LOCATIONS in properties:  # of Polaris' policies: ignoring it would remove more than requested
        raise InvalidOption(LOCATIONS, f"absent, because a removal scans one place. Set {LOCATION} to the place")
    chosen = OPTIONS.chosen(properties, limits.requests, accepted=accepted)
    plan = chosen.get(PLAN)
    if plan is not None:
        for name in _OF_THE_PLAN:
            if name in properties:
                raise InvalidOption(name, f"absent if {PLAN} is given, because a plan is executed as it was made")
    equal = Equal.of(_lists(chosen.get(EQUAL_SCHEMES)), _lists(chosen.get(EQUAL_AUTHORITIES)))
    if any(equal.schemes[scheme] != "s3" for scheme in ("s3", "s3a", "s3n") if scheme in equal.schemes):
        raise InvalidOption(EQUAL_SCHEMES, "lists that map the schemes s3, s3a and s3n to s3")
    try:
        age = AGE if FILE_AGE not in chosen else checked_age(parse_duration(chosen[FILE_AGE]))
    except ValueError as error:
        raise InvalidOption(FILE_AGE, f"a duration such as 7d or PT72H ({error})") from None
    location = chosen.get(LOCATION)
    if location is not None:
        location = location_of(location)
        if not location.startswith(limits.locations):
            raise DelegationError(
                f"{PLACE}.{LOCATION}: {printable(location)} is not below a place of {PREFIX}{LOCATIONS}. Name an "
                "allowed place, or omit the option",
                code="PROPERTY_NOT_ALLOWED",
            )
    return OrphanOptions(
        older_than=age,
        dry_run=chosen[DRY_RUN] == "true",
        execute_plan=plan,
        equal=equal,
        mismatch=MismatchMode(chosen[MISMATCH].upper()),
        loosest=MismatchMode(limits.requests.choices[MISMATCH].upper()),
        limits=limits.approval,
        location=location,
        locations=limits.locations,
        quarantine=chosen[QUARANTINE] == "tag",
    )


def location_of(text: str) -> str:
    """Return a location as `s3://bucket/prefix/`. Raises InvalidOption."""
    try:
        return Root.of(text).uri
    except GuardRefused as error:
        raise InvalidOption(LOCATION, f"a location in an object store ({error})") from None


def _lists(text: str | None) -> dict[str, str]:
    """Return the lists of `a,b=c;d=e`: each list with the name that its names are equal to."""
    pairs = (pair.split("=") for pair in text.split(";")) if text else ()
    return {pair[0]: pair[1] for pair in pairs}
