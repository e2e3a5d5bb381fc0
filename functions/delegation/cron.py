"""Times of cron expressions in time zones. A time that daylight saving skips is right after the gap; one that it
repeats counts once, as in Debian's cron (cron(8), Notes)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from polaris_common.errors import printable

_FIELDS: Final = 5
_LONGEST_ZONE: Final = 64
_LONGEST_SHIFT: Final = timedelta(hours=3)
"""Zones set their clocks back by two hours at most (Antarctica/Troll).

The library counts local times: if it starts in a repeated hour it returns times before its start.
"""


def zone_named(name: str) -> tzinfo:
    """Return the time zone of a name of the tz database. Raises ValueError."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name[:_LONGEST_ZONE])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"the time zone {printable(name[:_LONGEST_ZONE])!r} is not known") from None


def cron_times(expression: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """Yield the times of an expression of five fields after a moment, in UTC, each once and in order. Raises ValueError
    if the expression is invalid, or after its last time within fifty years."""
    # Most processes never compute a time.
    from cronsim import CronSim, CronSimError  # noqa: PLC0415

    if len(expression.split()) != _FIELDS:
        raise ValueError("it does not have five fields: minute, hour, day, month, weekday")
    try:
        last = after.astimezone(UTC)
        for local in CronSim(expression, (last - _LONGEST_SHIFT).astimezone(zone)):
            moment = local.astimezone(UTC)
            if moment > last:
                last = moment
                yield moment
    except CronSimError as error:
        raise ValueError(str(error)) from None
    raise ValueError("it has no time in the next fifty years")
