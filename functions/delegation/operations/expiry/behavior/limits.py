"""The table of an expiry's options, and the operator's settings `delegation.expiry.*`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self

from delegation.operations.expiry.behavior.names import PREFIX
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.submission.options import CALLBACK_OPTION, DRY_RUN, Option, OptionTable, SetBy
from delegation.timestamps import parse_duration

OLDER_THAN: Final = "older-than"
MAX_SNAPSHOT_AGE: Final = "max-snapshot-age-ms"
RETAIN_LAST: Final = "retain-last"
MAX_REF_AGE: Final = "max-ref-age-ms"
SNAPSHOT_IDS: Final = "snapshot-ids"
CLEAN: Final = "clean-expired-metadata"
PLAN: Final = "plan"
NOW: Final = "now"
MOST_IDS: Final = 50
"""Ids in one request: with 20 characters each they fit into a property."""
LEAST_AGE: Final = "least-snapshot-age"
LEAST_SNAPSHOTS: Final = "least-snapshots"
_DATE: Final = "[12][0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9](:[0-5][0-9]){2}"
_TIME: Final = rf"({NOW}|{_DATE}(\.[0-9]{{1,6}})?(Z|[+\-][0-2][0-9]:[0-5][0-9]))"
_COUNT: Final = "[1-9][0-9]{0,8}"
_MILLISECONDS: Final = "[1-9][0-9]{0,14}"
_ID: Final = "-?[0-9]{1,19}"
_IDS: Final = rf"{_ID}(,{_ID}){{0,{MOST_IDS - 1}}}"
_PLAN_ID: Final = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]{1,9}/[0-9a-f]{1,64}"


def _text(name: str, pattern: str, expected: str, described: str) -> Option:
    return Option(name=name, by=SetBy.CALLER, pattern=pattern, expected=expected, described=described)


OPTIONS: Final = OptionTable(
    PREFIX,
    (
        _text(
            OLDER_THAN,
            _TIME,
            "an RFC 3339 date-time with an offset, such as 2026-06-11T16:21:00Z, or now",
            "Snapshots older than this time expire; `now` is when the request is accepted. Default: by the property "
            "history.expire.max-snapshot-age-ms of the table.",
        ),
        _text(
            MAX_SNAPSHOT_AGE,
            _MILLISECONDS,
            "a number of milliseconds, 1 or more",
            "The same as `older-than`, as an age when the request is accepted.",
        ),
        _text(
            RETAIN_LAST,
            _COUNT,
            "a number from 1 to 999999999",
            "How many snapshots of each branch are kept whatever their age. Default: by the property "
            "history.expire.min-snapshots-to-keep of the table.",
        ),
        _text(
            MAX_REF_AGE,
            _MILLISECONDS,
            "a number of milliseconds, 1 or more",
            "Branches and tags whose snapshot is older are removed, except main. Default: by the property "
            "history.expire.max-ref-age-ms of the table.",
        ),
        _text(
            SNAPSHOT_IDS,
            _IDS,
            f"1 to {MOST_IDS} snapshot ids with commas between them",
            "Snapshots that expire too, whatever their age, unless a branch or tag is at them.",
        ),
        Option(
            name=CLEAN,
            by=SetBy.CALLER,
            values=("false", "true"),
            described="Whether schemas and partition specs that no kept snapshot uses are removed.",
        ),
        Option(name=DRY_RUN, by=SetBy.CALLER, values=("false", "true")),
        Option(
            name=PLAN,
            by=SetBy.CALLER,
            pattern=_PLAN_ID,
            expected="the id of a plan, as listed in a dry run's `plan_segments`",
            described="The id of a dry run's plan.",
        ),
        CALLBACK_OPTION,
    ),
    others=frozenset({LEAST_AGE, LEAST_SNAPSHOTS}),
    exclusive=((PLAN, DRY_RUN),),
)


@dataclass(frozen=True, slots=True)
class Floor:
    """What the operator keeps of every table, whatever a request, a table's properties or its refs state."""

    age: timedelta = timedelta(0)
    snapshots: int = 1

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the properties that begin with PREFIX and ignore all others; raise InvalidProperty."""
        OPTIONS.limits(properties)
        age, snapshots = properties.get(PREFIX + LEAST_AGE), properties.get(PREFIX + LEAST_SNAPSHOTS, "1")
        if not re.fullmatch(_COUNT, snapshots):
            raise InvalidProperty(PREFIX + LEAST_SNAPSHOTS, f"{snapshots!r} is not a number from 1 to 999999999")
        if age is None or re.fullmatch("0(ms|[smhd])?", age):
            return cls(snapshots=int(snapshots))
        try:
            return cls(parse_duration(age), int(snapshots))
        except ValueError as error:
            raise InvalidProperty(PREFIX + LEAST_AGE, str(error)) from None
